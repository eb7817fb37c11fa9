"""Lint findings as SARIF 2.1.0, the format of code scanning services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from podslice.advise.lint.model import Finding, Rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(findings: Sequence[Finding], rules: Sequence[Rule[Any]], version: str) -> dict[str, Any]:
    """Return a SARIF log with one run of podslice `version`. `rules` are all rules that ran, in the order of
    `ruleIndex`."""
    index = {rule.id: number for number, rule in enumerate(rules)}
    driver = {"name": "podslice", "version": version, "rules": [_rule(rule) for rule in rules]}
    results = [_result(finding, index[finding.id]) for finding in findings]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        # Columns count characters, as Python does; the default of the format is UTF-16 code units.
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _rule(rule: Rule[Any]) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.explanation} (podslice lint --explain {rule.id})"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    logical = {"fullyQualifiedName": f"{finding.object}:{finding.path}", "kind": "member"}
    location: dict[str, Any] = {"logicalLocations": [logical]}
    # Code scanning shows findings in files of the repository only.
    if finding.source and finding.source != "stdin":
        physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.source)}}
        if finding.line:
            physical["region"] = {"startLine": finding.line, "startColumn": finding.column}
        location["physicalLocation"] = physical
    return {
        "ruleId": finding.id,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}. Fix: {finding.fix}."},
        "locations": [location],
    }


def _uri(source: str) -> str:
    """Return a URI: a relative path stays relative, an absolute one becomes a file URI."""
    path = quote(source.removeprefix("./"))
    return f"file://{path}" if path.startswith("/") else path
