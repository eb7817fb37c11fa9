"""A node with memory and nothing else, and pods that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.machine.memory import Block, MachineState, MemoryTable, NUMANodeState
from podslice.machine.model import Core, HugePages, Machine, NUMANode
from podslice.node.context import NodeContext
from podslice.node.memory.manager import MemoryManager
from podslice.node.rules import MemoryRules
from podslice.node.topology.hint import Hint
from podslice.values.cpuset import bits_of
from podslice.values.errors import AdmissionError
from podslice.values.gates import FeatureGates
from podslice.values.quantity import Quantity
from podslice.values.quirks import PODSLICE, Quirks

GiB = 1 << 30
HUGE = "hugepages-1Gi"
STATE = "/var/lib/kubelet/memory_manager_state"
ANYWHERE = Hint(None, True)
POD_LEVEL = {"PodLevelResourceManagers": True}


def near(*nodes: int, preferred: bool = True) -> Hint:
    """An affinity for these NUMA nodes."""
    return Hint(bits_of(nodes), preferred)


def machine(*gib: int, huge: Mapping[int, int] | None = None) -> Machine:
    """One NUMA node with a core per entry, with that many GiB; `huge` adds tables of 1 GiB pages by node."""
    pages = huge or {}
    return Machine(
        tuple(
            NUMANode(
                id=node,
                memory=size * GiB,
                hugepages=(HugePages(1 << 20, pages[node]),) if node in pages else (),
                cores=(Core(socket=0, core=node, threads=(2 * node, 2 * node + 1)),),
            )
            for node, size in enumerate(gib)
        )
    )


def config(reserved: Mapping[int, Mapping[str, str]], gates: Mapping[str, bool] | None = None, **more: Any) -> Any:
    """A configuration with policy Static and these reservations."""
    total = sum(Quantity.parse(limits.get("memory", "0")).value() for limits in reserved.values())
    settings: dict[str, Any] = {
        "memory_manager_policy": "Static",
        "reserved_memory": tuple(MemoryReservation(node, dict(limits)) for node, limits in reserved.items()),
        "system_reserved": {"memory": str(total)},
        "eviction_hard": {},
        "feature_gates": dict(gates or {}),
        **more,
    }
    return KubeletConfig(**settings)


def manager(
    hardware: Machine,
    *,
    quirks: Quirks = PODSLICE,
    gates: Mapping[str, bool] | None = None,
    reserved: Mapping[int, str] | None = None,
    state: bytes | None = None,
    settings: Any = None,
) -> MemoryManager:
    """A started Memory Manager; without `reserved` node 0 keeps 1Gi."""
    settings = settings or config({node: {"memory": text} for node, text in (reserved or {0: "1Gi"}).items()})
    amounts = {name: Quantity.parse(text) for name, text in settings.system_reserved.items()}
    context = NodeContext(FeatureGates.from_overrides(gates or {}), quirks)
    pod_level = context.gates["PodLevelResourceManagers"]
    built = MemoryManager(MemoryRules.of(hardware, settings, amounts, quirks=quirks, pod_level=pod_level), context)
    built.start(state, {}, STATE)
    return built


def restarted(old: MemoryManager) -> MemoryManager:
    """Return a new manager on the old one's file, with its pods active and nothing cleaned up yet."""
    context = NodeContext(old.context.gates, old.context.quirks)
    context.active = old.context.active
    context.sources_ready = False
    fresh = MemoryManager(old.rules, context)
    fresh.start(old.encode(), {}, STATE)
    return fresh


def pod(
    uid: str,
    *app: Mapping[str, str],
    init: tuple[Mapping[str, str], ...] = (),
    sidecars: tuple[Mapping[str, str], ...] = (),
    budget: Mapping[str, str] | None = None,
    gates: Mapping[str, bool] | None = None,
    order: str = "si",
) -> AdmissionPod:
    """A Guaranteed pod: sidecars s0 …, init containers i0 …, app containers c0 … with these amounts and one CPU each.

    Containers without amounts get nothing at all; `order` "is" puts plain init containers first; `budget` is
    `spec.resources`.
    """

    def container(prefix: str, number: int, amounts: Mapping[str, str], **extra: str) -> dict[str, Any]:
        own = {"cpu": "1", **amounts} if amounts else {}
        return {"name": f"{prefix}{number}", "resources": {"requests": own, "limits": own} if own else {}, **extra}

    groups = {
        "s": [container("s", i, own, restartPolicy="Always") for i, own in enumerate(sidecars)],
        "i": [container("i", i, own) for i, own in enumerate(init)],
    }
    spec: dict[str, Any] = {
        "initContainers": [entry for key in order for entry in groups[key]],
        "containers": [container("c", i, own) for i, own in enumerate(app)],
    }
    if budget is not None:
        spec["resources"] = {"requests": dict(budget), "limits": dict(budget)}
    described = pod_from_dict({"metadata": {"name": uid, "uid": uid}, "spec": spec})
    return AdmissionPod.of(described, FeatureGates.from_overrides(gates or {}))


