"""The counts of a comparison as a Markdown table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

_COLUMNS = (
    "pods", "admitted", "refused", "deletions", "completions", "crashes", "restarts", "re-admissions",
    "re-admissions refused", "starts refused", "comparisons", "differences",
)  # fmt: skip


def row(number: int, name: str, counts: Mapping[str, int], seconds: float) -> str:
    """Format the row of one configuration."""
    return _cells([f"{number} {name}", *(str(counts[column]) for column in _COLUMNS), f"{seconds:.0f}"])


def table(rows: Sequence[str], total: Counter[str]) -> str:
    """Format the table of all rows, and below it the sum of every count."""
    head = _cells(["configuration", *_COLUMNS, "seconds"])
    line = "|---|" + "---:|" * (len(_COLUMNS) + 1)
    last = _cells(["all", *(str(total[column]) for column in _COLUMNS), ""])
    others = ", ".join(f"{count} {name}" for name, count in sorted(total.items()) if name not in _COLUMNS)
    return "\n".join([head, line, *rows, last, "", others])


def _cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
