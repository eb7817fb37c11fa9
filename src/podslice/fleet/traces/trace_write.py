"""Write traces: the same rows in podslice's own columns, in any form."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from podslice.fleet.traces.rows import form_of, parquet_module
from podslice.fleet.traces.trace import TraceNode, TracePod
from podslice.host.state.statefile import open_replacement
from podslice.values.errors import InputError

POD_COLUMNS = (
    "name", "cpu_milli", "memory_bytes", "gpus", "gpu_milli", "gpu_models", "qos", "owner", "max_per_node",
    "arrival_ms", "end_ms",
)  # fmt: skip
NODE_COLUMNS = ("name", "cpu_milli", "memory_bytes", "gpus", "gpu_model")
_BATCH = 65_536


def write_trace(path: Path, rows: Iterable[TracePod | TraceNode], *, nodes: bool) -> int:
    """Write the rows and return their number. The file is written beside `path` and replaces it when it is whole.
    Raises `InputError`."""
    form = form_of(path)
    columns = NODE_COLUMNS if nodes else POD_COLUMNS
    cells = (_cells(row) for row in rows)
    try:
        with open_replacement(path) as beside:
            if form == "parquet":
                return _write_parquet(beside, columns, cells)
            with _open(beside, compressed=path.name.lower().endswith(".gz")) as file:
                return (_write_csv if form == "csv" else _write_jsonl)(file, columns, cells)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from None


def _cells(row: TracePod | TraceNode) -> tuple[Any, ...]:
    if isinstance(row, TraceNode):
        return (row.name, row.cpu, row.memory, row.gpus, row.model)
    return (
        row.name, row.cpu, row.memory, row.gpus, row.gpu_milli, "|".join(row.models), row.qos, row.owner,
        row.max_per_node, row.arrival, row.end,
    )  # fmt: skip


def _open(path: Path, *, compressed: bool) -> IO[str]:
    """Open a text file; a compressed one has no time stamp, so that equal rows are equal bytes."""
    raw = open(path, "wb")  # noqa: SIM115 - the wrapper closes it
    if not compressed:
        return io.TextIOWrapper(raw, encoding="utf-8", newline="")
    return io.TextIOWrapper(_OwningGzipFile(raw), encoding="utf-8", newline="")


class _OwningGzipFile(gzip.GzipFile):
    """A gzip file that closes its underlying file, which `GzipFile` leaves open."""

    def __init__(self, raw: IO[bytes]) -> None:
        super().__init__(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


def _write_csv(file: IO[str], columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    count = 0
    for row in rows:
        writer.writerow(row)
        count += 1
    return count


def _write_jsonl(file: IO[str], columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
        count += 1
    return count


def _write_parquet(path: Path, columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> int:
    parquet, arrow = parquet_module(), importlib.import_module("pyarrow")
    texts = ("name", "gpu_models", "gpu_model", "qos", "owner")
    schema = arrow.schema([(column, arrow.string() if column in texts else arrow.int64()) for column in columns])
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            count += len(batch)
            writer.write_table(arrow.table([list(column) for column in zip(*batch, strict=True)], schema=schema))
    return count
