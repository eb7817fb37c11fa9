"""Tables of a run for other programs: CSV (gzipped where long) or Parquet, in the order of the cells' keys.

Equal cells make equal bytes, whichever process simulated them and in which order.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from podslice.fleet.report.measures import MEASURES, figures_of
from podslice.fleet.report.table_columns import ROWS, meaning_of
from podslice.fleet.scenario.codec import CellOutcome
from podslice.fleet.scenario.store import TABLES, RunStore
from podslice.fleet.traces.rows import parquet_module
from podslice.host.state.statefile import open_replacement
from podslice.values.cpuset import format_bits
from podslice.values.document import with_header
from podslice.values.errors import InputError

VERSION = 1
"""Version of the tables: it rises when a column is removed or changes its meaning, not for new columns."""
DESCRIPTION = "tables.json"
VERDICTS = ("ran", "pending", "looping", "failed", "preempted")
_BATCH = 65_536
_KEY_COLUMNS = ("cell", "machines", "kubelet", "scheduler", "transform", "seed")


class FleetTableColumn(msgspec.Struct, frozen=True):
    """A column: `integer` fits 64 bits, `decimal` is a whole number that may not. An empty cell is a missing value."""

    name: str
    type: Literal["text", "integer", "number", "decimal"]
    meaning: str


class FleetTable(msgspec.Struct, frozen=True):
    """A table, in a file beside this one."""

    name: str
    file: str
    rows: str
    columns: tuple[FleetTableColumn, ...]


class DescribedTables(msgspec.Struct, frozen=True):
    """The tables of a run, and the version of their form."""

    version: int
    tables: tuple[FleetTable, ...]


class TableForm(NamedTuple):
    """The columns of a table: names, and which of them are text, fractions, or whole numbers of more than 64 bits
    (`wide`); all others are whole numbers."""

    name: str
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    fractions: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    long: bool = True


PODS = TableForm(
    "pods",
    ("cell", "pod", "shape", "arrival_ms", "first_try_ms", "bound_ms", "ended_ms", "node", "attempts", "verdict",
     "reason", "cpus", "numa_nodes"),
    ("cell", "shape", "node", "verdict", "reason", "cpus", "numa_nodes"),
)  # fmt: skip
NODES = TableForm(
    "nodes",
    ("cell", "node", "class", "state", "pods", "cpu_milli", "cpu_milli_room", "memory", "memory_room", "gpu_milli",
     "gpu_milli_room", "assignable_cpus", "stranded_cpus", "expected_stranded_cpus", "blind_stranded_cpus",
     "largest_pod_cpus", "holes", "shared_milli", "shared_cpus"),
    ("cell", "node", "class"),
    ("expected_stranded_cpus", "blind_stranded_cpus"),
)  # fmt: skip
REFUSALS = TableForm(
    "refusals",
    ("cell", "shape", "class", "reason", "attempts", "example_pod"),
    ("cell", "shape", "class", "reason"),
)
SERIES = TableForm("series", ("cell", "measure", "row", "at_ms", "value"), ("cell", "measure"))


def cells_form(summary: Sequence[str]) -> TableForm:
    """Return the form of the table of cells, one row each: figures, and the integers they are made of."""
    names = tuple(measure.name for measure in MEASURES)
    # Products of amounts with milliseconds or pods.
    wide = tuple(name for name in summary if "_x_" in name)
    return TableForm("cells", (*_KEY_COLUMNS, *names, *summary), _KEY_COLUMNS[:-1], names, wide, long=False)


def write_tables(store: RunStore, form: str) -> list[Path]:
    """Write all tables of a run from its cells, and their description. Raises `InputError`."""
    keys = list(store.list_keys())
    if not keys:
        raise InputError("has no cell yet", source=str(store.folder), remedy="podslice fleet run FILE --resume")
    summary = tuple(store.read_page(keys[0])["summary"])
    cells = cells_form(sorted(summary))
    written = [_write(store, cells, _cell_rows(store, keys, sorted(summary)), form)]
    for table, rows in ((SERIES, _series_rows), (REFUSALS, _refusal_rows), (PODS, _pod_rows), (NODES, _node_rows)):
        made = (row for key in keys for row in rows(key, store.read_outcome(key)))
        written.append(_write(store, table, made, form))
    description = msgspec.to_builtins(describe((cells, SERIES, REFUSALS, PODS, NODES), form))
    text = json.dumps(with_header("FleetTables", description), indent=1, ensure_ascii=False) + "\n"
    store.write(f"{TABLES}/{DESCRIPTION}", text.encode())
    return written


def describe(forms: Sequence[TableForm], form: str) -> DescribedTables:
    """Return the description of tables."""
    return DescribedTables(
        VERSION, tuple(FleetTable(one.name, _file(one, form), ROWS[one.name], _columns(one)) for one in forms)
    )


def _columns(table: TableForm) -> tuple[FleetTableColumn, ...]:
    kinds: dict[str, Any] = dict.fromkeys(table.texts, "text") | dict.fromkeys(table.fractions, "number")
    kinds |= dict.fromkeys(table.wide, "decimal")
    return tuple(
        FleetTableColumn(name, kinds.get(name, "integer"), meaning_of(table.name, name)) for name in table.columns
    )


def _file(table: TableForm, form: str) -> str:
    return f"{table.name}.parquet" if form == "parquet" else f"{table.name}.csv{'.gz' if table.long else ''}"


def split_key(key: str) -> tuple[str, str, str, str, int]:
    """Return machines, kubelet, scheduler, transform and seed of a cell's key."""
    machines, kubelet, scheduler, transform, seed = key.split("~")
    return machines, kubelet, scheduler, transform, int(seed.removeprefix("s"))


