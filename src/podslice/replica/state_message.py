"""Messages for a `NodeState` and its device pools, and the way back to a state on the receiving side.

A message holds everything that later decisions read. It leaves out what the receiver can compute (`seen`, the managers'
view of pods) and what only the node needs: images, labels, answers of device plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Container, ObjectMeta, Pod, PodAllocation, map_containers
from podslice.config.mixed import make_admission_pod
from podslice.config.policy import PodslicePolicy
from podslice.machine.build import MAX_CPUS
from podslice.node.context import Leftovers
from podslice.node.cpu.state import CPUState
from podslice.node.devices.hints import Coverage
from podslice.node.devices.plugin import AllocateResponse, PluginOptions, SimulatedPlugin
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import HeldDevices, Records
from podslice.node.devices.state import DeviceState
from podslice.node.memory.state import MemoryState
from podslice.node.resize.events import ResizeCondition
from podslice.node.resize.pending import PendingResize, Waiting
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState, RuntimeContainer
from podslice.node.topology.hint import Hint
from podslice.node.topology.manager import TopologyState
from podslice.scheduling.predicates import OS_LABEL, PodsOnNode
from podslice.values.cpuset import Bits, bits_of
from podslice.values.errors import InputError
from podslice.values.releases.release import Release
from podslice.values.tables import ContainerIds

# `kubernetes.io/config.*` are the kubelet's own, by which static and mirror pods are critical (`is_critical`).
_ANNOTATIONS = ("podslice.io/", "kubernetes.io/config.")
_MOST_DEVICES = 1 << 16
_MOST_POOLS = 1024


class PoolMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A `DevicePool`. `ids` are device ids; the sets are bits over positions in `ids`; `numa` has the NUMA ids of a
    device by its position; `plugin` has the options that the device plugin registered."""

    ids: tuple[str, ...] = ()
    known: Bits = 0
    with_topology: Bits = 0
    healthy: Bits = 0
    unhealthy: Bits = 0
    registered: bool = False
    plugin: PluginOptions | None = None
    stopped_at: float | None = None
    numa: dict[int, tuple[int, ...]] = {}


RecordsMessage = dict[str, dict[str, dict[str, tuple[Bits, dict[int, list[str]]]]]]
"""Devices of containers, by pod UID, container and resource: as bits over the pool's positions, and as device ids by
NUMA id."""


