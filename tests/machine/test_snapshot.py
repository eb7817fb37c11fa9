"""Snapshots are read from folders and archives, and damaged or hostile ones are refused in one line."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import msgspec
import pytest

from podslice.host import archive, snapshot
from podslice.host.capture import capture_machine
from podslice.host.discover import discover, discover_host, discover_snapshot
from podslice.host.filesystem import DiskFileSystem, MemoryFileSystem
from podslice.host.snapshot import open_snapshot
from podslice.machine.model import Machine
from podslice.values.errors import InputError

FILES = {
    "sys/devices/system/cpu/online": "0-1\n",
    "sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
    "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
    "sys/devices/system/cpu/cpu1/topology/core_id": "1\n",
    "sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  1024 kB\n",
    "proc/cpuinfo": "model name : Test CPU\n",
}
LINKS = {f"sys/devices/system/node/node0/cpu{c}": f"../../cpu/cpu{c}" for c in (0, 1)}


def write_tar(path: Path, prefix: str = "", extra: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, f"w:{path.suffix[1:]}" if path.suffix in (".xz", ".gz", ".bz2") else "w") as archive:
        for name, text in {**FILES, **(extra or {})}.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, target in LINKS.items():
            member = tarfile.TarInfo(prefix + name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


@pytest.mark.parametrize("name", ["m.tar", "m.tar.xz", "m.tar.gz", "m.tar.bz2"])
@pytest.mark.parametrize("prefix", ["", "./", "node7/"])
def test_archives(tmp_path: Path, name: str, prefix: str) -> None:
    """Any usual compression, with or without a leading folder, gives the machine."""
    machine = discover_snapshot(write_tar(tmp_path / name, prefix))
    assert machine.name == "m"
    assert machine.description == "Test CPU"
    assert [core.threads for core in machine.nodes[0].cores] == [(0,), (1,)]


def test_folder(tmp_path: Path) -> None:
    """A folder gives the same machine as the archive of it."""
    for name, text in FILES.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_text(text)
    for name, target in LINKS.items():
        (tmp_path / "m" / name).symlink_to(target)
    folder = discover_snapshot(tmp_path / "m")
    assert folder.nodes == discover_snapshot(write_tar(tmp_path / "m.tar")).nodes
    assert isinstance(open_snapshot(tmp_path / "m"), DiskFileSystem)


def test_names_that_climb_have_no_effect(tmp_path: Path) -> None:
    """A member whose name leaves the archive writes nothing and is not read from outside."""
    path = write_tar(tmp_path / "m.tar", extra={"../../../tmp/evil": "x", "/etc/evil": "x"})
    fs = open_snapshot(path)
    assert fs.entries("tmp") == []
    assert not (tmp_path.parent / "evil").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m.tar"]


def test_absurd_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives beyond the limits are refused with the limit in the message."""
    path = write_tar(tmp_path / "m.tar")
    monkeypatch.setattr(archive, "MAX_ENTRIES", 3)
    with pytest.raises(InputError, match="absurd size: more than 3 entries"):
        open_snapshot(path)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 100)
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 30)
    with pytest.raises(InputError, match="absurd size"):
        open_snapshot(path)
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 1 << 20)
    monkeypatch.setattr(snapshot, "MAX_FILE_BYTES", 10)
    with pytest.raises(InputError, match=r"meminfo has 26 bytes"):
        open_snapshot(path)


