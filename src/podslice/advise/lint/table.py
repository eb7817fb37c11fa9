"""Lint findings for people: a paragraph each, and a line of totals."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from podslice.advise.lint.model import SEVERITIES, Finding, Rule
from podslice.render.ansi import style
from podslice.render.table import format_table
from podslice.values.quantity import plural

_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def format_findings(findings: Sequence[Finding], *, width: int) -> str:
    """Return all findings, wrapped at `width`."""
    return "\n".join(_finding(finding, width) for finding in findings)


def finding_table(findings: Sequence[Finding]) -> str:
    """Return all findings, one row each, with rule, field and fix."""
    headings = ["PLACE", "SEVERITY", "RULE", "NAME", "OBJECT", "FIELD", "MESSAGE", "FIX"]
    rows = [
        [
            ":".join(str(part) for part in (one.source, one.line, one.column) if part),
            style(one.severity, fg=_COLOURS[one.severity], bold=True),
            one.id,
            one.name,
            str(one.object),
            one.path,
            one.message,
            one.fix,
        ]
        for one in findings
    ]
    return format_table(headings, rows, bold=True)


def _finding(finding: Finding, width: int) -> str:
    place = f"{finding.source}:{finding.line}" if finding.line else finding.source
    severity = style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
    head = f"{style(place, bold=True)}: {severity} {finding.id} {finding.name}"
    lines = [head, *_wrap(f"{finding.object} {finding.path}".rstrip(), width)]
    lines += _wrap(finding.message, width)
    lines += _wrap(f"fix: {finding.fix}", width)
    return "\n".join(lines) + "\n"


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def summary(findings: Sequence[Finding], pods: int, configurations: int) -> str:
    """Return one line: the number of objects checked and of findings by severity."""
    counts = Counter(finding.severity for finding in findings)
    found = ", ".join(_count(counts[name], name) for name in reversed(SEVERITIES) if counts[name]) or "no findings"
    checked = [_count(pods, "pod")] if pods or not configurations else []
    checked += [_count(configurations, "kubelet configuration")] if configurations else []
    return f"{' and '.join(checked)}: {found}"


def _count(number: int, word: str) -> str:
    if word == "info":
        word = "note"
    return plural(number, word)


def rule_page(rule: Rule[Any], *, width: int) -> str:
    """Return the description of a rule, for `--explain`."""
    needs = {"nothing": "nothing", "config": "--config", "machine": "--config and --machine", "claims": "--claims"}[
        rule.needs
    ]
    head = f"{style(rule.id, bold=True)} {rule.name}: {rule.severities}\n{rule.title}\n"
    return "\n".join([head, *textwrap.wrap(rule.explanation, width), "", f"Needs: {needs}"])


def rule_table(rules: Sequence[Rule[Any]]) -> str:
    """Return all rules, one line each."""
    rows = [[rule.id, rule.name, rule.severities, rule.needs, rule.title] for rule in rules]
    return format_table(["ID", "NAME", "SEVERITY", "NEEDS", "TITLE"], rows, bold=True)
