"""Atomic writes: whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from podslice.host.state.statefile import RealFiles, back_up, read_state, replace_files, write_atomically
from podslice.values.errors import InputError


class _FailingDisk(RealFiles):
    """Fails at the n-th step; `torn` leaves half of the data behind when writing fails."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.taken: list[str] = []

    def _take(self, name: str) -> bool:
        self.taken.append(name)
        return len(self.taken) == self.step

    def write(self, path: Path, data: bytes) -> None:
        if self._take("write"):
            super().write(path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        super().write(path, data)

    def rename(self, source: Path, target: Path) -> None:
        if self._take("rename"):
            raise OSError(5, "Input/output error")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        if self._take("sync_directory"):
            raise OSError(5, "Input/output error")
        super().sync_directory(path)


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """The file has the new bytes and mode 0600, and no temporary file stays."""
    path = tmp_path / "cpu_manager_state"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert read_state(path) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["cpu_manager_state"]


def test_the_steps_are_in_the_order_that_survives_a_crash(tmp_path: Path) -> None:
    """Data is on disk before the name points to it, and the name before the write counts as done."""
    disk = _FailingDisk(0)
    write_atomically(tmp_path / "state", b"x", disk)
    assert disk.taken == ["write", "rename", "sync_directory"]


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_failed_write_leaves_the_old_or_the_new_file(tmp_path: Path, step: int) -> None:
    """At whichever step a write fails, it says so, and the file is the old one or the whole new one."""
    path = tmp_path / "state"
    write_atomically(path, b"the old content")
    with pytest.raises(OSError, match=r"space|error"):
        write_atomically(path, b"the new content", _FailingDisk(step))
    assert read_state(path) == (b"the new content" if step == 3 else b"the old content")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("step", range(1, 8))
def test_files_that_belong_together_are_replaced_together(tmp_path: Path, step: int) -> None:
    """At whichever step a replacement of two files fails, both are the old ones or both the new ones; between the two
    renames the file with a copy is not there."""
    cpu, policy, copy = tmp_path / "cpu", tmp_path / "policy", tmp_path / "cpu.copy"
    cpu.write_bytes(b"old cpu")
    policy.write_bytes(b"old policy")
    copy.write_bytes(b"older cpu")

    class _Disk(_FailingDisk):
        def rename(self, source: Path, target: Path) -> None:
            assert not (target == policy and cpu.exists())
            super().rename(source, target)

    with pytest.raises(OSError, match=r"space|error"):
        replace_files({policy: b"new policy", cpu: b"new cpu"}, {cpu: copy}, _Disk(step))
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if step == 7:
        assert found == {"cpu": b"new cpu", "policy": b"new policy", "cpu.copy": b"old cpu"}
    else:
        assert found == {"cpu": b"old cpu", "policy": b"old policy", "cpu.copy": b"older cpu"}


@pytest.mark.parametrize("name", ["cpu", "cpu.copy"])
def test_the_only_copy_is_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Where a replacement fails after the old file was removed, on a disk that takes no new content, its copy is put
    back; where it cannot be renamed either, it stays."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cpu, policy = tmp_path / "cpu", tmp_path / "policy"
    cpu.write_bytes(b"old cpu")
    monkeypatch.setattr("podslice.host.state.statefile.write_atomically", fail)
    if name == "cpu.copy":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match=r"space|error"):
        replace_files({policy: b"new policy", cpu: b"new cpu"}, {cpu: tmp_path / "cpu.copy"}, _FailingDisk(5))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"old cpu"}


def test_backups_are_counted_and_never_overwritten(tmp_path: Path) -> None:
    """Each backup gets a name of its own."""
    path = tmp_path / "state"
    names = []
    for content in (b"a", b"b", b"c"):
        path.write_bytes(content)
        names.append(back_up(path))
    assert [name.name for name in names] == ["state.bak", "state.bak.2", "state.bak.3"]
    assert [name.read_bytes() for name in names] == [b"a", b"b", b"c"]


def test_missing_files(tmp_path: Path) -> None:
    """A missing file is not a state to load; what is not a file is an error in one line."""
    assert read_state(tmp_path / "none") is None
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_state(tmp_path)
