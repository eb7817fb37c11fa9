"""Exports of metrics as tables (CSV, gzipped or not, Parquet, JSON lines with plain fields), recognized by their
columns.

*Long*: a row is a sample, with a column of time, one of values (`value`, or named after the metric), the metric's name
in `__name__` or in the file's name, and a column for each label. *Wide*, as Grafana saves a panel: a column of time,
and one for each series, named `metric{label="value"}` or, where the file is named after the metric, `{label="value"}`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from podslice.fleet.importing.metrics_read import (
    MetricsExport,
    Samples,
    SeriesKey,
    add_sample,
    count_lines,
    metric_of_file,
    parse_labels,
    series_of,
)
from podslice.fleet.traces.rows import open_rows
from podslice.values.errors import InputError

TABLE_ENDINGS = (".csv", ".csv.gz", ".parquet", ".jsonl", ".jsonl.gz")
_TIMES = ("time", "timestamp", "ts", "__timestamp__", "datetime", "date")
_VALUES = ("value", "__value__", "val")
_NAMES = ("__name__", "metric", "metric_name")
_SERIES = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?\s*\{(?P<labels>.*)\}\s*$")
_METRIC = re.compile(r"kube_[a-z0-9_]+$")
_MILLISECONDS = 1e11
"""Numbers from here on are milliseconds since 1970, smaller ones seconds: as seconds this is in the year 5138."""


class _Columns(NamedTuple):
    """Positions of columns. `value`, `name`: −1 for none; `labels`: of a long table; `series`: of a wide one."""

    time: int
    value: int
    name: int
    metric: str
    labels: Mapping[int, str]
    series: Mapping[int, SeriesKey]


def is_table(path: Path) -> bool:
    """Whether the file may be a table, by its name."""
    return path.name.lower().endswith(TABLE_ENDINGS)


def read_table(path: Path) -> MetricsExport | None:
    """Return the series of a table; None for one without metrics. Raises `InputError`, also for a file that is named
    after a metric of pods and lacks its columns."""
    found: Samples = {}
    wrong: Counter[str] = Counter()
    with open_rows(path) as table:
        columns = _columns(table.columns, path)
        if columns is None:
            return None
        for _, cells in table.rows:
            _add_row(cells, columns, found, wrong)
    return MetricsExport(series_of(found), tuple(count_lines(wrong, path)))


def _columns(header: tuple[str, ...], path: Path) -> _Columns | None:
    """Return the positions of a table's columns; None for a table without metrics. Raises `InputError`."""
    plain = [name.strip().lower() for name in header]
    own = metric_of_file(path)
    time = next((plain.index(name) for name in _TIMES if name in plain), -1)
    name = next((plain.index(name) for name in _NAMES if name in plain), -1)
    series = dict(_series_columns(header, own))
    valued = [index for index, one in enumerate(plain) if one in _VALUES or one == own or _METRIC.match(one)]
    value = valued[0] if len(valued) == 1 and not series else -1
    metric = own if value < 0 or plain[value] in _VALUES else plain[value]
    if time < 0 or (value < 0 and not series) or (not series and name < 0 and not _METRIC.match(metric)):
        if not _METRIC.match(own):
            return None
        what = "time" if time < 0 else "value"
        remedy = "save it with the columns time, value and the labels"
        raise InputError(f"has no column {what}: {', '.join(header[:8])}", source=str(path), remedy=remedy)
    labels = {index: one.strip() for index, one in enumerate(header) if index not in (time, value, name)}
    return _Columns(time, value, name, metric, labels, series)


def _series_columns(header: tuple[str, ...], own: str) -> Iterator[tuple[int, SeriesKey]]:
    """Yield the columns that are series, by position."""
    for index, name in enumerate(header):
        match = _SERIES.match(name.strip())
        labels = None if match is None else parse_labels(match["labels"])
        if match is not None and labels is not None:
            yield index, (match["name"] or labels.pop("__name__", "") or own, tuple(sorted(labels.items())))


def _add_row(cells: list[str], columns: _Columns, found: Samples, wrong: Counter[str]) -> None:
    """Add the samples of a row. A series without a value in a row has no sample then."""
    if len(cells) <= max(columns.time, columns.value, columns.name):
        wrong["rows with too few cells"] += 1
        return
    at = _parse_time(cells[columns.time])
    if columns.series:
        for index, key in columns.series.items():
            if index < len(cells) and cells[index].strip():
                add_sample(found, key, (at, cells[index]), wrong, 1.0)
        return
    labels = tuple(sorted((name, cells[index]) for index, name in columns.labels.items() if cells[index : index + 1]))
    name = cells[columns.name].strip() if columns.name >= 0 else columns.metric
    add_sample(found, (name, tuple(one for one in labels if one[1])), (at, cells[columns.value]), wrong, 1.0)


def _parse_time(text: str) -> float | str:
    """Return milliseconds since 1970; the text itself where it is not a time. Times without a zone are UTC."""
    try:
        number = float(text)
        return number if number >= _MILLISECONDS else number * 1000
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.strip().replace("/", "-"))
    except ValueError:
        return text
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000
