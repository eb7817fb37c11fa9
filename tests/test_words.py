"""The project speaks the field's words: those that were given up do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "podslice"
OLD = {
    "aside": "run_in_thread",
    "books": "ledger",
    "bubble": "pod CPUs",
    "bubbles": "pod CPUs",
    "crossing": "move in progress",
    "fates": "binding outcomes",
    "hear": "receive, or a listener",
    "heard": "received",
    "hears": "receives, or is called with",
    "news": "report, event",
    "nobody": "no one, or a sentence that says who",
    "purse": "search budget",
    "somebody": "another program, user or pod",
    "told": "reported, called with",
    "waking": "requeue",
    "whoever": "the client, or what it is",
    "wishes": "requested resize, requested classes",
}
"""Words of an earlier private language, and what to write instead."""
ON_PAGES = {
    "books": "ledger, records",
    "for ever": "forever",
    "heard": "received, seen",
    "in earnest": "for real",
    "nobody": "no one, or who it is that does not",
    "somebody": "another program, user or pod",
    "told": "reported, or a sentence that says who tells it",
    "whoever": "everyone who, or who it is",
    "wishes": "requests",
    "all one needs": "all that you need",
    "without a word": "silently",
}
"""Words and phrases that make readers of docs/*.md stop, and what to write instead."""
KEPT = {
    ("aside", "state_files/documents.py"): "a field of StateMigration, which is a published document",
    ("aside", "state_files/commands/migrate.py"): "the same",
    ("bubble", "node/checkpoints/policy_state.py"): "the name in the policy's state file",
    ("bubble", "node/cpu/plugin_calls.py"): "a kind of request, which plugins know and state files record",
    ("bubble", "node/cpu/state.py"): "the name in messages between agents and services",
    ("bubbles", "node/cpu/state.py"): "the same",
    ("bubble", "node/holding.py"): "the same, and in digests",
    ("bubble", "node/plugins/api.py"): "a kind of request, which plugins know and state files record",
    ("nobody", "advise/lint/rules/pod_level.py"): "in the id of a lint rule",
}
"""Places that keep a word because it is in a published or stored format, with the reason."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words of a text with their lines, those inside names too: `ResizeNews` has the word news."""
    for number, line in enumerate(text.splitlines(), 1):
        for part in _PARTS.findall(line):
            yield number, part.lower()


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, list[int]]]:
    """Lines of the source by old word and file."""
    places: dict[str, dict[str, list[int]]] = {word: {} for word in OLD}
    for path in sorted(SOURCE.rglob("*.py")):
        for number, word in words_of(path.read_text(encoding="utf-8")):
            if word in places:
                places[word].setdefault(path.relative_to(SOURCE).as_posix(), []).append(number)
    return places


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_old_words_stay_out(found: dict[str, dict[str, list[int]]], old: str, new: str) -> None:
    """No module of the source has the word in a name, a docstring or a comment, but where a format keeps it."""
    wrong = {file: lines for file, lines in found[old].items() if (old, file) not in KEPT}
    assert wrong == {}, f"write {new}"


@pytest.mark.parametrize(("old", "file"), KEPT)
def test_exceptions_are_needed(found: dict[str, dict[str, list[int]]], old: str, file: str) -> None:
    """An exception goes with the last use of its word."""
    assert file in found[old]


@pytest.mark.parametrize("text", ["ResizeNews", "news", "_on_news(", "NEWS = 1", '"""News of a pod."""'])
def test_words_inside_names_are_seen(text: str) -> None:
    """A word is found in names of every form, and in sentences."""
    assert "news" in {word for _, word in words_of(text)}


def test_longer_words_are_others() -> None:
    """A word that only begins like an old one is not taken for it."""
    assert set(words_of("newsletter foretold")) == {(1, "newsletter"), (1, "foretold")}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_pages_speak_plainly(page: Path) -> None:
    """No page for users has such a word or phrase outside of code."""
    prose = re.sub(
        r"```.*?```|`[^`\n]*`|^ {4}.*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    found = [phrase for phrase in ON_PAGES if re.search(rf"\b{phrase}\b", prose, re.IGNORECASE)]
    assert found == [], {phrase: ON_PAGES[phrase] for phrase in found}


def test_no_module_opens_with_a_question() -> None:
    """The first line of a module says what the module is, not "What …"."""
    asking = [
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if re.match(r'(?:"""|r""")(?:What|Who|Whom|Whose)\b', path.read_text(encoding="utf-8"))
    ]
    assert asking == []
