"""Citations of docs/development/spec in the source exist there, and so do those within docs/development/spec."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from podslice.values.quirks import Quirks

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "docs" / "development" / "spec"
CHAPTERS = sorted(path.stem for path in SPEC.glob("*.md") if path.stem != "README")
FOLDERS = ("src", "tests", "benchmarks", "e2e", "examples", "fuzz", "judge")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PROTOS = sorted((ROOT / "src").rglob("*.proto"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))

_CHAPTER = rf"(?P<chapter>{'|'.join(CHAPTERS)})"
_JOIN = r"(?:, | and | to |, steps? )"
CITATION = re.compile(rf"\b{_CHAPTER} (?P<places>\d[\d.]*(?:{_JOIN}\d[\da-z.]*)*)")
LINK = re.compile(rf"\]\({_CHAPTER}\.md\) (?P<places>\d[\d.]*(?:{_JOIN}\d[\d.]*)*)")
ELSEWHERE = re.compile(
    r"\b(?:spec|specification|field notes|house|review)(?:\.md)?,? (?:chapter |section |row )?[A-D]?\.?\d"
    r"|\bobs\. ?\d|\((?:\d+\.)+\d+[,;)]",
    re.IGNORECASE,
)


@cache
def sections(chapter: str) -> dict[str, str]:
    """The text below every numbered heading of a chapter, up to the next heading."""
    parts = re.split(
        r"^#+ (\d[\d.]*?)\.? .*$", (SPEC / f"{chapter}.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert len(parts[1::2]) == len(set(parts[1::2])), f"{chapter}: a number is used twice"
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def prose(path: Path) -> list[str]:
    """The comments, docstrings and other long strings of a Python file, each on one line."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    texts = (token.string for token in tokens if token.type == tokenize.COMMENT or token.string.startswith('"""'))
    return [" ".join(text.split()) for text in texts]


def missing(chapter: str, places: str) -> list[str]:
    """The places of a citation that are not there: `9.3`, `9.3 to 9.5, 11.17` or `2.8, steps 6 to 11`."""
    heads, _, steps = re.sub(r", steps? ", " step ", places).partition(" step ")
    cited = re.findall(r"\d+(?:\.\d+)*", heads)
    lost = [head for head in cited if head not in sections(chapter)]
    if steps and not lost:
        section = sections(chapter)[cited[-1]]
        numbers = [step.split(".")[0] for step in re.split(r", | and | to ", steps)]
        items = re.findall(r"^ {0,3}(?:\*\*Step )?(\d+)\.", section, re.MULTILINE)
        items += re.findall(r"[.:] (\d+)\. ", section)
        lost += [f"{cited[-1]}, step {number}" for number in numbers if number not in items]
    return lost


def test_citations_are_found() -> None:
    """All forms of citations are recognised, and a wrong one is noticed."""
    text = "a (cpu-topology 9.3 to 9.5, 11.17; memory-device 2.8, steps 6 to 11)"
    found = [(m["chapter"], m["places"]) for m in CITATION.finditer(text)]
    assert found == [("cpu-topology", "9.3 to 9.5, 11.17"), ("memory-device", "2.8, steps 6 to 11")]
    assert not any(missing(*one) for one in found)
    assert missing("cpu-topology", "9.3, 9.99") == ["9.99"]
    assert missing("memory-device", "2.8, step 44") == ["2.8, step 44"]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.slow
def test_every_citation_resolves(folder: str) -> None:
    """Every citation in docstrings and comments is a heading, or a numbered step, of docs/development/spec."""
    texts = [(path, text) for path in SOURCES if path.is_relative_to(ROOT / folder) for text in prose(path)]
    texts += [(path, path.read_text(encoding="utf-8")) for path in PROTOS if path.is_relative_to(ROOT / folder)]
    lost = {
        f"{path.relative_to(ROOT)}: {found[0]}": missing(found["chapter"], found["places"])
        for path, text in texts
        for found in CITATION.finditer(text)
    }
    assert {name: places for name, places in lost.items() if places} == {}


def test_the_code_cites_every_chapter() -> None:
    """No chapter is there that the code does not follow."""
    cited = {found["chapter"] for path in SOURCES for text in prose(path) for found in CITATION.finditer(text)}
    assert cited == set(CHAPTERS)


def test_nothing_is_cited_that_is_not_here() -> None:
    """No docstring or comment cites a document outside the repository, or a number without its chapter."""
    found = {
        f"{path.relative_to(ROOT)}: {text[max(0, one.start() - 30) : one.end() + 10]}"
        for path in SOURCES
        if path != Path(__file__)
        for text in prose(path)
        for one in ELSEWHERE.finditer(text)
    }
    assert found == set()


def test_pages_cite_what_exists() -> None:
    """Citations and links to chapters in docs resolve, and so do the chapters' references to their own sections."""
    lost = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in (*CITATION.finditer(text), *LINK.finditer(text)):
            lost += [f"{page.name}: {found[0]}"] if missing(found["chapter"], found["places"]) else []
        if page.stem in CHAPTERS:
            own = re.findall(r"Defects? (\d+\.\d+)", text) + re.findall(r"\((\d\d?\.\d\d?)(?:[);:]|, )", text)
            lost += [f"{page.name}: {number}" for number in own if number not in sections(page.stem)]
    assert lost == []


def quirk_docstrings() -> dict[str, str]:
    """The docstring below each field of `Quirks`."""
    tree = ast.parse((ROOT / "src" / "podslice" / "values" / "quirks.py").read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Quirks")
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def test_quirks_are_where_they_are_cited() -> None:
    """The chapters name every quirk, in a section that the quirk cites, and no quirk that does not exist."""
    described = quirk_docstrings()
    assert set(described) == set(Quirks.__struct_fields__)
    for name, text in described.items():
        cited = [(one["chapter"], one["places"]) for one in CITATION.finditer(text)]
        places = [(chapter, place) for chapter, all_ in cited for place in re.findall(r"\d+(?:\.\d+)*", all_)]
        assert not places or any(f"`{name}`" in sections(chapter)[place] for chapter, place in places), name
    named = "".join(text for chapter in CHAPTERS for text in sections(chapter).values())
    assert [name for name in Quirks.__struct_fields__ if f"`{name}`" not in named] == []
    for line in re.findall(r"\*\*Ours:\*\* ((?:`\w+_\w+`(?:, | and )?)+)", named):
        assert set(re.findall(r"`(\w+)`", line)) <= set(Quirks.__struct_fields__), line
