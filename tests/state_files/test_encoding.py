"""State files byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.machine.devices import HEALTHY, Device
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint, CPUStateEncoder
from podslice.node.cpu.state import CPUState
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.devices.checkpoint import DeviceCheckpoint, PodDevicesEntry
from podslice.node.devices.plugin import AllocateResponse
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import DeviceStateEncoder, HeldDevices, Records, entries_of
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import (
    Block,
    MemoryCheckpoint,
    MemoryStateEncoder,
    MemoryTable,
    NUMANodeState,
)
from podslice.values.cpuset import format_bits
from podslice.values.go.godump import Checksum, data_checksum, fnv1a
from tests.state_files import samples

_CPU = {
    "kep-4540": ("v2", CPUCheckpoint("static", "0-63"), 1058907510),
    "kep-4540-strict": ("v2", CPUCheckpoint("static", "2-15,17-31,34-47,49-63"), 4141502832),
    "none": ("v2", CPUCheckpoint("none", ""), 1353318690),
    "quotes": (
        "v2",
        CPUCheckpoint("static", "0-3", {"podA": {'c "x"': "4"}, "podB": {"c1": "5", "c2": "6"}}),
        2342479628,
    ),
    "v3": ("v3", CPUCheckpoint("static", "0-63"), 861680244),
    "v3-pods": (
        "v3",
        CPUCheckpoint("static", "0-3", {"podA": {"c1": "4"}}, {"podA": 1 << 4 | 1 << 5 | 3 << 9 | 1 << 100}),
        1008957044,
    ),
    "v1": ("v1", CPUCheckpoint("static", "0-3", entries_v1={"cid1": "4", "cid2": "5"}), 2378413449),
}


@pytest.mark.parametrize(("version", "checkpoint", "checksum"), _CPU.values(), ids=list(_CPU))
def test_cpu_files_have_the_checksums_of_the_specification(
    version: str, checkpoint: CPUCheckpoint, checksum: int
) -> None:
    """The worked examples (cpu-topology 8.4), and each file reads back as it was."""
    data = checkpoint_cpu.encode(checkpoint, version)
    assert data.endswith(f'"checksum":{checksum}}}'.encode())
    again = checkpoint_cpu.decode(data, version)
    checkpoint_cpu.verify(again, version, pod_level=version == "v3")
    again.checksum = 0
    assert again == checkpoint


def _full() -> MemoryCheckpoint:
    simple = {"memory": MemoryTable(2048, 512, 1536, 512, 1024), "hugepages-1Gi": MemoryTable(1, 2, 3, 4, 5)}
    small = Block((0,), "memory", 512)
    return MemoryCheckpoint(
        "Static",
        {0: NUMANodeState(2, simple, [0]), 2: NUMANodeState(0, None, None), 10: NUMANodeState(0, {}, [10, 2])},
        {"pod-a": {'x"y': [Block((0, 1), "hugepages-2Mi", (1 << 64) - 1)]}, "pod-b": {"c1": [], "c2": [small]}},
        {"pod-b": [small], "pod-c": None},
    )


@pytest.mark.parametrize(
    ("checkpoint", "v1", "v2"),
    [
        pytest.param(MemoryCheckpoint("Static"), 3940083781, 3708929156, id="empty"),
        pytest.param(_full(), 3662944605, 1570524753, id="full"),
    ],
)
def test_memory_files_have_the_checksums_of_the_specification(checkpoint: MemoryCheckpoint, v1: int, v2: int) -> None:
    """The worked examples (memory-device 1.13.1), and each file reads back as it was."""
    for version, checksum in (("v1", v1), ("v2", v2)):
        data = checkpoint_memory.encode(checkpoint, version)
        assert data.endswith(f'"checksum":{checksum}}}'.encode())
        checkpoint_memory.verify(checkpoint_memory.decode(data, version), version, pod_level=version == "v2")
    again = checkpoint_memory.decode(checkpoint_memory.encode(checkpoint, "v2"))
    again.checksum = 0
    assert again == checkpoint


def test_absent_maps_are_hashed_as_nil() -> None:
    """The example with nothing but a policy: every map prints as `<nil>`, not as an empty map."""
    nothing = MemoryCheckpoint("Static", None, None, None)
    checksums = [fnv1a(checkpoint_memory.dump_text(nothing, version)) for version in ("v1", "v2")]
    assert checksums == [2701266525, 2266911843]


_GPU = "vendor.com/gpu"
_DEVICES = {
    "example": (
        [PodDevicesEntry("uid1", "c1", _GPU, {-1: ["x"], 0: ["g0", "g1"], 2: ["y"], 10: ["z"]}, bytes([10, 255]))],
        {"a.b/c": [], _GPU: ["g0", "g1"]},
        879384381,
    ),
    "nothing": (None, {}, 3467439661),
    "null-list": ([], {"r/a": None}, 178582127),
    "absent-parts": (
        [PodDevicesEntry("u", "c", "r/a", {}, None), PodDevicesEntry("u", "c", "r/b", None, b"")],
        {},
        1902674941,
    ),
}


@pytest.mark.parametrize(("entries", "registered", "checksum"), _DEVICES.values(), ids=list(_DEVICES))
def test_device_files_have_the_checksums_of_the_specification(
    entries: list[PodDevicesEntry] | None, registered: dict[str, list[str] | None], checksum: int
) -> None:
    """The worked examples (memory-device 2.11), and each file reads back as it was."""
    loaded = checkpoint_devices.load(checkpoint_devices.encode(entries, registered))
    assert loaded == DeviceCheckpoint(entries, registered, checksum)


def test_v4_repeats_v2_and_keeps_what_it_does_not_know() -> None:
    """Only `data` counts in V4; older kubelets find an intact V2 file; members of later releases stay."""
    data = checkpoint_data.CPU_V4.encode(samples.cpu(), ',"originals":{"p":1}')
    assert data.startswith(b'{"policyName":"static","defaultCpuSet":"0-3,12-15","entries":{')
    older = checkpoint_cpu.encode(samples.cpu(), "v2").removesuffix(b"}")
    assert data.startswith(older + b',"data":"{\\"policyName\\"')
    assert checkpoint_data.CPU_V4.decode(data) == (samples.cpu(), ',"originals":{"p":1}')
    assert checkpoint_data.CPU_V4.load(data, pod_level=True) == samples.cpu()
    assert checkpoint_data.CPU_V4.load(data, pod_level=False).pod_entries == {}


@pytest.mark.parametrize(
    ("text", "checksum"),
    [
        ('{"policyName":"none","defaultCPUSet":"4-6"}', 657950972),
        ('{"policyName":"static","defaultCPUSet":"7-9","entries":{"pod":{"container1":"4-6","container2":"1-3"}}}',
         1420829534),
        ('{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},'
         '"podEntries":{"pod":{"cpuSet":"4-10"}}}', 2328898362),
    ],
    ids=["none", "static", "pods"],
)  # fmt: skip
def test_data_checksums_of_the_specification(text: str, checksum: int) -> None:
    """The worked examples (cpu-topology 8.7)."""
    assert data_checksum(text) == checksum


@given(st.lists(st.lists(st.text("abé\U0001f600 []:0123", max_size=12), max_size=6), max_size=30))
def test_checksums_with_tables_are_fnv1a(texts: list[list[str]]) -> None:
    """However often a piece comes, and wherever, the checksum is that of the joined text."""
    checksum = Checksum(capacity=20)
    for pieces in texts:
        for _ in range(10):
            assert checksum.of(pieces) == fnv1a("".join(pieces))


_CHANGE = st.tuples(
    st.sampled_from(["assign", "unassign", "default", "bubble", "unbubble"]),
    st.sampled_from(["p1", "p2", "p<3>", "q"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 1 << 70),
)


@given(st.lists(_CHANGE, max_size=25), st.sampled_from(["v2", "v3"]))
def test_the_remembering_cpu_encoder_writes_the_same_bytes(
    changes: list[tuple[str, str, str, int]], version: str
) -> None:
    """After every change, the encoder that remembers pods writes what a new one writes."""
    state, encoder = CPUState(), CPUStateEncoder()
    for what, pod, container, cpus in changes:
        if what == "assign":
            state = state.assign(pod, container, cpus)
        elif what == "unassign":
            state = state.unassign(pod, container)
        elif what == "default":
            state = state.with_default(cpus)
        elif what == "bubble":
            state = state.assign_pod(pod, cpus)
        elif pod in state.pod_cpus:
            state = state.free_pod_cpus(pod)
        checkpoint = _checkpoint(state, "static")
        assert encoder.encode(state, "static", version) == checkpoint_cpu.encode(checkpoint, version)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 1 << 40)), max_size=25))
def test_the_remembering_memory_encoder_writes_the_same_bytes(changes: list[tuple[int, str, int]]) -> None:
    """Ledgers and blocks that are replaced are noticed."""
    machine: dict[int, NUMANodeState] = {}
    entries: dict[str, dict[str, list[Block]]] = {}
    pods: dict[str, list[Block]] = {}
    encoders = MemoryStateEncoder(), MemoryStateEncoder()
    for node, name, size in changes:
        known = machine.get(node, NUMANodeState(0, {}, []))
        tables = {**(known.memory_map or {}), name: MemoryTable(1 << 41, 0, 1 << 41, 0, size)}
        machine[node] = NUMANodeState(size % 7, tables, [*(known.cells or ()), node])
        entries[name] = {name: [*entries.get(name, {}).get(name, ()), Block((node,), "memory", size)]}
        pods[name] = [Block((node,), "memory", size)]
        for version, encoder in zip(("v1", "v2"), encoders, strict=True):
            found = encoder.encode("Static", machine, entries, pods if version == "v2" else None)
            checkpoint = MemoryCheckpoint("Static", dict(machine), dict(entries), dict(pods))
            assert found == checkpoint_memory.encode(checkpoint, version)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x/gpu", "x/<nic>"]), st.integers(0, 15)), max_size=25)
)
@pytest.mark.slow
def test_the_remembering_device_encoder_writes_the_same_bytes(changes: list[tuple[str, str, int]]) -> None:
    """After every change of records and health, the encoder writes what a new one and the plain function write."""
    records: Records = {}
    encoder = DeviceStateEncoder()
    pools: dict[str, DevicePool] = {}
    for uid, resource, bits in changes:
        pool = pools.get(resource) or DevicePool.on((0, 1))
        listed = [Device(f"dev-{i}<", (i % 2,), HEALTHY if bits >> i & 1 else "Unhealthy") for i in range(4)]
        pool = pools[resource] = pool.with_devices(listed)
        if bits == 15:
            records.pop(uid, None)
        else:
            response = AllocateResponse(envs={"DEVICES": str(bits)} if bits % 2 else {})
            records.setdefault(uid, {}).setdefault("app", {})[resource] = HeldDevices(
                bits, pool.by_node(pool.names(bits)), response
            )
        found = encoder.encode(records, {name: (one, one.healthy) for name, one in pools.items()})
        entries = [PodDevicesEntry(*entry) for entry in entries_of(records)]
        registered = {name: one.names(one.healthy) for name, one in pools.items()}
        assert found == checkpoint_devices.encode(entries or None, registered)


def _checkpoint(state: CPUState, policy_name: str) -> CPUCheckpoint:
    """A checkpoint of a live state."""
    return CPUCheckpoint(
        policy_name=policy_name,
        default_cpuset=format_bits(state.default),
        entries={
            pod: {name: format_bits(cpus) for name, cpus in containers.items()}
            for pod, containers in state.assignments.items()
        },
        pod_entries=dict(state.pod_cpus),
    )
