"""All lint rules, and their selection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from podslice.advise.lint.model import Rule
from podslice.advise.lint.rules import (
    amounts,
    claims,
    kubelet,
    placement,
    pod_level,
    policy,
    qos,
    reservation,
    spoiled,
    validity,
)
from podslice.advise.lint.subject import FileSubject, NodeSubject, PodSubject
from podslice.values.errors import InputError, did_you_mean

POD_RULES: tuple[Rule[PodSubject], ...] = tuple(
    sorted(
        (
            *validity.RULES,
            *qos.RULES,
            *spoiled.RULES,
            *claims.RULES,
            *pod_level.RULES,
            *amounts.RULES,
            *placement.RULES,
            *policy.RULES,
        ),
        key=lambda rule: rule.id,
    )
)
NODE_RULES: tuple[Rule[NodeSubject], ...] = (*kubelet.RULES, *policy.NODE_RULES, *reservation.RULES)
FILE_RULES: tuple[Rule[FileSubject], ...] = validity.FILE_RULES
RULES: tuple[Rule[Any], ...] = tuple(sorted((*POD_RULES, *NODE_RULES, *FILE_RULES), key=lambda rule: rule.id))


def find_rule(text: str) -> Rule[Any]:
    """Return a rule by id or name. Raises `InputError`."""
    for rule in RULES:
        if text.lower() in (rule.id.lower(), rule.name):
            return rule
    raise _unknown(text)


def choose(select: Iterable[str], ignore: Iterable[str]) -> frozenset[str]:
    """Return the ids of the rules that run: those in `select` (all when empty) without those in `ignore`.

    Both name rules by id, by the prefix of an id (`PS4`) or by name. Raises `InputError`.
    """
    chosen = {one for text in select for one in _matching(text)} or {rule.id for rule in RULES}
    return frozenset(chosen - {one for text in ignore for one in _matching(text)})


def _matching(text: str) -> list[str]:
    found = [rule.id for rule in RULES if text and (rule.id.startswith(text.upper()) or rule.name == text)]
    if not found:
        raise _unknown(text)
    return found


def _unknown(text: str) -> InputError:
    known = [*(rule.id for rule in RULES), *(rule.name for rule in RULES)]
    return InputError(f"{text!r} is not a rule", remedy=did_you_mean(text, known, "podslice lint --rules lists them"))