def test_announced_size_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A member that announces terabytes is refused by its header alone."""
    path = tmp_path / "bomb.tar"
    member = tarfile.TarInfo("sys/devices/system/cpu/online")
    member.size = 1 << 43
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT))
    with pytest.raises(InputError, match=r"absurd size|not a readable tar archive"):
        open_snapshot(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(None, "does not exist", id="missing"),
        pytest.param(b"", "not a readable tar archive", id="empty"),
        pytest.param(b"\xfd7zXZ\x00garbage", "not a readable tar archive", id="damaged xz"),
        pytest.param(b"\x1f\x8bgarbage", "not a readable tar archive", id="damaged gzip"),
    ],
)
def test_damaged_archives(tmp_path: Path, content: bytes | None, problem: str) -> None:
    """A file that is not an archive is refused in one line with the path and a remedy."""
    path = tmp_path / "m.tar.xz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        open_snapshot(path)
    assert str(path) in str(caught.value)
    assert "sys/ and proc/" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_archive(tmp_path: Path) -> None:
    """An archive that ends early is refused, not half read."""
    path = write_tar(tmp_path / "m.tar.xz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="not a readable tar archive"):
        open_snapshot(path)


def test_folder_of_something_else(tmp_path: Path) -> None:
    """A folder without sys/ is refused."""
    with pytest.raises(InputError, match="has no sys directory"):
        open_snapshot(tmp_path)


def test_links_are_followed_inside_and_never_loop() -> None:
    """Links in memory resolve relative to their folder, stay inside the root, and a loop is an error."""
    fs = MemoryFileSystem(
        {"a/b/value": "1", "top": "2"},
        {"link": "a/b", "a/up": "../../../top", "a/abs": "/top", "loop": "loop", "a/self": "."},
    )
    assert fs.read("link/value") == "1"
    assert fs.read("a/up") == "2"
    assert fs.read("a/abs") == "2"
    assert fs.entries("link") == ["value"]
    assert fs.read("a/self/self/b/value") == "1"
    with pytest.raises(OSError, match="symbolic links"):
        fs.read("loop")
    with pytest.raises(FileNotFoundError):
        fs.read("a/missing")


def test_this_machine() -> None:
    """The machine the tests run on is discovered with at least one CPU."""
    machine = discover_host()
    assert machine.cpus or machine.warnings


def test_nothing_to_read() -> None:
    """A root without CPUs and nodes is refused."""
    with pytest.raises(InputError, match="has neither"):
        discover(MemoryFileSystem({"proc/meminfo": ""}))


def facts(machine: Machine) -> Machine:
    """The machine without what names it."""
    return msgspec.structs.replace(machine, name="", source="", architecture="")


def test_capture_of_this_machine(tmp_path: Path) -> None:
    """A captured machine read back is the machine it was captured on."""
    count = capture_machine(tmp_path / "m.tar.xz")
    assert count > 0
    machine, again = discover_host(), discover_snapshot(tmp_path / "m.tar.xz")
    assert again.groups == machine.groups
    assert again.caches == machine.caches
    assert [node.cores for node in again.nodes] == [node.cores for node in machine.nodes]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz"])
def test_capture_keeps_names_without_content(tmp_path: Path, suffix: str) -> None:
    """CPUs that are only names (offline, or links of a node) are captured as well."""
    fs = MemoryFileSystem(FILES, LINKS, directories=["sys/devices/system/cpu/cpu7"])
    capture_machine(tmp_path / f"m{suffix}", fs)
    again = discover_snapshot(tmp_path / f"m{suffix}")
    assert facts(again) == facts(discover(fs))
    assert str(again.offline) == "7"


def test_capture_to_nowhere(tmp_path: Path) -> None:
    """A target that cannot be written is refused with its path."""
    with pytest.raises(InputError, match=r"no/m\.tar: cannot be written"):
        capture_machine(tmp_path / "no" / "m.tar", MemoryFileSystem(FILES, LINKS))


@pytest.mark.parametrize("name", ["hwloc-nvidiagpunumanodes", "nri-sample1", "ghw-s390x-snapshot", "libvirt-test6"])
def test_capture_of_captured_machines(tmp_path: Path, shared: Path, name: str) -> None:
    """Capturing a snapshot again loses nothing that is shown."""
    fs = open_snapshot(shared / "topologies" / "snapshots" / f"{name}.tar.xz")
    capture_machine(tmp_path / "m.tar", fs)
    assert facts(discover_snapshot(tmp_path / "m.tar")) == facts(discover(fs))