class StateMessage(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The fields of a `NodeState` that decisions read."""

    pods: tuple[Pod, ...] = ()
    statuses: dict[str, dict[str, RuntimeContainer]] = {}
    unmanaged: tuple[str, ...] = ()
    cpu: CPUState = CPUState()
    memory: MemoryState = MemoryState()
    pools: dict[str, PoolMessage] = {}
    used: dict[str, Bits] = {}
    records: RecordsMessage = {}
    reusable: dict[str, dict[str, Bits]] = {}
    running: tuple[tuple[str, str], ...] = ()
    affinities: dict[str, dict[str, Hint]] = {}
    containers: ContainerIds = {}
    resizes: tuple[PendingResize, ...] = ()
    deferred: tuple[str, ...] = ()
    granted: dict[str, PodAllocation] = {}
    conditions: dict[str, ResizeCondition] = {}
    leftovers: dict[str, Leftovers] = {}
    sources_ready: bool = True


def strip_pod(pod: Pod) -> Pod:
    """Return the pod without labels, annotations and images that no decision reads."""
    metadata = pod.metadata
    kept = ObjectMeta(
        metadata.name,
        metadata.namespace,
        metadata.uid,
        metadata.generation,
        metadata.creation_timestamp,
        # Read by the kubelet's predicate for the operating system.
        labels=_some(metadata.labels, (OS_LABEL,)),
        annotations=_some(metadata.annotations, _ANNOTATIONS),
    )
    return Pod(map_containers(pod.spec, _without_image), kept, pod.status)


def _some(texts: dict[str, str] | None, prefixes: tuple[str, ...]) -> dict[str, str] | None:
    return {name: text for name, text in (texts or {}).items() if name.startswith(prefixes)} or None


def _without_image(container: Container) -> Container:
    return replace(container, image="", image_pull_policy="")


def state_message(state: NodeState) -> StateMessage:
    """Return the message for a state."""
    device, waiting = state.device, state.resizes
    return StateMessage(
        pods=tuple(strip_pod(pod.spec) for pod in state.pods.values()),
        statuses=state.statuses,
        unmanaged=tuple(sorted(state.unmanaged)),
        cpu=state.cpu,
        memory=state.memory,
        pools={resource: pool_message(pool) for resource, pool in device.pools.items()},
        used=device.used,
        records=_records_message(device.records),
        reusable=device.reusable,
        running=tuple(sorted(device.running)),
        affinities=state.topology.affinities,
        containers=state.topology.containers,
        resizes=tuple(
            PendingResize(strip_pod(one.allocated), strip_pod(one.desired), one.since)
            for one in waiting.pending.values()
        ),
        deferred=tuple(sorted(waiting.deferred)),
        granted=state.granted,
        conditions=state.conditions,
        leftovers=state.leftovers,
        sources_ready=state.sources_ready,
    )


def pool_message(pool: DevicePool) -> PoolMessage:
    """Return the message for a device pool."""
    return PoolMessage(
        pool.ids,
        pool.known,
        pool.with_topology,
        pool.healthy,
        pool.unhealthy,
        pool.registered,
        None if pool.plugin is None else pool.plugin.options,
        pool.stopped_at,
        pool.numa,
    )


def _records_message(records: Records) -> RecordsMessage:
    return {
        uid: {
            name: {resource: (held.devices, held.by_node) for resource, held in held_by.items()}
            for name, held_by in named.items()
        }
        for uid, named in records.items()
    }


class AdmissionPods(Protocol):
    """Builds the managers' view of a pod, as `make_admission_pod` does."""

    def __call__(
        self, policy: PodslicePolicy, pod: Pod, gates: Mapping[str, bool], /, *, unmanaged: bool, release: Release
    ) -> AdmissionPod: ...


def build_state(message: StateMessage, rules: NodeRules, admission: AdmissionPods = make_admission_pod) -> NodeState:
    """Build the state of a message for a node with these rules. Raises `InputError` for a state that no node can
    have."""
    check_sets(message)
    unmanaged = frozenset(message.unmanaged)

    def look(pod: Pod) -> AdmissionPod:
        alone = pod.metadata.uid in unmanaged
        return admission(rules.policy, pod, rules.gates, unmanaged=alone, release=rules.release)

    pods = {pod.metadata.uid: look(pod) for pod in message.pods}
    records = _records(message.records)
    pools = {resource: build_pool(one, rules.machine_nodes) for resource, one in message.pools.items()}
    pending = {one.desired.metadata.uid: one for one in message.resizes}
    return NodeState(
        pods=pods,
        statuses=message.statuses,
        unmanaged=unmanaged,
        cpu=message.cpu,
        memory=message.memory,
        device=DeviceState(pools, message.used, records, records, message.reusable, frozenset(message.running)),
        topology=TopologyState(message.affinities, message.containers),
        resizes=Waiting(pending, frozenset(message.deferred)),
        granted=message.granted,
        conditions=message.conditions,
        leftovers=message.leftovers,
        sources_ready=message.sources_ready,
        seen=PodsOnNode(),
    )


def build_pool(message: PoolMessage, machine_nodes: tuple[int, ...]) -> DevicePool:
    """Build the device pool of a message."""
    on_node: dict[int, Bits] = {}
    for place, nodes in message.numa.items():
        for node in nodes:
            on_node[node] = on_node.get(node, 0) | 1 << place
    return DevicePool(
        machine_nodes,
        Coverage(on_node, machine_nodes),
        message.ids,
        message.known,
        message.with_topology,
        message.healthy,
        message.unhealthy,
        message.registered,
        None if message.plugin is None else build_plugin(message.plugin),
        message.stopped_at,
        {name: place for place, name in enumerate(message.ids)},
        message.numa,
    )


def build_plugin(options: PluginOptions) -> SimulatedPlugin:
    """Build a stand-in for a device plugin of another machine. Its GetPreferredAllocation answers the lowest ids,
    because the real plugin's preference is not known here."""
    plugin = SimulatedPlugin(preferred_allocation=options.get_preferred_allocation_available)
    plugin.options = options
    return plugin


def _records(message: RecordsMessage) -> Records:
    nothing = AllocateResponse()
    return {
        uid: {
            name: {resource: HeldDevices(devices, by_node, nothing) for resource, (devices, by_node) in held_by.items()}
            for name, held_by in named.items()
        }
        for uid, named in message.items()
    }


def check_sets(message: StateMessage) -> None:
    """Raise `InputError` for a set with members that no machine has.

    Sets are integers of any size, so without this bound a sender could make every walk over a set endless.
    """
    cpu = message.cpu
    sets = [cpu.default, cpu.offline, *cpu.pod_cpus.values(), *cpu.reusable.values(), *cpu.pod_loans.values()]
    for tables in (cpu.assignments, cpu.written):
        sets += [one for named in tables.values() for one in named.values()]
    sets += [bits_of(_check_cpus(loans)) for named in cpu.loans.values() for loans in named.values()]
    sets += [hint.mask or 0 for named in message.affinities.values() for hint in named.values()]
    sets += [mask for tables in message.memory.reusable.values() for mask in tables]
    if any(not 0 <= one < 1 << MAX_CPUS for one in sets):
        raise InputError("has a set with members that no machine has", path="state.cpu")
    _check_devices(message)


def _check_cpus(numbers: Iterable[int]) -> Iterable[int]:
    for one in numbers:
        if not 0 <= one < MAX_CPUS:
            raise InputError(f"CPU {str(one)[:20]} is on no machine", path="state.cpu.loans")
        yield one


def _check_devices(message: StateMessage) -> None:
    check_pool_count(len(message.pools))
    bounds = {resource: 1 << len(pool.ids) for resource, pool in message.pools.items()}
    for resource, pool in message.pools.items():
        check_pool(pool, resource)
    held = [*message.used.items(), *(one for named in message.reusable.values() for one in named.items())]
    for named in message.records.values():
        for resources in named.values():
            held += [(resource, devices) for resource, (devices, _) in resources.items()]
    for resource, devices in held:
        if not 0 <= devices < bounds.get(resource, 1):
            raise InputError("has devices that its pool has not", path=f"state.records[{resource[:80]}]")


def check_pool_count(pools: int) -> None:
    """Raise `InputError` for more resources than a node can have."""
    if pools > _MOST_POOLS:
        raise InputError(f"has {pools} resources, more than any node", path="state.pools")


def check_pool(pool: PoolMessage, resource: str) -> None:
    """Raise `InputError` for a pool whose sets do not fit its ids."""
    most, path = 1 << len(pool.ids), f"state.pools[{resource[:80]}]"
    if len(pool.ids) > _MOST_DEVICES or len(set(pool.ids)) != len(pool.ids):
        raise InputError("has too many devices, or one twice", path=path)
    if any(not 0 <= one < most for one in (pool.known, pool.with_topology, pool.healthy, pool.unhealthy)):
        raise InputError("has a set of devices that are not in it", path=path)
    nodes: Mapping[int, tuple[int, ...]] = pool.numa
    if any(not 0 <= place < len(pool.ids) or not _are_nodes(own) for place, own in nodes.items()):
        raise InputError("has a device on a NUMA node that no machine has", path=path)


def _are_nodes(nodes: Iterable[int]) -> bool:
    return all(0 <= node < MAX_CPUS for node in nodes)
