"""Archives and descriptions that announce more than any machine has end in one line, whatever they unpack to."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from podslice.host.machine_files import parse_machine
from podslice.values.errors import InputError
from tests.bounded import podslice, refused

pytestmark = pytest.mark.process

FORMS = ("tar", "tar.xz", "tar.gz", "tar.bz2")
ZEROS = bytes(1 << 20)


def open_archive(path: Path) -> IO[Any]:
    """The file to write an archive to, compressed as its name says."""
    if path.suffix == ".xz":
        return lzma.open(path, "wb", preset=0)
    if path.suffix == ".gz":
        return gzip.open(path, "wb", 1)
    return bz2.open(path, "wb") if path.suffix == ".bz2" else path.open("wb")


def header(name: str, size: int, kind: bytes) -> bytes:
    """The header of a member that announces a size."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_extended_headers(tmp_path: Path, form: str, kind: bytes) -> None:
    """A header of 2 GiB is refused by what it announces, in archives of every form."""
    path = tmp_path / f"bomb.{form}"
    with open_archive(path) as file:
        file.write(header("x", 2 << 30, kind))
        for _ in range(80):
            file.write(ZEROS)
    assert "an extended header of 2147483648 bytes" in refused(podslice("topology", "--sysfs", path))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["tar.xz", "tar.gz"])
def test_unpacked_bytes(tmp_path: Path, form: str) -> None:
    """Members that are not used count as well, while they are unpacked."""
    path = tmp_path / f"bomb.{form}"
    with open_archive(path) as file:
        file.write(header("x", 1 << 30, tarfile.REGTYPE))
        for _ in range(300):
            file.write(ZEROS)
    assert "more than 256 MiB unpacked" in refused(podslice("topology", "--from", path))


@pytest.mark.slow
def test_many_members(tmp_path: Path) -> None:
    """Members are counted, and forgotten once they were looked at."""
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(50):
            file.write(header("sys/devices/system/cpu/x", 0, tarfile.REGTYPE) * 1000)
    assert "more than 40000 entries" in refused(podslice("topology", "--sysfs", path, growth=32 << 20))


@pytest.mark.parametrize("compress", [lzma.compress, gzip.compress, bz2.compress])
def test_archives_in_pieces(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """An archive compressed in several pieces, as parallel compressors write them, is read to its end."""
    plain = header("sys/devices/system/cpu", 0, tarfile.DIRTYPE) + header("sys/devices/system/cpu/online", 3, b"0")
    plain += b"0-1" + bytes(509) + bytes(1024)
    path = tmp_path / "m.tar.packed"
    path.write_bytes(compress(plain[:700]) + compress(plain[700:]))
    result = podslice("topology", "--sysfs", path)
    assert "not a readable tar" not in result.err


XML = '<topology version="2.0"><object type="Machine" cpuset="0x1" {0}>{1}<object type="PU" os_index="0" cpuset="0x1"/></object></topology>'  # noqa: E501


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(XML.format("", f'<object type="Core" cpuset="{",".join(["0xffffffff"] * 6000)}"/>'), id="bitmap"),
        pytest.param("<topology>" + '<object type="x">' * 450_000, id="elements"),
        pytest.param('<topology><object type="x" ' + " ".join(f'a{i}=""' for i in range(3_000_001)), id="attributes"),
        pytest.param(XML.format("", f'<object type="Core" os_index="{"9" * 5000}"/>'), id="digits"),
        pytest.param(XML.format("", '<distances latency_base="inf"><latency value="1"/></distances>'), id="infinite"),
        pytest.param("pack:" + "9" * 5000, id="synthetic digits"),
        pytest.param("group:1 " * 1000 + "pu:1", id="synthetic levels"),
        pytest.param("pack:1 " + "[numa] " * 2000 + "pu:1", id="synthetic nodes"),
        pytest.param("pack:1 pu:16384(indexes=" + ":".join(["1*1"] * 20_000) + ")", id="synthetic loops"),
        pytest.param("pack:1(memory=" + "9" * 5000 + ") pu:1", id="synthetic memory"),
        pytest.param("sockets: 16384\ncoresPerNuma: 1", id="short form nodes"),
        pytest.param("sockets: 1\ncoresPerNuma: 1\nmemoryOnlyNodes: [{ids: 0-1048575}]", id="memory-only nodes"),
        pytest.param("sockets: 1\ncoresPerNuma: 1\nmemoryPerNuma: 1e4096", id="short form memory"),
        pytest.param("sockets: 1\ncoresPerNuma: 1\nmemoryPerNuma: '" + "9" * 5000 + "'", id="digits of memory"),
        pytest.param('{"topology": [{"memory": ' + "9" * 5000 + "}]}", id="MachineInfo digits"),
    ],
)
def test_descriptions(text: str) -> None:
    """Numbers, nodes and elements that no machine has are refused in one line of bounded length."""
    with pytest.raises(InputError) as caught:
        parse_machine(text)
    assert len(str(caught.value)) < 2000
    assert "\n" not in str(caught.value)


def test_caches_are_found_in_linear_time() -> None:
    """As many L3 caches as CPUs, the most there may be, take a moment."""
    machine = parse_machine("pack:1 l3:16384 core:1 pu:1")
    assert machine.cpu_count == 16384
