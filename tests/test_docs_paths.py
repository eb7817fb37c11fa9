"""The files and modules that the documents name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podslice.host.bundle.layout import FILES

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
OURS = sorted(path.name for path in (ROOT / "src" / "podslice").iterdir() if path.is_dir() and path.name[0] != "_")
TOPS = ("src", "tests", "docs", "deploy", "examples", *OURS)
BY_NAME = {
    path.name
    for folder in ("src", "tests", "benchmarks", "e2e", "fuzz", "tools")
    for path in (ROOT / folder).rglob("*.py")
}
NAMED = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./{{}},*-]+|[\w/]+\.py)(?:::?[^`]*)?`")


SYSFS = ("node/node", "topology/")
"""How paths below `/sys/devices/system` begin that look like ours."""


def spelled_out(path: str) -> list[str]:
    """A path with `{a,b}` as all paths it stands for."""
    braces = re.search(r"\{([^}]*)\}", path)
    if braces is None:
        return [path]
    return [
        one
        for part in braces[1].split(",")
        for one in spelled_out(path[: braces.start()] + part + path[braces.end() :])
    ]


def is_there(path: str, page: Path) -> bool:
    """True when a path exists in the checkout, in the package, or beside the page; a bare name anywhere."""
    folders = (ROOT, ROOT / "src" / "podslice", page.parent)
    return path in BY_NAME or any(any(folder.glob(path.rstrip("/"))) for folder in folders)


def test_braces_and_missing_files() -> None:
    """Braces stand for several files, and a file that is not there is noticed."""
    assert spelled_out("core/{a,b}/{c,d}.py") == ["core/a/c.py", "core/a/d.py", "core/b/c.py", "core/b/d.py"]
    assert is_there("values/quirks.py", ROOT / "README.md")
    assert not is_there("core/explain/explain.py", ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """Every path of ours that a page has between backticks is a file or folder."""
    named = {path for found in NAMED.findall(page.read_text(encoding="utf-8")) for path in spelled_out(found)}
    assert (
        sorted(path for path in named if not path.startswith(SYSFS) and path not in FILES and not is_there(path, page))
        == []
    )
