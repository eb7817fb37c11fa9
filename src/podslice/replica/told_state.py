"""A `NodeState` as a value that can be sent, and the state that is made of it on the other side.

Everything that decides later is in it. What can be worked out again is not (`seen`, the managers' view of pods), and
neither is what nobody but the node needs: images, labels, what plugins answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Container, ObjectMeta, Pod, PodAllocation, map_containers
from podslice.config.mixed import admission_of
from podslice.config.policy import PodslicePolicy
from podslice.machine.build import MAX_CPUS
from podslice.node.context import Leftovers
from podslice.node.cpu.state import CPUState
from podslice.node.devices.hints import Coverage
from podslice.node.devices.plugin import AllocateResponse, PluginOptions, SimulatedPlugin
from podslice.node.devices.pool import DevicePool
from podslice.node.devices.records import Held, Records
from podslice.node.devices.state import DeviceState
from podslice.node.memory.state import MemoryState
from podslice.node.resize.events import ResizeCondition
from podslice.node.resize.pending import PendingResize, Waiting
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState, RuntimeContainer
from podslice.node.topology.hint import Hint
from podslice.node.topology.manager import TopologyState
from podslice.scheduling.predicates import OS_LABEL, Seen
from podslice.values.cpuset import Bits, bits_of
from podslice.values.errors import InputError
from podslice.values.tables import ContainerIds

_ANNOTATIONS = ("podslice.io/", "kubernetes.io/config.")
_MOST_DEVICES = 1 << 16
_MOST_POOLS = 1024


class ToldPool(msgspec.Struct, frozen=True, rename="camel"):
    """A `DevicePool`: `ids` by position, the sets as bits of positions, `numa` by position; `plugin` what it offers."""

    ids: tuple[str, ...] = ()
    known: Bits = 0
    with_topology: Bits = 0
    healthy: Bits = 0
    unhealthy: Bits = 0
    registered: bool = False
    plugin: PluginOptions | None = None
    stopped_at: float | None = None
    numa: dict[int, tuple[int, ...]] = {}


ToldRecords = dict[str, dict[str, dict[str, tuple[Bits, dict[int, list[str]]]]]]
"""What containers hold of resources: the devices as bits, and by NUMA id."""


class ToldState(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """All of a `NodeState` that decides; see the module."""

    pods: tuple[Pod, ...] = ()
    statuses: dict[str, dict[str, RuntimeContainer]] = {}
    unmanaged: tuple[str, ...] = ()
    cpu: CPUState = CPUState()
    memory: MemoryState = MemoryState()
    pools: dict[str, ToldPool] = {}
    used: dict[str, Bits] = {}
    records: ToldRecords = {}
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


def told_pod(pod: Pod) -> Pod:
    """A pod as the core reads it; what does not decide is left out."""
    metadata = pod.metadata
    kept = ObjectMeta(
        metadata.name,
        metadata.namespace,
        metadata.uid,
        metadata.generation,
        metadata.creation_timestamp,
        labels=_some(metadata.labels, (OS_LABEL,)),
        annotations=_some(metadata.annotations, _ANNOTATIONS),
    )
    return Pod(map_containers(pod.spec, _without_image), kept, pod.status)


def _some(texts: dict[str, str] | None, prefixes: tuple[str, ...]) -> dict[str, str] | None:
    return {name: text for name, text in (texts or {}).items() if name.startswith(prefixes)} or None


def _without_image(container: Container) -> Container:
    return replace(container, image="", image_pull_policy="")


def told(state: NodeState) -> ToldState:
    """A state, to be sent."""
    device, waiting = state.device, state.resizes
    return ToldState(
        pods=tuple(told_pod(pod.spec) for pod in state.pods.values()),
        statuses=state.statuses,
        unmanaged=tuple(sorted(state.unmanaged)),
        cpu=state.cpu,
        memory=state.memory,
        pools={resource: told_pool(pool) for resource, pool in device.pools.items()},
        used=device.used,
        records=_told_records(device.records),
        reusable=device.reusable,
        running=tuple(sorted(device.running)),
        affinities=state.topology.affinities,
        containers=state.topology.containers,
        resizes=tuple(
            PendingResize(told_pod(one.allocated), told_pod(one.desired), one.since) for one in waiting.pending.values()
        ),
        deferred=tuple(sorted(waiting.deferred)),
        granted=state.granted,
        conditions=state.conditions,
        leftovers=state.leftovers,
        sources_ready=state.sources_ready,
    )


def told_pool(pool: DevicePool) -> ToldPool:
    """A pool, to be sent."""
    return ToldPool(
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


def _told_records(records: Records) -> ToldRecords:
    return {
        uid: {
            name: {resource: (held.devices, held.by_node) for resource, held in held_by.items()}
            for name, held_by in named.items()
        }
        for uid, named in records.items()
    }


class AdmissionPods(Protocol):
    """Makes an `AdmissionPod` of a pod, as `admission_of` does."""

    def __call__(
        self, policy: PodslicePolicy, pod: Pod, gates: Mapping[str, bool], /, *, unmanaged: bool
    ) -> AdmissionPod: ...


def state_from(said: ToldState, rules: NodeRules, admission: AdmissionPods = admission_of) -> NodeState:
    """The state that was told, on a node of these rules. Raises `InputError` for what no node can be in."""
    check_sets(said)
    unmanaged = frozenset(said.unmanaged)
    pods = {
        pod.metadata.uid: admission(rules.policy, pod, rules.gates, unmanaged=pod.metadata.uid in unmanaged)
        for pod in said.pods
    }
    records = _records(said.records)
    pools = {resource: pool_of(one, rules.machine_nodes) for resource, one in said.pools.items()}
    pending = {one.desired.metadata.uid: one for one in said.resizes}
    return NodeState(
        pods=pods,
        statuses=said.statuses,
        unmanaged=unmanaged,
        cpu=said.cpu,
        memory=said.memory,
        device=DeviceState(pools, said.used, records, records, said.reusable, frozenset(said.running)),
        topology=TopologyState(said.affinities, said.containers),
        resizes=Waiting(pending, frozenset(said.deferred)),
        granted=said.granted,
        conditions=said.conditions,
        leftovers=said.leftovers,
        sources_ready=said.sources_ready,
        seen=Seen(),
    )


def pool_of(said: ToldPool, machine_nodes: tuple[int, ...]) -> DevicePool:
    """The pool that was told."""
    on_node: dict[int, Bits] = {}
    for place, nodes in said.numa.items():
        for node in nodes:
            on_node[node] = on_node.get(node, 0) | 1 << place
    return DevicePool(
        machine_nodes,
        Coverage(on_node, machine_nodes),
        said.ids,
        said.known,
        said.with_topology,
        said.healthy,
        said.unhealthy,
        said.registered,
        None if said.plugin is None else plugin_of(said.plugin),
        said.stopped_at,
        {name: place for place, name in enumerate(said.ids)},
        said.numa,
    )


def plugin_of(options: PluginOptions) -> SimulatedPlugin:
    """A plugin that stands for one elsewhere. Which devices that one prefers is not known before it is asked; this one
    prefers the lowest ids."""
    plugin = SimulatedPlugin(preferred_allocation=options.get_preferred_allocation_available)
    plugin.options = options
    return plugin


def _records(said: ToldRecords) -> Records:
    nothing = AllocateResponse()
    return {
        uid: {
            name: {resource: Held(devices, by_node, nothing) for resource, (devices, by_node) in held_by.items()}
            for name, held_by in named.items()
        }
        for uid, named in said.items()
    }


def check_sets(said: ToldState) -> None:
    """Raises `InputError` where a set has members that no machine has; whoever walks through a set ends then."""
    cpu = said.cpu
    sets = [cpu.default, cpu.offline, *cpu.bubbles.values(), *cpu.reusable.values(), *cpu.bubble_loans.values()]
    for tables in (cpu.assignments, cpu.written):
        sets += [one for named in tables.values() for one in named.values()]
    sets += [bits_of(_small(loans)) for named in cpu.loans.values() for loans in named.values()]
    sets += [hint.mask or 0 for named in said.affinities.values() for hint in named.values()]
    sets += [mask for tables in said.memory.reusable.values() for mask in tables]
    if any(not 0 <= one < 1 << MAX_CPUS for one in sets):
        raise InputError("has a set with members that no machine has", path="state.cpu")
    _check_devices(said)


def _small(numbers: Iterable[int]) -> Iterable[int]:
    for one in numbers:
        if not 0 <= one < MAX_CPUS:
            raise InputError(f"CPU {str(one)[:20]} is on no machine", path="state.cpu.loans")
        yield one


def _check_devices(said: ToldState) -> None:
    check_number(len(said.pools))
    bounds = {resource: 1 << len(pool.ids) for resource, pool in said.pools.items()}
    for resource, pool in said.pools.items():
        check_pool(pool, resource)
    held = [*said.used.items(), *(one for named in said.reusable.values() for one in named.items())]
    for named in said.records.values():
        for resources in named.values():
            held += [(resource, devices) for resource, (devices, _) in resources.items()]
    for resource, devices in held:
        if not 0 <= devices < bounds.get(resource, 1):
            raise InputError("has devices that its pool has not", path=f"state.records[{resource[:80]}]")


def check_number(pools: int) -> None:
    """Raises `InputError` for more resources than a node has."""
    if pools > _MOST_POOLS:
        raise InputError(f"has {pools} resources, more than any node", path="state.pools")


def check_pool(pool: ToldPool, resource: str) -> None:
    """Raises `InputError` for a pool whose sets do not fit its ids."""
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