def _cell_rows(store: RunStore, keys: list[str], summary: list[str]) -> Iterator[tuple[Any, ...]]:
    """Yield figures and integers of each cell."""
    for key in keys:
        outcome = store.read_outcome(key)
        found = figures_of(outcome)
        figures = (None if (value := found.get(one.name)) is None else round(value, 6) for one in MEASURES)
        yield (key, *split_key(key), *figures, *(outcome.result.summary[name] for name in summary))


def _series_rows(key: str, outcome: CellOutcome) -> Iterator[tuple[Any, ...]]:
    """Yield the series of a cell, one measure after the other."""
    series = outcome.result.series
    for name in sorted(series):
        if name != "at_ms":
            for row, (at, value) in enumerate(zip(series["at_ms"], series[name], strict=True)):
                yield key, name, row, at, value


def _refusal_rows(key: str, outcome: CellOutcome) -> Iterator[tuple[Any, ...]]:
    for one in outcome.result.refusals:
        shape, kind = outcome.shapes[one.shape].name, outcome.classes[one.kind].name
        yield key, shape, kind, one.reason, one.attempts, one.example


def _pod_rows(key: str, outcome: CellOutcome) -> Iterator[tuple[Any, ...]]:
    pods, reasons = outcome.result.pods, outcome.result.reasons
    for pod in range(len(outcome.shape)):
        node = pods.node[pod]
        yield (
            key,
            pod,
            outcome.shapes[outcome.shape[pod]].name,
            outcome.arrival[pod],
            _time(pods.first_try, pod),
            _time(pods.bound, pod),
            _time(pods.ended, pod),
            outcome.nodes[node] if node >= 0 else "",
            pods.attempts[pod],
            VERDICTS[pods.verdict[pod]] if 0 <= pods.verdict[pod] < len(VERDICTS) else "",
            reasons[pods.reason[pod]] if pods.reason[pod] >= 0 else "",
            format_bits(pods.cpus[pod]) if pods.cpus else "",
            format_bits(pods.numa[pod]) if pods.numa else "",
        )


def _time(column: array[int], pod: int) -> int | None:
    return None if column[pod] < 0 else column[pod]


def _node_rows(key: str, outcome: CellOutcome) -> Iterator[tuple[Any, ...]]:
    nodes, popular = outcome.result.nodes, max(outcome.result.popular, 1)
    for number, name in enumerate(outcome.nodes):
        kind = outcome.classes[outcome.kind[number]]
        yield (
            key,
            name,
            kind.name,
            nodes.state[number],
            nodes.pods[number],
            nodes.cpu_milli[number],
            kind.cpu,
            nodes.memory[number],
            kind.memory,
            nodes.gpu_milli[number],
            kind.gpu,
            nodes.assignable[number],
            nodes.stranded[number],
            round(nodes.expected[number] / popular, 6),
            round(nodes.blind[number] / popular, 6),
            nodes.largest[number],
            nodes.holes[number],
            nodes.shared_milli[number],
            nodes.shared_cpus[number],
        )


def _write(store: RunStore, table: TableForm, rows: Iterator[tuple[Any, ...]], form: str) -> Path:
    """Write a table and return its path. Raises `InputError`."""
    name = _file(table, form)
    path = store.folder / TABLES / name
    try:
        path.parent.mkdir(exist_ok=True)
        with open_replacement(path) as beside:
            (_write_parquet if form == "parquet" else _write_csv)(beside, table, rows)
    except OSError as error:
        remedy = "the cells are kept; podslice fleet report makes the tables again"
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path), remedy=remedy) from None
    return path


def _write_csv(path: Path, table: TableForm, rows: Iterator[tuple[Any, ...]]) -> None:
    with open(path, "wb") as raw:
        compressed = (
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) if table.long else None
        )
        file = io.TextIOWrapper(compressed or raw, encoding="utf-8", newline="")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(rows)
        file.flush()
        # Detached, or the wrapper would close the files beneath it when it is collected.
        file.detach()
        if compressed is not None:
            compressed.close()


def _write_parquet(path: Path, table: TableForm, rows: Iterator[tuple[Any, ...]]) -> None:
    parquet, arrow = parquet_module(), importlib.import_module("pyarrow")
    kinds = {name: arrow.string() for name in table.texts} | {name: arrow.float64() for name in table.fractions}
    kinds |= {name: arrow.decimal128(38) for name in table.wide}
    about = {"podslice.table": table.name, "podslice.version": str(VERSION)}
    schema = arrow.schema([(name, kinds.get(name, arrow.int64())) for name in table.columns], about)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            columns = [list(column) for column in zip(*batch, strict=True)]
            writer.write_table(arrow.table(columns, schema=schema))
