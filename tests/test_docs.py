"""The promises of the documents hold in the code."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from podslice import InputError, NodeView, __version__, discover_host, load_machine
from podslice.values.quirks import KUBELET_1_36, PODSLICE, PROFILE_NAMES, PROFILES, Quirks
from podslice.values.releases.table import RELEASES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "AGENTS.md")),
         *sorted((ROOT / "docs").rglob("*.md"))]  # fmt: skip


def test_deviations_are_the_quirks() -> None:
    """docs/deviations.md has exactly one row per quirk."""
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(Quirks.__struct_fields__)


def test_profiles_are_all_or_nothing() -> None:
    """kubelet-1.36 has every quirk, podslice none, and other names are refused."""
    assert all(getattr(KUBELET_1_36, name) for name in Quirks.__struct_fields__)
    assert not any(getattr(PODSLICE, name) for name in Quirks.__struct_fields__)
    assert ("podslice", *(f"kubelet-{release}" for release in RELEASES.values())) == PROFILE_NAMES
    with pytest.raises(InputError, match="use one of"):
        PROFILES["kubelet-1.0"]


def examples() -> dict[str, list[tuple[str, str]]]:
    """Programs that show below them what they print, by the document they are in."""
    shown = re.compile(r"```python\n((?:(?!```).)*?)```\n\s*(?:prints\n\s*)?```text\n(.*?)```", re.DOTALL)
    found = {page.relative_to(ROOT).as_posix(): shown.findall(page.read_text(encoding="utf-8")) for page in PAGES}
    return {page: programs for page, programs in found.items() if programs}


@pytest.mark.parametrize(("page", "programs"), examples().items(), ids=list(examples()))
def test_examples_print_what_is_shown(
    page: str, programs: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The programs of a document run one after the other and print what the document shows below each."""
    names: dict[str, object] = {}
    for code, printed in programs:
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out == printed


def test_what_a_view_says() -> None:
    """The table of a view in docs/library.md names what a view has."""
    table = (ROOT / "docs" / "library.md").read_text(encoding="utf-8").split("| field or method |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)(?:\(.*?\))?`", row.split("|")[1])]
    assert len(named) > 20
    assert not [name for name in named if not hasattr(NodeView, name)]


def test_there_is_a_first_program() -> None:
    """The newcomer's page and the library's page each have a program whose output is compared."""
    assert {"README.md", "docs/start.md", "docs/library.md"} <= set(examples())


def test_readme_fits_two_screens() -> None:
    """The README stays a front door; what is longer has a page in docs."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_every_command_has_a_row() -> None:
    """docs/cli.md has every command of the tool, and no other, in its first table."""
    from podslice.cli.main import COMMANDS

    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert set(re.findall(r"`podslice (\w+)", text)) == set(COMMANDS)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures that are in the repository."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield from (target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link of a document leads to a file, and to a heading it has."""
    for target in links(page):
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_index_names_every_page() -> None:
    """Each of the two trees of pages, for users and for developers, has an index that names all of its pages."""
    for tree in (ROOT / "docs", ROOT / "docs" / "development"):
        index = (tree / "README.md").read_text(encoding="utf-8")
        named = set(re.findall(r"\]\(([\w.-]+\.md)", index))
        assert {page.name for page in tree.glob("*.md")} - {"README.md"} <= named


def test_index_speaks_to_every_reader() -> None:
    """The index has a paragraph with links for everybody the project is made for."""
    readers = (ROOT / "docs" / "README.md").read_text(encoding="utf-8").partition("## By reader")[2]
    told = dict(re.findall(r"^\*\*(.+?)\.\*\* (.*?)(?:\n\n|\Z)", readers, re.MULTILINE | re.DOTALL))
    assert set(told) == {"HPC", "AI", "Telco", "Databases", "Scheduler authors", "On call"}
    assert all(".md" in text for text in told.values())


def test_stable_kinds_are_the_kinds() -> None:
    """docs/stability.md lists exactly the kinds of documents there are."""
    from podslice.documents.kinds import KINDS

    text = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8").partition("## Kinds of documents")[2]
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(KINDS)


def test_the_picture_is_what_its_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's picture is, byte for byte, what the command below it writes."""
    from podslice.cli.main import main

    line = re.search(r"^    (podslice draw .*) --out node\.svg$", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    drawn = tmp_path / "node.svg"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [*shlex.split(line[1]), "--out", str(drawn)])
    main()
    assert drawn.read_bytes() == (ROOT / "docs" / "node.svg").read_bytes()


@pytest.mark.process
def test_hardware_packed_by_a_script_is_a_snapshot(tmp_path: Path) -> None:
    """The archive of the script in docs/start.md is read as the machine it came from, and the script leaves no
    files behind."""
    assert "    ssh node7 sh -s < deploy/capture.sh > node7.tar.gz\n" in (ROOT / "docs" / "start.md").read_text("utf-8")
    left, snapshot = tmp_path / "tmp", tmp_path / "node7.tar.gz"
    left.mkdir()
    with snapshot.open("wb") as out, (ROOT / "deploy" / "capture.sh").open("rb") as script:
        subprocess.run(["sh", "-s"], stdin=script, stdout=out, env={**os.environ, "TMPDIR": str(left)}, check=True)
    packed, here = load_machine(str(snapshot)), discover_host()
    assert msgspec.structs.replace(packed, name=here.name, source=here.source) == here
    assert not list(left.iterdir())


def test_changelog_names_the_version() -> None:
    """The changelog has an entry for the version of the package."""
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


UNCLAIMED = re.compile(
    r"\b(?:pip3?|pipx|uv|uvx|tool|krew) (?:install|run|add)\b(?! --no-index)[^\n`]*[ '\"]podslice(?![\w./-])"
)


def test_no_name_that_anybody_could_register_is_installed() -> None:
    """Until podslice is published on an index, no page, script or message has somebody install that name from one."""
    assert UNCLAIMED.search("pip install 'podslice[agent]'")
    assert UNCLAIMED.search("kubectl krew install podslice")
    folders = ("deploy", "docs", "e2e", "examples", "release", "src", "tools", ".ci")
    files = [*PAGES, ROOT / "Makefile", *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    named = {path.name for path in files if path.is_file() and UNCLAIMED.search(path.read_text("utf-8", "replace"))}
    assert named == set()


def test_contradictions_are_documented() -> None:
    """docs/evidence.md has every code of a contradiction, and no others."""
    from podslice.evidence.contradiction import Code

    text = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == set(get_args(Code))


def test_explain_codes_are_documented() -> None:
    """docs/explain.md has every stable code, every cause and every class of fixes, and no others."""
    from podslice.advise.explain.causes.cause import CAUSES
    from podslice.advise.explain.codes import CANDIDATES, ELIGIBILITY, REFUSALS
    from podslice.advise.explain.fixes.fix import COSTS

    text = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == {
        *CAUSES,
        *ELIGIBILITY,
        *CANDIDATES,
        *REFUSALS,
        *COSTS,
    }
