"""Rows of a trace: CSV, JSON lines or Parquet, gzipped or not, one after the other and within limits.

A trace may be larger than memory and may come from any source: lines are read with a bound on their length, the text
that a small compressed file expands to is counted, and every error has the number of its line.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from podslice.extras import install_extra
from podslice.values.errors import InputError

MAX_LINE = 1 << 20
"""Longest line, in bytes."""
MAX_BYTES = 16 << 30
"""Most text of one trace, in bytes after decompression."""
MOST_COLUMNS = 1024
_DEEPEST = 8
"""Deepest nesting of a JSON cell."""
_BATCH = 65_536
FORMS = ("csv", "jsonl", "parquet")


class Rows(NamedTuple):
    """The column names of a trace and its rows: line number, and cells as text, the number of which may differ from
    that of the columns."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[int, list[str]]]


def form_of(path: str | Path) -> str:
    """Return the form of a file by its name: csv, jsonl or parquet. Raises `InputError`."""
    name = str(path).lower().removesuffix(".gz")
    for form in FORMS:
        if name.endswith(f".{form}"):
            return form
    raise InputError("is not a trace by its name", source=str(path), remedy="traces are .csv, .jsonl (.gz) or .parquet")


@contextmanager
def open_rows(path: Path) -> Iterator[Rows]:
    """Open a file and return its rows. Raises `InputError`, also while they are read."""
    form = form_of(path)
    source = str(path)
    try:
        if form == "parquet":
            yield _parquet(path)
            return
        with open(path, "rb") as raw:
            file: Any = gzip.GzipFile(fileobj=raw) if source.lower().endswith(".gz") else raw
            lines = _lines(file, source)
            yield _csv(lines, source) if form == "csv" else _jsonl(lines, source)
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise InputError(f"is not a whole gzip file: {error}", source=source) from None
        raise InputError(f"cannot be read: {error.strerror or error}", source=source) from None


def _lines(file: BinaryIO, source: str) -> Iterator[str]:
    """Yield the lines of a file as text. Raises `InputError` beyond the limits, and for a truncated gzip file."""
    total, number = 0, 0
    while True:
        try:
            line = file.readline(MAX_LINE + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"is not a whole gzip file: it breaks off after line {number}"
            raise InputError(problem, source=source, remedy="fetch it again") from error
        if not line:
            return
        number += 1
        total += len(line)
        if len(line) > MAX_LINE:
            raise InputError(f"line {number} is longer than {MAX_LINE >> 20} MiB", source=source)
        if total > MAX_BYTES:
            raise InputError(f"holds more than {MAX_BYTES >> 30} GiB of text", source=source, remedy="split it")
        try:
            # Spreadsheet programs begin a file with a byte order mark.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InputError(f"line {number} is not UTF-8 text", source=source) from None


def _csv(lines: Iterator[str], source: str) -> Rows:
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise InputError(f"line 1 is not CSV: {error}", source=source) from None
    if not header or not any(cell.strip() for cell in header):
        raise InputError("is empty", source=source, remedy="its first line names the columns")
    columns = tuple(cell.strip() for cell in header)
    _check_columns(columns, source)
    return Rows(columns, _csv_rows(reader, source))


def _csv_rows(reader: Any, source: str) -> Iterator[tuple[int, list[str]]]:
    try:
        for row in reader:
            if row:
                # A row with quoted line breaks has the number of its last line.
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"line {reader.line_num} is not CSV: {error}", source=source) from None


def _check_columns(columns: tuple[str, ...], source: str) -> None:
    """Raise `InputError` for too many columns, or two with the same name."""
    if len(columns) > MOST_COLUMNS:
        raise InputError(f"has {len(columns)} columns", source=source, remedy=f"at most {MOST_COLUMNS} are read")
    for column, count in Counter(columns).items():
        if count > 1:
            raise InputError(f"has two columns {column[:80]!r}", source=source)


def _jsonl(lines: Iterator[str], source: str) -> Rows:
    """Return the rows of JSON objects. The first object defines the columns; others may leave some out but add none."""
    objects = _objects(lines, source)
    first = next(objects, None)
    if first is None:
        raise InputError("is empty", source=source, remedy="each line is a JSON object")
    columns = tuple(first[1])
    _check_columns(columns, source)

    def rows() -> Iterator[tuple[int, list[str]]]:
        yield first[0], [_text(value) for value in first[1].values()]
        for number, found in objects:
            if not found.keys() <= first[1].keys():
                new = next(key for key in found if key not in first[1])
                raise InputError(f"line {number} column {new}: is not in the first line", source=source)
            yield number, [_text(found.get(column)) for column in columns]

    return Rows(columns, rows())


def _objects(lines: Iterator[str], source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {number} is not JSON: {error}", source=source) from None
        if not isinstance(found, dict) or not found:
            raise InputError(f"line {number} is not a JSON object", source=source)
        for column, value in found.items():
            if not _is_flat(value):
                raise InputError(f"line {number} column {column[:80]}: is nested too deeply", source=source)
        yield number, found


def _is_flat(value: object) -> bool:
    """Whether a cell is nested at most `_DEEPEST` levels, without recursion."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, list | dict)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def _text(value: object) -> str:
    """Return a cell as text: "" for a missing value, lists joined by `|`."""
    if value is None:
        return ""
    # NaN: Parquet writers use it for a missing number.
    if isinstance(value, float) and value != value:
        return ""
    return "|".join(map(_text, value)) if isinstance(value, list) else str(value)


def parquet_module() -> Any:
    """Return pyarrow's module for Parquet. Raises `InputError` where it is not installed."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        remedy = f"{install_extra('fleet-parquet')}, or use .csv.gz"
        raise InputError("Parquet needs pyarrow", remedy=remedy) from None


def _parquet(path: Path) -> Rows:
    source = str(path)
    parquet = parquet_module()
    damages = (ValueError, OSError, OverflowError, importlib.import_module("pyarrow").ArrowException)
    try:
        file = parquet.ParquetFile(path)
        columns = tuple(file.schema_arrow.names)
    except damages as error:
        raise InputError(f"is not Parquet: {_line_of(error)}", source=source) from None
    _check_columns(columns, source)

    def rows() -> Iterator[tuple[int, list[str]]]:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=_BATCH):
                for cells in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    number += 1
                    yield number, [_text(cell) for cell in cells]
        except damages as error:
            raise InputError(f"is damaged after row {number}: {_line_of(error)}", source=source) from None
        finally:
            file.close()

    return Rows(columns, rows())


def _line_of(error: Exception) -> str:
    """Return the first line of an error, or its name where it has no text."""
    return next(iter(str(error).splitlines()), type(error).__name__)
