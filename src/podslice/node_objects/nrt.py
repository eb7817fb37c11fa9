"""NodeResourceTopology objects (topology.node.k8s.io/v1alpha2) of a machine, or of a node with the pods on it.

Schedulers that look at NUMA nodes read them: one zone for each NUMA node with what it has (`capacity`), what of it is
for pods (`allocatable`) and what no pod owns (`available`). Only what belongs to somebody alone makes less available:
CPUs that are shared do not (cluster-integration B.1). `noderesourcetopology.py` reads such objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.config.policy_options import LIMIT_OPTION
from podslice.machine.memory import NO_TABLE
from podslice.machine.model import Machine, NUMANode
from podslice.node.devices.state import DeviceState
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.node_objects.noderesourcetopology import LIMIT, OPTION, VERSIONS
from podslice.values.cpuset import bits_of
from podslice.values.quantity import hugepage_resource

Json = dict[str, Any]
METHOD = "with-exclusive-resources"
"""The fingerprint is of the pods that own something."""


class ZoneAmount(NamedTuple):
    """Of one resource on one NUMA node, in whole units: CPUs, bytes, devices."""

    capacity: int
    allocatable: int
    available: int


def machine_topology(machine: Machine) -> Json:
    """The object of a node on which nothing runs and nothing is reserved."""
    return _object(machine, {node.id: dict(_hardware(node)) for node in machine.nodes})


def node_topology(node: Node, facts: Mapping[str, str] | None = None, *, name: str = "") -> Json:
    """The object of a node as it is; `name` is the node's, where it is not the machine's. `facts` are further
    attributes by name, such as digests of the state."""
    view, devices = node.view, node.state.device
    amounts = {
        numa.id: {**dict(_hardware(numa)), **dict(_of_node(view, numa)), **dict(_devices(devices, numa.id))}
        for numa in view.machine.nodes
    }
    zoned = {resource for own in amounts.values() for resource in own}
    owning = [pod for pod in view.pods.values() if owns(pod, zoned)]
    names = ((pod.spec.metadata.namespace, pod.spec.metadata.name) for pod in owning)
    unplaced = view.assignable & ~view.ownable_next if view.pins_cpus else 0
    return _object(view.machine, amounts, name=name, attributes={
        "topologyManagerPolicy": view.config.topology_manager_policy,
        "topologyManagerScope": view.config.topology_manager_scope,
        **dict(_options(view.config.topology_manager_policy_options or {})),
        "nodeTopologyPodsFingerprint": fingerprint(names),
        "nodeTopologyPodsFingerprintMethod": METHOD,
        "podslice.io/unplaced": str(unplaced.bit_count()),
        **(facts or {}),
    })  # fmt: skip


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """A set of pods, by namespace and name, as 24 characters (version v001, cluster-integration B.1.1). A pod that was
    made again with another specification cannot be told from the first."""
    from xxhash import xxh64_hexdigest, xxh64_intdigest

    hashes = sorted(
        xxh64_intdigest(name.encode(), seed=xxh64_intdigest(namespace.encode())) for namespace, name in pods
    )
    return f"pfp0v001{xxh64_hexdigest(b''.join(number.to_bytes(8, 'little') for number in hashes))}"


def owns(pod: AdmissionPod, zoned: Iterable[str]) -> bool:
    """A container of the pod, or the pod as a whole, has something for itself: a device of a resource that the zones
    have; in a Guaranteed pod whole CPUs, memory or huge pages. Init containers that end do not count."""
    devices = {resource for resource in zoned if "/" in resource}
    return any(_owns(pod, one, devices) for one in pod.containers if not one.plain_init)


def _owns(pod: AdmissionPod, container: AdmissionContainer, devices: Iterable[str]) -> bool:
    if any(container.limits.get(resource) for resource in devices):
        return True
    if not pod.guaranteed:
        return False
    memory = any(size for name, size in (container.memory or {}).items() if name == "memory" or _is_pages(name))
    return memory or bool(container.exclusive_cpus)


def _is_pages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


def merged(own: Json, there: Json) -> Json:
    """The object with what others have written into `there`: resources that ours does not have, in zones of the same
    name; zones of another type; attributes of other names. Lists of such objects belong to whoever writes them last, so
    two writers at once can undo each other."""
    attributes = _beside(own, there, "attributes")
    others = {str(zone.get("name")): zone for zone in _dicts(there, "zones")}
    zones = [_merged_zone(zone, others.pop(zone["name"], {})) for zone in own["zones"]]
    kept = [zone for zone in others.values() if zone.get("type") != "Node"]
    return {**own, "attributes": attributes, "zones": [*zones, *kept]}


def _merged_zone(own: Json, there: Json) -> Json:
    return {**own, "resources": _beside(own, there, "resources")}


def _beside(own: Json, there: Json, field: str) -> list[Json]:
    """A list of ours, and behind it what others have in theirs under names that ours does not have."""
    mine = {one["name"] for one in own[field]}
    return [*own[field], *(one for one in _dicts(there, field) if str(one.get("name")) not in mine)]


def _dicts(of: Json, field: str) -> list[Json]:
    found = of.get(field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


# Amounts


def _hardware(node: NUMANode) -> Iterator[tuple[str, ZoneAmount]]:
    cpus = sum(len(core.threads) for core in node.cores)
    if cpus:
        yield "cpu", ZoneAmount(cpus, cpus, cpus)
    if node.memory:
        yield "memory", ZoneAmount(node.memory, node.memory, node.memory)
    for pages in node.hugepages:
        if pages.bytes:
            yield hugepage_resource(pages.page_size_ki), ZoneAmount(pages.bytes, pages.bytes, pages.bytes)


def _of_node(view: NodeView, node: NUMANode) -> Iterator[tuple[str, ZoneAmount]]:
    cpus = view.topology.numa_nodes.get(node.id, 0)
    if cpus:
        own = cpus & ~view.reserved
        free = view.ownable_next & own if view.pins_cpus else own
        yield "cpu", ZoneAmount(cpus.bit_count(), own.bit_count(), free.bit_count())
    if view.binds_memory and node.id in view.memory:
        for kind, table in (view.memory[node.id].memory_map or {}).items():
            if table != NO_TABLE:
                yield kind, ZoneAmount(table.total, table.allocatable, table.free)


def _devices(devices: DeviceState, numa: int) -> Iterator[tuple[str, ZoneAmount]]:
    """Those that plugins have listed near this NUMA node."""
    for resource, pool in devices.pools.items():
        here = pool.known & bits_of(position for position, nodes in pool.numa.items() if numa in nodes)
        healthy = here & pool.healthy
        free = healthy & ~devices.used.get(resource, 0)
        if here:
            yield resource, ZoneAmount(here.bit_count(), healthy.bit_count(), free.bit_count())


# The object


def _object(
    machine: Machine,
    amounts: Mapping[int, Mapping[str, ZoneAmount]],
    *,
    attributes: Mapping[str, str] = MappingProxyType({}),
    name: str = "",
) -> Json:
    return {
        "apiVersion": VERSIONS[-1],
        "kind": "NodeResourceTopology",
        "metadata": {"name": name or machine.name or "machine"},
        **({"attributes": _named(attributes)} if attributes else {}),
        "zones": [_zone(machine, node, amounts[node.id]) for node in sorted(machine.nodes, key=lambda own: own.id)],
    }


def _zone(machine: Machine, node: NUMANode, amounts: Mapping[str, ZoneAmount]) -> Json:
    others = sorted(one.id for one in machine.nodes)
    costs = zip(others, node.distances or (), strict=False)
    return {
        "name": f"node-{node.id}",
        "type": "Node",
        **({"costs": [{"name": f"node-{other}", "value": cost} for other, cost in costs]} if node.distances else {}),
        "resources": [
            {"name": name, **{field: str(number) for field, number in amount._asdict().items()}}
            for name, amount in sorted(amounts.items())
        ],
    }


def _named(attributes: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in attributes.items()]


def _options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(options.items()):
        pascal = "".join(part.capitalize() for part in name.split("-"))
        yield LIMIT if name == LIMIT_OPTION else f"{OPTION}{pascal}", value
