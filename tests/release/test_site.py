"""The site of the documents: all pages are in it, and it is built without warnings where mkdocs is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from release.site import ROOT, build, list_versions, minor

EXTERNAL = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="?(?:https?:)?//[^">\s]+')


def test_every_page_has_a_place() -> None:
    """The navigation has every page of docs once, and no other."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"([\w/.-]+\.md)$", nav, re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(name for name in named if not name.startswith(("project/", "api/"))) == sorted(pages)


@pytest.mark.parametrize(("version", "folder"), [("0.9.3", "0.9"), ("1.0.0", "1.0"), ("2.11.1.dev4", "2.11")])
def test_a_minor_version_has_a_folder(version: str, folder: str) -> None:
    """Patch releases replace the pages of their minor version."""
    assert minor(version) == folder


def test_versions_are_listed_newest_first(tmp_path: Path) -> None:
    """Former versions stay in the list; the first page leads to the newest; folders without pages are passed over."""
    for name in ("0.9", "0.10", "0.2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    (tmp_path / "empty").mkdir()
    list_versions(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [one["version"] for one in listed] == ["0.10", "0.9", "0.2"]
    assert [one["aliases"] for one in listed] == [["latest"], [], []]
    assert 'url=0.10/index.html"' in (tmp_path / "index.html").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    for name in ("mkdocs", "material", "mkdocstrings_handlers"):
        pytest.importorskip(name, reason="needs pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    assert build(folder, "0.1") == 0  # strict: a link or an anchor that leads nowhere is an error
    return folder / "0.1"


def pages(site: Path) -> Iterator[tuple[str, str]]:
    """Yield the pages of a site by name."""
    for path in sorted(site.rglob("*.html")):
        yield path.relative_to(site).as_posix(), path.read_text(encoding="utf-8")


@pytest.mark.process
def test_pages_are_found_and_load_nothing(site: Path) -> None:
    """The search knows pages of users and the Python reference; no page loads anything from elsewhere."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"index.html", "explain.html", "api/node.html", "development/merge.html"} <= found
    assert {name: links for name, text in pages(site) if (links := EXTERNAL.findall(text))} == {}


@pytest.mark.process
def test_files_beside_the_pages_are_in_the_site(site: Path) -> None:
    """A page's link to a file of the checkout leads to a copy of it, and a link of the changelog to a page."""
    assert (site / "project" / "examples" / "scope.yaml").read_bytes() == (ROOT / "examples/scope.yaml").read_bytes()
    changes = (site / "project" / "CHANGELOG.html").read_text(encoding="utf-8")
    assert 'href="../releases.html"' in changes


@pytest.mark.process
def test_links_have_titles_and_code_has_bars(site: Path) -> None:
    """A link that a checkout shows as the name of a file has the page's title, and code in a table its bars alone."""
    text = (site / "cli.html").read_text(encoding="utf-8")
    assert '<a href="why.html">Why is my pod refused?</a>' in text
    assert "show|verify|convert|repair" in text


@pytest.mark.process
def test_the_reference_has_the_public_names(site: Path) -> None:
    """Every public name of the library is on a page of the reference, with its docstring and its fields."""
    import podslice

    text = "".join(text for name, text in pages(site) if name.startswith("api/"))
    documented = set(re.findall(r'id="podslice\.[\w.]*?\.?(\w+)"', text))
    assert set(podslice.__all__) <= documented
    assert {"admit", "view", "resize"} <= documented  # of Node
