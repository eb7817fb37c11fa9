"""State files that the tests of this folder share."""

from __future__ import annotations

from podslice.machine.model import Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.devices.checkpoint import PodDevicesEntry
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import Block, MemoryCheckpoint, MemoryTable, NUMANodeState
from podslice.node.memory.ledger import rebuild_from_blocks

GIB = 1 << 30
CONTAINERS = {"id-a": ("pod-a", "app"), "id-b": ("pod-b", "one"), "id-c": ("pod-b", "two"), "id-d": ("pod-b", "three")}


def machine() -> Machine:
    """16 CPUs on two NUMA nodes of 16 GiB."""
    return from_synthetic(f"numa:2(memory={16 * GIB}) core:4 pu:2(indexes=pu)")


def cpu() -> CPUCheckpoint:
    """pod-b has 6 pod CPUs; two of them are used by no container, two by two containers."""
    entries: checkpoint_cpu.Entries = {
        "pod-a": {"app": "4-5"},
        "pod-b": {"one": "6-7", "two": "8-9", "three": "8-9"},
    }
    return CPUCheckpoint("static", "0-3,12-15", entries, {"pod-b": 0b111111 << 6})


def cpu_without_pods() -> CPUCheckpoint:
    """The same without what belongs to pods."""
    entries: checkpoint_cpu.Entries = {"pod-a": {"app": "4-5"}, "pod-b": {"one": "6-7", "two": "8-9"}}
    return CPUCheckpoint("static", "0-3,10-15", entries)


def memory() -> MemoryCheckpoint:
    """pod-b has 8 GiB of node 0 for all its containers; pod-c has both nodes' rest as a group of its own."""
    checkpoint = MemoryCheckpoint("Static")
    checkpoint.machine_state = {
        node: NUMANodeState(0, {"memory": MemoryTable(16 * GIB, GIB, 15 * GIB, 0, 15 * GIB)}, [node]) for node in (0, 1)
    }
    checkpoint.entries = {
        "pod-a": {"app": [Block((1,), "memory", 2 * GIB)]},
        "pod-b": {"one": [Block((0,), "memory", 8 * GIB)], "two": [Block((0,), "memory", 3 * GIB)]},
    }
    checkpoint.pod_entries = {"pod-b": [Block((0,), "memory", 8 * GIB)]}
    checkpoint.machine_state = rebuild_from_blocks(checkpoint.machine_state, checkpoint, pod_level=True)
    return checkpoint


def memory_without_pods() -> MemoryCheckpoint:
    """Containers only."""
    checkpoint = memory()
    assert checkpoint.entries is not None
    assert checkpoint.machine_state is not None
    checkpoint.pod_entries = {}
    checkpoint.entries["pod-b"] = {"one": [Block((0,), "memory", 5 * GIB)], "two": [Block((0,), "memory", 3 * GIB)]}
    checkpoint.machine_state = rebuild_from_blocks(checkpoint.machine_state, checkpoint, pod_level=False)
    return checkpoint


def devices() -> bytes:
    """Two containers with a GPU each."""
    entries = [
        PodDevicesEntry("pod-a", "app", "example.com/gpu", {0: ["g0"], 1: ["g1"]}, b"\x0a\xff"),
        PodDevicesEntry("pod-b", "one", "example.com/gpu", {-1: ["g2"]}, None),
    ]
    return checkpoint_devices.encode(entries, {"example.com/gpu": ["g0", "g1", "g2"], "example.com/nic": []})


def files() -> dict[str, bytes]:
    """An intact file of every version that is written today, by kind and version."""
    return {
        "cpu-v1": checkpoint_cpu.encode(CPUCheckpoint("static", "0-3", entries_v1={"id-a": "4", "id-b": "5-7"}), "v1"),
        "cpu-v2": checkpoint_cpu.encode(cpu_without_pods(), "v2"),
        "cpu-v3": checkpoint_cpu.encode(cpu(), "v3"),
        "cpu-v4": checkpoint_data.CPU_V4.encode(cpu(), ',"originals":{"pod-a":{"app":"4-5"}}'),
        "memory-v1": checkpoint_memory.encode(memory_without_pods(), "v1"),
        "memory-v2": checkpoint_memory.encode(memory(), "v2"),
        "memory-v3": checkpoint_data.MEMORY_V3.encode(memory()),
        "device-v2": devices(),
    }
