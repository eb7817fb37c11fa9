"""Tables that are damaged, foreign or too large: one line, exit code 2, and nothing half written."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.values.errors import InputError

ROWS = 400
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def plain_rows() -> list[str]:
    return [f"pod-{n},{1000 + n},1024,0,0,,LS,Running,{n},{n + 500},{n + 1}" for n in range(ROWS)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one trace in each form that this machine writes."""
    folder = tmp_path_factory.mktemp("sound")
    text = "\n".join([HEADER, *plain_rows()]) + "\n"
    (folder / "t.csv").write_text(text)
    (folder / "t.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    names = HEADER.split(",")
    lines = [json.dumps(dict(zip(names, row.split(","), strict=True))) for row in plain_rows()]
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def trace(*words: object) -> tuple[int, str]:
    """`podslice fleet trace`, in this process: exit code, and what it wrote for people."""
    result = CliRunner().invoke(cli, ["fleet", "trace", *map(str, words)])
    if isinstance(result.exception, InputError):  # what `main` writes in a line, with exit code 2
        return 2, f"{result.exception}\n"
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr


def is_line(text: str) -> bool:
    """True for one line."""
    return text.count("\n") == 1 and text.endswith("\n")


def read(path: Path, out: Path) -> tuple[int, str]:
    """Return exit code and messages of `convert` for it; no incomplete file may stay."""
    code, error = trace("convert", path, "--out", out)
    if code:
        assert not out.exists()
        assert [one.name for one in out.parent.iterdir() if one.name != path.name] == []
    out.unlink(missing_ok=True)
    return code, error


def refused(path: Path, out: Path) -> str:
    code, error = read(path, out)
    assert code == 2, error
    assert is_line(error), error
    assert str(path) in error
    return error


def damages(data: bytes) -> dict[str, bytes]:
    """Every way a copy goes wrong."""
    half = len(data) // 2
    return {
        "empty": b"",
        "half": data[:half],
        "without its end": data[:-8],
        "without its begin": data[8:],
        "zeros in it": data[:half] + bytes(512) + data[half + 512 :],
        "all zeros": bytes(len(data)),
        "twice": data + data,
        "another's begin": b"PAR1" + data,
        "a page of a portal": b"<html><body>503 Service Unavailable</body></html>\n",
        "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4,
    }


FORMS = ("t.csv", "t.csv.gz", "t.jsonl")


@pytest.mark.parametrize("form", FORMS)
def test_damaged_texts(sound: Path, tmp_path: Path, form: str) -> None:
    """A text that breaks off is refused in a line; one that is still a table is read."""
    for name, data in damages((sound / form).read_bytes()).items():
        path = tmp_path / form
        path.write_bytes(data)
        code, error = read(path, tmp_path / "out.csv")
        assert code in (0, 1, 2), name
        if code == 2:
            assert is_line(error), f"{name}: {error}"
            assert str(path) in error, f"{name}: {error}"
        if name in ("empty", "all zeros", "a page of a portal", "a picture"):
            assert code == 2, name


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.parquet"])
def test_a_folder_is_no_table(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).mkdir()
    code, error = trace("check", tmp_path / name)
    assert code == 2
    assert is_line(error)
    assert "irectory" in error


class Parquet:
    """Writes Parquet files of any content."""

    def __init__(self) -> None:
        self.arrow: Any = pytest.importorskip("pyarrow")
        self.parquet: Any = pytest.importorskip("pyarrow.parquet")

    def table(self) -> dict[str, list[Any]]:
        rows = [row.split(",") for row in plain_rows()]
        names = HEADER.split(",")
        columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        return {
            name: [int(one) for one in column] if column[0].isdigit() else column for name, column in columns.items()
        }

    def write(self, path: Path, columns: dict[str, Any], **options: Any) -> Path:
        self.parquet.write_table(self.arrow.table(columns), path, **options)
        return path


@pytest.fixture
def parquet() -> Parquet:
    return Parquet()


def test_damaged_parquet(parquet: Parquet, tmp_path: Path) -> None:
    """Whatever happened to its bytes."""
    sound = parquet.write(tmp_path / "sound.parquet", parquet.table(), row_group_size=100).read_bytes()
    folder = tmp_path / "read"
    folder.mkdir()
    path = folder / "t.parquet"
    path.write_bytes(sound)
    assert read(path, folder / "out.csv")[0] == 0
    for name, data in damages(sound).items():
        path.write_bytes(data)
        code, error = read(path, folder / "out.csv")
        if name in ("twice", "another's begin"):  # its end is whole, and tells where the rest is
            assert code in (0, 2), name
        else:
            assert code == 2, name
            assert is_line(error), f"{name}: {error}"
            assert str(path) in error, f"{name}: {error}"


def test_flipped_bits_of_parquet(parquet: Parquet, tmp_path: Path) -> None:
    """A bit at any place: refused in a line, or other values of the same table."""
    sound = parquet.write(tmp_path / "sound.parquet", parquet.table(), row_group_size=100).read_bytes()
    folder = tmp_path / "read"
    folder.mkdir()
    path, drawn = folder / "t.parquet", random.Random(33)
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(drawn.choice((1, 1, 8))):
            data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        path.write_bytes(data)
        code, error = read(path, folder / "out.csv")
        assert code in (0, 1, 2)
        assert code < 2 or is_line(error), error


def _nested(columns: dict[str, Any]) -> None:
    columns["cpu_milli"] = [{"value": {"deep": [one]}} for one in columns["cpu_milli"]]


def _bytes(columns: dict[str, Any]) -> None:
    columns["cpu_milli"] = [b"\xff\xfe"] * ROWS


def _nulls(columns: dict[str, Any]) -> None:
    columns["cpu_milli"] = [None] * ROWS


def _huge(columns: dict[str, Any]) -> None:
    columns["cpu_milli"] = [2**62] * ROWS


def _nan(columns: dict[str, Any]) -> None:
    columns["cpu_milli"] = [float("inf")] * ROWS


def _missing(columns: dict[str, Any]) -> None:
    del columns["cpu_milli"]


@pytest.mark.parametrize("change", [_nested, _bytes, _nulls, _huge, _nan, _missing])
def test_foreign_columns(parquet: Parquet, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A column of another type, or none, is named."""
    columns = parquet.table()
    change(columns)
    path = parquet.write(tmp_path / "t.parquet", columns)
    code, error = read(path, tmp_path / "out.csv")
    assert code in (1, 2), error
    assert "cpu" in error, error


def test_a_schema_of_integers_that_nobody_reads(parquet: Parquet, tmp_path: Path) -> None:
    """A damaged schema makes 128 bits of 64; pyarrow has no such type, and says so by an error of a kind of its own."""
    path = parquet.write(tmp_path / "t.parquet", parquet.table())
    data = path.read_bytes()
    sound = re.search(rb"/////[A-Za-z0-9+/]+=*", data)
    assert sound is not None
    damaged = base64.b64decode(sound[0]).replace(b"\x40\0\0\0", b"\x80\0\0\0")
    path.write_bytes(data.replace(sound[0], base64.b64encode(damaged)))
    assert "64 bits" in refused(path, tmp_path / "out.csv")


def test_odd_shapes_of_parquet(parquet: Parquet, tmp_path: Path) -> None:
    """No row, no column, two columns of a name, more columns than anybody needs."""
    arrow, path = parquet.arrow, tmp_path / "t.parquet"
    names = list(parquet.table())
    twice = arrow.Table.from_arrays([arrow.array([1])] * (len(names) + 1), names=[*names, names[0]])
    wide = arrow.table({f"c{n}": [1] for n in range(2000)})
    for table in (twice, wide, arrow.table({})):
        parquet.parquet.write_table(table, path)
        refused(path, tmp_path / "out.csv")
    parquet.write(path, {name: column[:0] for name, column in parquet.table().items()})
    code, error = read(path, tmp_path / "out.csv")
    assert code < 2 or is_line(error)


@pytest.mark.slow
def test_a_column_that_unpacks_to_more_than_there_is(parquet: Parquet, tmp_path: Path) -> None:
    """Two gigabytes in a file of a few kilobytes, with 1.5 GiB of memory: read in pieces, or refused in a line."""
    path = tmp_path / "t.parquet"
    columns = parquet.table()
    text = "x" * (1 << 20)
    columns = {name: (column * 6)[:2000] for name, column in columns.items()}
    columns["gpu_spec"] = [text] * 2000
    parquet.write(path, columns, compression="zstd")
    assert path.stat().st_size < 1 << 20
    command = [sys.executable, "-m", "podslice", "fleet", "trace", "check", str(path)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29)),
    )
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert is_line(done.stderr), done.stderr
