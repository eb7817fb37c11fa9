"""Rules about a file as text, whatever its objects are."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.model import WARNING, Problem, Rule
from podslice.advise.lint.subject import FileSubject


def _duplicate_keys(subject: FileSubject) -> Iterator[Problem]:
    for one in subject.duplicates:
        yield Problem(
            "",
            f"the key {one.key[:60]!r} is there more than once: the last value counts, and the one before is lost",
            "write it once",
            line=one.line,
            document=one.document,
        )


RULES: tuple[Rule[FileSubject], ...] = (
    Rule(
        "PS003",
        "duplicate-key",
        WARNING,
        "A key is there more than once in one object",
        "YAML forbids it, and programs differ. kubectl keeps the last value without a word, because it turns the file "
        "into JSON before it sends it. An API server that gets the text itself keeps the last value with a warning, "
        "and refuses the object with fieldValidation=Strict. A kubelet keeps the last value of its configuration with "
        "a line in its log; kustomize and Helm refuse the file. Other rules read the last value.",
        _duplicate_keys,
    ),
)
