"""The types of lint rules and findings.

A rule is a pure function from a subject (a pod, or a node's configuration) to problems. The registry gives it an id, a
name, a severity and an explanation; the engine adds the object and makes findings of the problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import msgspec

from podslice.values.shown import Shown

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (INFO, WARNING, ERROR)
"""Severities in rising order."""

NOTHING, CONFIG, MACHINE, CLAIMS = "nothing", "config", "machine", "claims"
"""Needs of a rule beside the object: nothing, a kubelet configuration, a configuration and a machine, the claims that
the object names."""

Subject = TypeVar("Subject", contravariant=True)


class Problem(NamedTuple):
    """One violation of a rule. `path` is the field below the object, or in the whole document with `absolute`;
    `severity` overrides the rule's; `line` and `document` are known of problems of a file as text."""

    path: str
    message: str
    fix: str
    severity: str = ""
    absolute: bool = False
    line: int = 0
    document: int = 0


class Rule(NamedTuple, Generic[Subject]):
    """A rule. `replaces` names rules whose findings about the same object add nothing to this one's; `others` are
    severities that its findings have in some cases, beside the usual one."""

    id: str
    name: str
    severity: str
    title: str
    explanation: str
    check: Callable[[Subject], Iterable[Problem]]
    needs: str = NOTHING
    replaces: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def severities(self) -> str:
        """The usual severity, and the others it may have: `warning (or info, error)`."""
        others = ", ".join(name for name in SEVERITIES if name in self.others)
        return f"{self.severity} (or {others})" if others else self.severity


class ObjectReference(msgspec.Struct, frozen=True):
    """The object of a finding; `namespace` and `name` are empty for a configuration file."""

    kind: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


class Finding(Shown, msgspec.Struct, frozen=True, rename="camel"):
    """One finding. `path` is the field within the object's document, `message` the reason with its numbers, `fix` the
    change to make. `line` and `column` count from 1 and are 0 where the place in the text is not known."""

    id: str
    name: str
    severity: str
    object: ObjectReference
    path: str
    message: str
    fix: str
    source: str = ""
    document: int = 0
    line: int = 0
    column: int = 0


def at_least(severity: str, least: str) -> bool:
    """Whether `severity` is as grave as `least`."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


def count_cpus(number: int, kind: str = "") -> str:
    """Return `1 exclusive CPU`, `2 exclusive CPUs`."""
    return f"{number} {kind}{' ' if kind else ''}CPU{'s' if number != 1 else ''}"
