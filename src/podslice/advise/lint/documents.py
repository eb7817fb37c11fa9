"""Documents that `podslice lint` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.advise.lint.model import Finding, Rule
from podslice.evidence.provenance import Provenance


class LintReport(msgspec.Struct, frozen=True):
    """All findings, file by file, and what they rest on; machine and configuration are empty where none is given."""

    findings: tuple[Finding, ...]
    provenance: Provenance = Provenance()


class LintRule(msgspec.Struct, frozen=True, rename="camel"):
    """A rule. `severity` is the usual one of its findings, `other_severities` those of some cases. `needs`: `nothing`
    beside the object, a `config`, a `machine` as well, or `claims`. `replaces` are rules that report nothing then."""

    id: str
    name: str
    severity: str
    title: str
    explanation: str
    needs: str
    replaces: tuple[str, ...]
    other_severities: tuple[str, ...]


class LintRuleList(msgspec.Struct, frozen=True):
    """All rules by id."""

    items: tuple[LintRule, ...]


def rule_document(rule: Rule[Any]) -> LintRule:
    """Return a rule without its function."""
    return LintRule(
        rule.id, rule.name, rule.severity, rule.title, rule.explanation, rule.needs, rule.replaces, rule.others
    )
