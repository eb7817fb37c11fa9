"""Traces: pods or nodes of a cluster, row by row, in whole numbers of the same units for every file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from podslice.fleet.traces.columns import TEXTS, Column, Format, amount, factor, resolve_format
from podslice.fleet.traces.rows import Rows, open_rows
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError


class TracePod(NamedTuple):
    """A pod, job or virtual machine of a trace: millicores, bytes, milliseconds. `gpu_milli`: share of each GPU (1000
    is a whole one). `arrival` None: before the trace began; `end` None: after it ended, or unknown."""

    name: str
    cpu: int
    memory: int
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()
    qos: str = ""
    phase: str = ""
    owner: str = ""
    arrival: int | None = None
    end: int | None = None
    scheduled: int | None = None
    max_per_node: int = 0
    priority: int = 0


class TraceNode(NamedTuple):
    """A node of a trace; `memory` None where the trace has none."""

    name: str
    cpu: int
    memory: int | None
    gpus: int = 0
    model: str = ""


class OpenTrace:
    """An open trace, whose rows are read once, as pods or as nodes. Raises `InputError` while it is read.

    `empty` counts empty cells by column among the rows read so far.
    """

    def __init__(self, path: Path, chosen: Format, table: Rows) -> None:
        self.path = path
        self.format = chosen
        self.columns = table.columns
        self.empty: dict[str, int] = {}
        self._rows = table.rows

    def pods(self) -> Iterator[TracePod]:
        """Yield the rows as pods, in the order of the file."""
        self._require_rows("pods")
        return (_pod(cells, line, row) for cells, line, row in self._cells())

    def nodes(self) -> Iterator[TraceNode]:
        """Yield the rows as nodes, in the order of the file."""
        self._require_rows("nodes")
        return (_node(cells, line, row) for cells, line, row in self._cells())

    def problems(self) -> Iterator[InputError | None]:
        """Yield the problem of each row, None where there is none. Ends where the file cannot be read any further."""
        read = _pod if self.format.rows == "pods" else _node
        cells = _Cells(self)
        while True:
            try:
                line, row = next(self._rows)
            except StopIteration:
                return
            # A file that is cut off or damaged has no next row; a row with bad cells has one.
            except InputError as error:
                yield error
                return
            try:
                self._count(line, row)
                read(cells, line, row)
                yield None
            except InputError as error:
                yield error

    def _require_rows(self, rows: str) -> None:
        if self.format.rows != rows:
            raise InputError(f"is a list of {self.format.rows}, not of {rows}", source=str(self.path))

    def _cells(self) -> Iterator[tuple[_Cells, int, list[str]]]:
        cells = _Cells(self)
        for line, row in self._rows:
            self._count(line, row)
            yield cells, line, row

    def _count(self, line: int, row: list[str]) -> None:
        """Count the empty cells of a row. Raises `InputError` for a wrong number of cells."""
        if len(row) != len(self.columns):
            problem = f"line {line} has {len(row)} cells for {len(self.columns)} columns"
            raise InputError(problem, source=str(self.path))
        if "" in row:
            for column, cell in zip(self.columns, row, strict=True):
                if not cell:
                    self.empty[column] = self.empty.get(column, 0) + 1


@contextmanager
def open_trace(
    path: Path, mapping: Mapping[str, Column] | None = None, *, rows: str = "", in_file: bool = False
) -> Iterator[OpenTrace]:
    """Open a trace. Raises `InputError`.

    - `mapping`: columns by meaning, beyond or against those of known formats, written in a scenario (`in_file`) or on
      the command line.
    - `rows`: "pods" or "nodes", "" for as the format says.
    """
    with open_rows(path) as table:
        yield OpenTrace(path, resolve_format(table.columns, mapping or {}, rows, str(path), in_file=in_file), table)


class _Cells:
    """Reads the cells of a row by meaning. A bad one raises `InputError` with its line and column."""

    def __init__(self, trace: OpenTrace) -> None:
        self._source = str(trace.path)
        self._columns = trace.format.columns
        self._places = {meaning: trace.columns.index(column.name) for meaning, column in self._columns.items()}
        self._factors = {one: factor(one, column) for one, column in self._columns.items() if one not in TEXTS}
        self._known: dict[tuple[Decimal, str], int | None] = {}

    def has(self, meaning: str) -> bool:
        """Whether the trace has this column."""
        return meaning in self._places

    def text(self, row: list[str], meaning: str) -> str:
        """Return the text of a cell, "" where the trace has no such column."""
        place = self._places.get(meaning)
        return "" if place is None else row[place].strip()

    def number(self, line: int, row: list[str], meaning: str, *, least: int = 0) -> int | None:
        """Return the amount, None where there is none."""
        place = self._places.get(meaning)
        if place is None:
            return None
        # Traces repeat values: parsed ones are remembered, up to a limit.
        key = self._factors[meaning], row[place]
        try:
            found = self._known[key]
        except KeyError:
            try:
                found = amount(row[place], key[0])
            except ValueError as error:
                raise self.make_error(line, meaning, str(error)) from None
            if len(self._known) < _REMEMBERED:
                self._known[key] = found
        if found is not None and found < least:
            raise self.make_error(line, meaning, f"{abbreviate(row[place])} is less than {least}")
        return found

    def require_number(self, line: int, row: list[str], meaning: str) -> int:
        """Return an amount that must exist."""
        found = self.number(line, row, meaning)
        if found is None:
            raise self.make_error(line, meaning, "is empty")
        return found

    def make_error(self, line: int, meaning: str, problem: str) -> InputError:
        """Return the error of a cell."""
        return InputError(f"line {line} column {self._columns[meaning].name}: {problem}", source=self._source)


_REMEMBERED = 200_000
_WHOLE_GPU = 1000
_ANY = -(1 << 60)


def _pod(cells: _Cells, line: int, row: list[str]) -> TracePod:
    gpus = cells.number(line, row, "gpus") or 0
    share = cells.number(line, row, "gpuMilli")
    if gpus and share is not None and not 0 < share <= _WHOLE_GPU:
        raise cells.make_error(line, "gpuMilli", f"{share} is not a share of one GPU, which is 1 to {_WHOLE_GPU}")
    arrival, end = _times(cells, line, row)
    models = cells.text(row, "models")
    return TracePod(
        name=cells.text(row, "name") or f"line-{line}",
        cpu=cells.require_number(line, row, "cpu"),
        memory=cells.require_number(line, row, "memory") if cells.has("memory") else 0,
        gpus=gpus,
        # A share counts only with GPUs; some traces have one in rows without any.
        gpu_milli=(_WHOLE_GPU if share is None else share) if gpus else 0,
        models=tuple(filter(None, (model.strip() for model in models.split("|")))) if models else (),
        qos=cells.text(row, "qos"),
        phase=cells.text(row, "phase"),
        owner=cells.text(row, "owner"),
        arrival=arrival,
        end=end,
        scheduled=cells.number(line, row, "scheduled", least=_ANY),
        # -1 stands for "no limit" in some traces, which is 0 here.
        max_per_node=max(cells.number(line, row, "maxPerNode", least=-1) or 0, 0),
        priority=cells.number(line, row, "priority", least=_ANY) or 0,
    )


def _times(cells: _Cells, line: int, row: list[str]) -> tuple[int | None, int | None]:
    """Return arrival and end in milliseconds, the end from the duration where there is only that."""
    arrival = cells.number(line, row, "arrival", least=_ANY)
    end, meaning = cells.number(line, row, "end", least=_ANY), "end"
    duration = cells.number(line, row, "duration")
    if duration is not None and end is None:
        # Without an arrival the pod ran when the trace began, at 0.
        end, meaning = (arrival or 0) + duration, "duration"
    if arrival is not None and end is not None and end < arrival:
        raise cells.make_error(line, meaning, "ends before it begins")
    return arrival, end


def _node(cells: _Cells, line: int, row: list[str]) -> TraceNode:
    return TraceNode(
        name=cells.text(row, "name") or f"line-{line}",
        cpu=cells.require_number(line, row, "cpu"),
        memory=cells.number(line, row, "memory"),
        gpus=cells.number(line, row, "gpus") or 0,
        model=cells.text(row, "model"),
    )
