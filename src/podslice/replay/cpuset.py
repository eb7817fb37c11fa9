"""CPU-list cases: parsing, text and set operations (FORMAT.md, API-level cases)."""

from __future__ import annotations

from typing import Any

from podslice.values.cpuset import CPUSet, CPUSetError, format_ranges, merge_ranges, parse_ranges
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("cpuset", "cpusetOp")
Json = dict[str, Any]


def run(case: Json, quirks: Quirks, release: Release = DEFAULT) -> Json:
    """Return the complete result of one CPU-list case."""
    if case["type"] == "cpusetOp":
        return {"a": case["a"], "b": case["b"], "type": case["type"], "result": _operations(case["a"], case["b"])}
    return {"in": case["in"], "type": case["type"], "result": _facts(case["in"])}


def _facts(text: str) -> Json:
    try:
        ranges = merge_ranges(parse_ranges(text))
    except CPUSetError as error:
        return {"error": str(error)}
    size = sum(high - low + 1 for low, high in ranges)
    return {
        "isEmpty": size == 0,
        "list": [cpu for low, high in ranges for cpu in range(low, high + 1)],
        "size": size,
        "string": format_ranges(ranges),
    }


def _operations(a: str, b: str) -> Json:
    try:
        one, other = CPUSet.parse(a), CPUSet.parse(b)
    except CPUSetError:
        return {"error": "parse"}
    return {
        "aSubsetOfB": one <= other,
        "difference": str(one - other),
        "equals": one == other,
        "intersection": str(one & other),
        "union": str(one | other),
    }
