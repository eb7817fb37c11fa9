"""`repair`: entries that it keeps and drops, and its remarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podslice.node.checkpoints.releases import Release
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.convert import Rewritten
from podslice.state_files.promises import repair_promises
from podslice.state_files.repair import RunningContainer, repair_cpu
from podslice.state_files.repair_memory import repair_memory
from podslice.values.errors import InputError
from tests.cli.test_state import _run
from tests.state_files import samples

_NODE = NodeFacts(machine=samples.machine())
_FILES = samples.files()


@pytest.mark.parametrize(("name", "target"), [("cpu-v2", Release(36)), ("cpu-v3", Release(36, True))])
def test_intact_files_stay(name: str, target: Release) -> None:
    """There is nothing to repair in a good file."""
    assert repair_cpu(_FILES[name], target, _NODE, None)[::2] == (_FILES[name], [])


@pytest.mark.parametrize(("name", "target"), [("memory-v1", Release(36)), ("memory-v2", Release(36, True))])
def test_intact_memory_files_stay(name: str, target: Release) -> None:
    """There is nothing to repair in a good memory file."""
    assert repair_memory(_FILES[name], target, _NODE, None)[::2] == (_FILES[name], [])


def test_a_truncated_file_keeps_what_is_before_the_fault() -> None:
    """Owners before the cut stay; CPUs of the lost ones go to the shared pool, and both is said."""
    cut = _FILES["cpu-v2"].index(b'"pod-b"')
    repaired = repair_cpu(_FILES["cpu-v2"][:cut], Release(36), _NODE, None)
    assert repaired.data == checkpoint_cpu.encode(CPUCheckpoint("static", "0-3,6-15", {"pod-a": {"app": "4-5"}}), "v2")
    assert repaired.remarks == [
        "the file is broken; what comes before the fault is used",
        "defaultCpuSet: '0-3,10-15' becomes '0-3,6-15': all CPUs without an owner",
    ]


def test_running_pods_go_before_the_file() -> None:
    """Pods that are gone lose their CPUs, containers that run keep theirs whatever the file says."""
    running = {"pod-b": {"one": RunningContainer(3 << 8), "two": RunningContainer(3 << 6), "new": RunningContainer(0)}}
    repaired = repair_cpu(_FILES["cpu-v2"], Release(36), _NODE, running)
    expected = CPUCheckpoint("static", "0-5,10-15", {"pod-b": {"one": "8-9", "two": "6-7"}})
    assert repaired.data == checkpoint_cpu.encode(expected, "v2")
    assert repaired.remarks == [
        "entries.pod-a.app: does not run any more; dropped",
        "entries.pod-b.one: the file says 6-7, the container runs on 8-9; so it is written",
        "entries.pod-b.two: the file says 8-9, the container runs on 6-7; so it is written",
        "defaultCpuSet: '0-3,10-15' becomes '0-5,10-15': all CPUs without an owner",
    ]


def test_nothing_is_owned_twice_afterwards() -> None:
    """Of two pods with the same CPUs the first keeps them; reserved and unknown CPUs are assigned to no pod."""
    entries: checkpoint_cpu.Entries = {"p": {"a": "4-7"}, "q": {"a": "7-8"}, "r": {"a": "0"}, "s": {"a": "99"}}
    data = checkpoint_cpu.encode(CPUCheckpoint("static", "", entries), "v2")
    facts = NodeFacts(machine=samples.machine(), reserved=3)
    repaired = repair_cpu(data, Release(36), facts, None)
    assert checkpoint_cpu.decode(repaired.data, "v2").entries == {"p": {"a": "4-7"}}
    assert [action.partition(": ")[2] for action in repaired.remarks[:3]] == [
        "CPUs 7 belong to another pod; dropped",
        "CPUs 0 are reserved for the system; dropped",
        "CPUs 99 are not on the machine; dropped",
    ]


def test_an_unreadable_file_becomes_an_empty_state() -> None:
    """With nothing to go by, all CPUs are shared."""
    repaired = repair_cpu(b"\x00\x01", Release(36), _NODE, None)
    assert repaired.data == checkpoint_cpu.encode(CPUCheckpoint("static", "0-15"), "v2")
    assert repaired.remarks[0] == "the file is unreadable; nothing of it is used"


def test_memory_that_does_not_fit_is_dropped() -> None:
    """The accounts are computed again; blocks beyond the node's memory go, with a word."""
    checkpoint = samples.memory_without_pods()
    assert checkpoint.entries is not None
    checkpoint.entries["pod-z"] = {"big": [checkpoint_memory.Block((0,), "memory", 12 * samples.GIB)]}
    repaired = repair_memory(checkpoint_memory.encode(checkpoint, "v1"), Release(36), _NODE, None)
    assert repaired.data == _FILES["memory-v1"]
    assert repaired.remarks == ["entries.pod-z.big: 12Gi of memory do not fit; dropped"]


def test_releases_before_1_18_are_refused() -> None:
    """V1 needs container ids, which a repair does not have."""
    with pytest.raises(InputError, match=r"before 1\.18"):
        repair_cpu(_FILES["cpu-v2"], Release(17), _NODE, None)


@pytest.mark.parametrize(
    "data", [b'{"kind":"Pod","metadata":{}}', b"{}", b"[1]", b"null", b'{"data":"{\\"claims\\":[]}","checksum":1}']
)
@pytest.mark.parametrize("repair", [repair_cpu, repair_memory])
def test_json_that_is_another_file(repair: Callable[..., Rewritten], data: bytes) -> None:
    """Whole JSON with nothing of a state file in it is not mended to an empty state: it is another file."""
    with pytest.raises(InputError, match="is JSON and no state file"):
        repair(data, Release(36), _NODE, None)
    with pytest.raises(InputError, match="is JSON and no state file"):
        repair_promises(data, None)


@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state", "podslice_policy_state"])
def test_repair_of_another_file(tmp_path: Path, name: str) -> None:
    """The command refuses it in one line with the file, and writes nothing."""
    file = tmp_path / name
    file.write_text('{"kind":"KubeletConfiguration"}')
    with pytest.raises(InputError, match=f"{file}: is JSON and no state file: it has kind instead"):
        _run("repair", file, "--write")
    assert file.read_text() == '{"kind":"KubeletConfiguration"}'
    assert list(tmp_path.iterdir()) == [file]


def test_repair_of_a_neighbours_file(tmp_path: Path) -> None:
    """An intact memory file under the CPU file's name is refused, not emptied."""
    file = tmp_path / "cpu_manager_state"
    file.write_bytes(_FILES["memory-v1"])
    with pytest.raises(InputError, match=f"{file}: the content is a memory state file"):
        _run("repair", file, "--write")
    assert file.read_bytes() == _FILES["memory-v1"]