def memory(text: str, **more: str) -> dict[str, str]:
    """Amounts: memory, and huge pages of 1 GiB as `huge`."""
    return {"memory": text, **({HUGE: more["huge"]} if "huge" in more else {})}


def admit(manager: MemoryManager, admission: AdmissionPod, affinity: Hint = ANYWHERE) -> str:
    """Allocate all containers of a pod, or the pod; the text of the refusal, which undoes nothing."""
    manager.context.activate(admission)
    try:
        if admission.managed:
            manager.allocate_pod(admission, affinity)
        else:
            for container in admission.containers:
                manager.allocate(admission, container, affinity)
    except AdmissionError as refusal:
        manager.context.deactivate(admission.uid)
        return refusal.message
    return ""


def remove(manager: MemoryManager, uid: str) -> None:
    """Remove a pod and collect its memory."""
    manager.context.deactivate(uid)
    manager.remove_stale()


def start(manager: MemoryManager, admission: AdmissionPod, name: str) -> None:
    """One container of the pod starts."""
    container = next(c for c in admission.containers if c.name == name)
    manager.add_container(admission, container, f"{admission.uid}/{name}")


def sizes(manager: MemoryManager, uid: str) -> dict[str, dict[str, int]]:
    """GiB by container and resource as recorded."""
    return {
        name: {block.type: block.size / GiB for block in blocks} for name, blocks in manager.assignments[uid].items()
    }


def used(manager: MemoryManager, resource: str = "memory") -> list[float]:
    """Reserved GiB of a resource per NUMA node."""
    return [state.memory_map[resource].reserved / GiB for _, state in sorted(manager.machine_state.items())]


def node_state(
    allocatable: int, free: int, *, assignments: int = 0, cells: tuple[int, ...], **tables: tuple[int, int]
) -> NUMANodeState:
    """The ledgers of one node, in GiB; `tables` are further resources as (allocatable, free)."""
    amounts = {"memory": (allocatable, free), **{name.replace("_", "-"): pair for name, pair in tables.items()}}
    ledger = {name: MemoryTable(a * GiB, 0, a * GiB, (a - f) * GiB, f * GiB) for name, (a, f) in amounts.items()}
    return NUMANodeState(assignments, ledger, list(cells))


def check_ledger(manager: MemoryManager) -> None:
    """Every byte is booked exactly once: per node, per resource, and against what pods and containers hold."""
    held: dict[tuple[int, str], int] = {}
    counted: dict[int, int] = {}
    state: MachineState = manager.machine_state
    for uid, named in manager.assignments.items():
        own = manager.pod_assignments.get(uid)
        blocks: list[Block] = own if own else [block for group in named.values() for block in group]
        for block in blocks:
            nodes = block.numa_affinity or ()
            held[bits_of(nodes), block.type] = held.get((bits_of(nodes), block.type), 0) + block.size
            for node in nodes:
                counted[node] = counted.get(node, 0) + 1
    booked: dict[tuple[int, str], int] = {}
    for node, ledger in state.items():
        assert ledger.number_of_assignments == counted.get(node, 0)
        assert node in (ledger.cells or ())
        for other in ledger.cells or ():
            assert state[other].cells == ledger.cells
        for name, table in (ledger.memory_map or {}).items():
            assert table.free + table.reserved == table.allocatable
            assert 0 <= table.free <= table.allocatable <= table.total
            if table.reserved:
                key = (bits_of(ledger.cells or ()), name)
                booked[key] = booked.get(key, 0) + table.reserved
    assert booked == {key: size for key, size in held.items() if size}
    assert set(manager.pod_assignments) <= set(manager.assignments)


def counted(memory_manager: MemoryManager) -> dict[str, int]:
    """Return the counters of a manager by the text of their series."""
    return {one.text: value for one, value in memory_manager.context.metrics.items()}
