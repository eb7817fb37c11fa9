"""Exports of metrics in files: Prometheus' answers to queries, and the text that exporters and `promtool` write.

The answer to a range query, or to an instant one about a range (`metric[7d]`), is a JSON document (`resultType`
matrix); other instant queries have one sample of each series. Text is the exposition format of Prometheus (times in
milliseconds), the output of `promtool tsdb dump`, or OpenMetrics (times in seconds, ends with `# EOF`); lines without a
time have that of the file. Unreadable parts are counted, with a line for each kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from podslice.fleet.importing.kube_objects import MAX_DUMP
from podslice.reading.files import read_bytes
from podslice.values.errors import InputError

TEXT_ENDINGS = (".prom", ".om", ".txt", ".metrics")
_RESULTS = ("matrix", "vector")
_LINE = re.compile(
    r"""(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?\s*(?:\{(?P<labels>(?:[^"}]|"(?:\\.|[^"\\])*")*)\})?\s+"""
    r"""(?P<value>\S+)(?:\s+(?P<time>[-+0-9.eE]+))?(?:\s*\#.*)?\s*$"""
)
_LABEL = re.compile(r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:\\.|[^"\\])*)"\s*(?:,|$)""")
_ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_NAME = "__name__"
_REMEDY = "make the export again"
_LONGEST = 8192
LATEST = 253_402_300_800_000
"""The year 10 000, in milliseconds since 1970."""
SeriesKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name, and its labels as (name, value) in order."""
Samples: TypeAlias = dict[SeriesKey, list[tuple[int, float]]]
"""By series: times in milliseconds since 1970, and values."""


class MetricSeries(NamedTuple):
    """A metric with its labels, and its samples in order of time: milliseconds since 1970, and the value."""

    name: str
    labels: Mapping[str, str]
    samples: tuple[tuple[int, float], ...]


class MetricsExport(NamedTuple):
    """The series of a file, and a line for each kind of unreadable part."""

    series: tuple[MetricSeries, ...]
    problems: tuple[str, ...]


def is_metrics(document: Any) -> bool:
    """Whether the document is Prometheus' answer to a query."""
    return _find_result(document) is not None


def _find_result(document: Any) -> Mapping[str, Any] | None:
    """Return the part that has the result, empty for an error; None for other documents."""
    if not isinstance(document, dict):
        return None
    data = document.get("data", document)
    if isinstance(data, dict) and "resultType" in data:
        return data
    return {} if document.get("status") == "error" and "errorType" in document else None


def read_answer(document: Mapping[str, Any], path: Path) -> MetricsExport:
    """Return the series of an answer of Prometheus. Raises `InputError` for one that has none."""
    answer = _find_result(document)
    if not answer:
        reason = str(document.get("error") or "without a reason")
        raise InputError(f"Prometheus refused the query: {reason[:200]}", source=str(path), remedy=_REMEDY)
    kind, result = answer.get("resultType"), answer.get("result")
    if kind not in _RESULTS or not isinstance(result, list):
        remedy = "ask /api/v1/query_range for one metric, without functions"
        raise InputError(f"is an answer of type {kind!r}, not matrix", source=str(path), path="data", remedy=remedy)
    wrong: Counter[str] = Counter()
    found = tuple(one for item in result if (one := _series(item, path, wrong)) is not None)
    warnings = document.get("warnings")
    lines = [f"{path.name}: Prometheus warns: {one}" for one in warnings] if isinstance(warnings, list) else []
    return MetricsExport(found, (*lines, *count_lines(wrong, path)))


def _series(item: Any, path: Path, wrong: Counter[str]) -> MetricSeries | None:
    """Return a series of an answer, None for an unusable one, which is counted."""
    labels = item.get("metric") if isinstance(item, dict) else None
    values = (item.get("values") or [item.get("value")]) if isinstance(item, dict) else None
    if not isinstance(labels, dict) or not isinstance(values, list):
        wrong["series without labels or samples"] += 1
        return None
    plain = {str(key): str(value) for key, value in labels.items()}
    name = plain.pop(_NAME, "") or metric_of_file(path)
    samples = [one for value in values if (one := parse_sample(value, wrong)) is not None]
    return MetricSeries(name, plain, tuple(sorted(samples))) if samples else None


def metric_of_file(path: Path) -> str:
    """Return the metric that a file is named after: results of functions have no name of their own."""
    return path.name.partition(".")[0]


def parse_sample(value: Any, wrong: Counter[str], scale: float = 1000.0) -> tuple[int, float] | None:
    """Return time and value of a (time, value) pair, whose time is in units of `scale` milliseconds; None, and counted,
    where it is unusable."""
    try:
        at, amount = value
        found = round(float(at) * scale), float(amount)
    except (TypeError, ValueError, OverflowError):
        wrong["samples that are not numbers"] += 1
        return None
    if not 0 <= found[0] < LATEST:
        wrong["samples of no time"] += 1
        return None
    if not isfinite(found[1]) or found[1] < 0:
        wrong["samples that are not amounts, such as NaN"] += 1
        return None
    return found


def add_sample(found: Samples, key: SeriesKey, value: object, wrong: Counter[str], scale: float) -> None:
    """Add a sample to its series if it is usable, as `parse_sample`."""
    sample = parse_sample(value, wrong, scale)
    if sample is not None:
        found.setdefault(key, []).append(sample)


def series_of(found: Samples) -> tuple[MetricSeries, ...]:
    """Return the series, each with its samples in order of time."""
    return tuple(MetricSeries(name, dict(labels), tuple(sorted(own))) for (name, labels), own in found.items())


def count_lines(wrong: Counter[str], path: Path) -> Iterator[str]:
    """Yield a line for each kind of part that was left out of a file."""
    for what, count in sorted(wrong.items()):
        yield f"{path.name}: {count} {what} left out"


# Text


def read_exposition(path: Path, made: int) -> MetricsExport | None:
    """Return the series of a text file; None where no line is a metric's. `made`: time of the file, in milliseconds
    since 1970. Raises `InputError`."""
    try:
        text = read_bytes(str(path), MAX_DUMP).decode("utf-8")
    except UnicodeDecodeError:
        return None
    lines = text.splitlines()
    # Only OpenMetrics ends with this line, and only its times are in seconds.
    scale = 1000.0 if lines and lines[-1].strip() == "# EOF" else 1.0
    wrong: Counter[str] = Counter()
    found: Samples = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line.strip()) if len(line) <= _LONGEST else None
        labels = None if match is None else parse_labels(match["labels"] or "")
        name = "" if match is None or labels is None else match["name"] or labels.pop(_NAME, "")
        if match is None or labels is None or not name:
            wrong["lines that are of no metric"] += 1
            continue
        at, unit = (made, 1.0) if match["time"] is None else (match["time"], scale)
        add_sample(found, (name, tuple(sorted(labels.items()))), (at, match["value"]), wrong, unit)
    if not found:
        return None
    ends = [] if text.endswith("\n") else [f"{path.name}: breaks off; what is before that is used"]
    return MetricsExport(series_of(found), (*ends, *count_lines(wrong, path)))


def parse_labels(text: str) -> dict[str, str] | None:
    """Return the labels in the braces of a series; None where they cannot be parsed."""
    found, place = {}, 0
    while place < len(text.rstrip()):
        match = _LABEL.match(text, place)
        if match is None:
            return None
        found[match[1]] = re.sub(r"\\.", lambda one: _ESCAPED.get(one[0], one[0]), match[2])
        place = match.end()
    return found
