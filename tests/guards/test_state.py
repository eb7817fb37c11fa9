"""`podslice_guard_state` outside of an agent: shown, checked, left alone by conversions, repaired."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.host.kernel.kernelfiles import SavedStore
from podslice.node.checkpoints.guard_files import SavedFile
from podslice.node.checkpoints.guard_state import decode, encode
from tests.guards.kernel import CGROUPS, irq
from tests.read_documents import read_document

ONE = SavedFile(irq(131), "list", "0-7", ("0-3",))
ELSEWHERE = SavedFile("proc/../etc/passwd", "value", "x", ("y",), "power")


def put(folder: Path, *files: SavedFile) -> Path:
    path = folder / "podslice_guard_state"
    path.write_bytes(encode("boot", files))
    return path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["state", *arguments])
    return result.exit_code, result.output


def test_shown_and_intact(tmp_path: Path) -> None:
    """Alone or in its folder it is told by its name, renamed by its content."""
    path = put(tmp_path, ONE)
    code, text = run("show", str(tmp_path))
    assert (code, "irq" in text, "/proc/irq/131/smp_affinity_list" in text) == (0, True, True)
    document = read_document(run("show", str(path), "-o", "json")[1], "StateFileList")
    (found,) = document["items"]
    assert (found["kind"], found["bootId"], found["files"][0]["written"]) == ("guard", "boot", ["0-3"])
    code, text = run("verify", str(path.rename(tmp_path / "copy")))
    assert code == 0
    assert "ignores the file; podslice starts and gives these files back" in text
    put(tmp_path)
    assert "No file of the kernel is changed." in run("show", str(tmp_path / "podslice_guard_state"))[1]
    assert run("convert", str(tmp_path / "copy"), "--to", "1.35")[0] == 0


def test_what_is_wrong(tmp_path: Path) -> None:
    """Entries that lead elsewhere and second old values are found, nothing is written by them, and a repair drops
    them."""
    path = put(
        tmp_path, ONE, ELSEWHERE, SavedFile(irq(131), "list", "0-3", ("0",)), SavedFile("sys/a", "value", "", ())
    )
    code, text = run("verify", str(path))
    assert (code, text.count("guarded-file"), text.count("guarded-twice")) == (1, 2, 1)
    assert "changes no file of the kernel" in text
    with pytest.raises(ValueError, match="is not a file of the kernel"):
        SavedStore(tmp_path, "boot", cgroups=CGROUPS).load()
    assert run("repair", str(path), "--write")[0] == 0
    assert SavedStore(tmp_path, "boot", cgroups=CGROUPS).load() == {irq(131): ONE}
    assert run("verify", str(path))[0] == 0


def test_cgroups_elsewhere(tmp_path: Path) -> None:
    """Where cgroups are is not known here, so that their files are told by their names; an agent knows it."""
    files = [
        SavedFile(f"mnt/cgroup/{path}", "value", "", ("0",), "units")
        for path in ("system.slice/cpuset.cpus", "a/b/cpuset.cpus.exclusive", "a/b/cpuset.cpus.partition")
    ]
    path = put(tmp_path, *files)
    assert run("verify", str(path))[0] == 0
    assert set(SavedStore(tmp_path, "boot", cgroups="mnt/cgroup").load()) == {one.path for one in files}
    with pytest.raises(ValueError, match="is not below /mnt/cgrou, where cgroups are"):
        SavedStore(tmp_path, "boot", cgroups="mnt/cgrou").load()
    for wrong in ("mnt/cgroup/../a/cpuset.cpus", "mnt/cgroup/cgroup.procs", "/mnt/cgroup/a/cpuset.cpus"):
        assert run("verify", str(put(tmp_path, SavedFile(wrong, "value", "", ("0",), "units"))))[0] == 1
        with pytest.raises(ValueError, match="is not a file of the kernel"):
            SavedStore(tmp_path, "boot", cgroups="mnt/cgroup").load()


def test_nothing_can_be_read(tmp_path: Path) -> None:
    """A repair begins anew and says what that means; a newer file is not taken for this one."""
    path = tmp_path / "podslice_guard_state"
    for text in ("{", json.dumps({"version": 2, "bootId": "", "files": []}), "[" * 3000):
        path.write_text(text)
        assert run("verify", str(path))[0] == 1
        code, said = run("repair", str(path), "--write")
        assert (code, "stay as they are until a reboot" in said) == (0, True)
        assert decode(path.read_bytes()).files == ()
