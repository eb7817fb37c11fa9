"""NodeResourceTopology objects (topology.node.k8s.io/v1alpha2) of a machine, or of a node with the pods on it.

Schedulers that look at NUMA nodes read them: one zone for each NUMA node with its resources (`capacity`), the part for
pods (`allocatable`) and the part that no pod owns (`available`). Only exclusive resources reduce what is available:
shared CPUs do not (cluster-integration B.1). `read_nrt.py` reads such objects.
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
from podslice.node_objects.read_nrt import LIMIT, OPTION, VERSIONS
from podslice.values.cpuset import bits_of
from podslice.values.quantity import hugepage_resource

Json = dict[str, Any]
METHOD = "with-exclusive-resources"
"""The fingerprint covers the pods with exclusive resources."""


class ZoneAmount(NamedTuple):
    """One resource of one NUMA node, in whole units: CPUs, bytes, devices."""

    capacity: int
    allocatable: int
    available: int


def machine_topology(machine: Machine) -> Json:
    """Return the object of a node on which nothing runs and nothing is reserved."""
    return _make_object(machine, {node.id: dict(_hardware_amounts(node)) for node in machine.nodes})


def node_topology(node: Node, facts: Mapping[str, str] | None = None, *, name: str = "") -> Json:
    """Return the object of a node as it is; `name` is the node's, where it is not the machine's. `facts` are further
    attributes by name, such as digests of the state."""
    view, devices = node.view, node.state.device
    amounts = {
        numa.id: {
            **dict(_hardware_amounts(numa)),
            **dict(_node_amounts(view, numa)),
            **dict(_device_amounts(devices, numa.id)),
        }
        for numa in view.machine.nodes
    }
    zoned = {resource for own in amounts.values() for resource in own}
    owning = [pod for pod in view.pods.values() if owns_resources(pod, zoned)]
    names = ((pod.spec.metadata.namespace, pod.spec.metadata.name) for pod in owning)
    unplaced = view.assignable & ~view.ownable_next if view.pins_cpus else 0
    return _make_object(view.machine, amounts, name=name, attributes={
        "topologyManagerPolicy": view.config.topology_manager_policy,
        "topologyManagerScope": view.config.topology_manager_scope,
        **dict(_option_attributes(view.config.topology_manager_policy_options or {})),
        "nodeTopologyPodsFingerprint": fingerprint(names),
        "nodeTopologyPodsFingerprintMethod": METHOD,
        "podslice.io/unplaced": str(unplaced.bit_count()),
        **(facts or {}),
    })  # fmt: skip


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """Return 24 characters for a set of pods, by namespace and name (version v001, cluster-integration B.1.1). A pod
    recreated with another specification has the fingerprint of the first."""
    from xxhash import xxh64_hexdigest, xxh64_intdigest

    hashes = sorted(
        xxh64_intdigest(name.encode(), seed=xxh64_intdigest(namespace.encode())) for namespace, name in pods
    )
    return f"pfp0v001{xxh64_hexdigest(b''.join(number.to_bytes(8, 'little') for number in hashes))}"


def owns_resources(pod: AdmissionPod, zoned: Iterable[str]) -> bool:
    """Whether a container of the pod, or the pod as a whole, has exclusive resources: a device of a resource that the
    zones have; in a Guaranteed pod whole CPUs, memory or huge pages. Init containers that end do not count."""
    devices = {resource for resource in zoned if "/" in resource}
    return any(_container_owns(pod, one, devices) for one in pod.containers if not one.plain_init)


def _container_owns(pod: AdmissionPod, container: AdmissionContainer, devices: Iterable[str]) -> bool:
    if any(container.limits.get(resource) for resource in devices):
        return True
    if not pod.guaranteed:
        return False
    memory = any(size for name, size in (container.memory or {}).items() if name == "memory" or _is_pages(name))
    return memory or bool(container.exclusive_cpus)


def _is_pages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


def merge(own: Json, there: Json) -> Json:
    """Return our object with the parts of `there` that others have written: resources that ours does not have, in zones
    of the same name; zones of another type; attributes of other names. Such lists belong to their last writer, so two
    concurrent writers can undo each other."""
    attributes = _append_foreign(own, there, "attributes")
    others = {str(zone.get("name")): zone for zone in _dicts(there, "zones")}
    zones = [_merge_zone(zone, others.pop(zone["name"], {})) for zone in own["zones"]]
    # A zone of type Node that ours lacks is a NUMA node that is gone.
    kept = [zone for zone in others.values() if zone.get("type") != "Node"]
    return {**own, "attributes": attributes, "zones": [*zones, *kept]}


def _merge_zone(own: Json, there: Json) -> Json:
    return {**own, "resources": _append_foreign(own, there, "resources")}


def _append_foreign(own: Json, there: Json, field: str) -> list[Json]:
    """Return our list, followed by others' elements under names that ours does not have."""
    mine = {one["name"] for one in own[field]}
    return [*own[field], *(one for one in _dicts(there, field) if str(one.get("name")) not in mine)]


def _dicts(of: Json, field: str) -> list[Json]:
    found = of.get(field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


# Amounts


def _hardware_amounts(node: NUMANode) -> Iterator[tuple[str, ZoneAmount]]:
    cpus = sum(len(core.threads) for core in node.cores)
    if cpus:
        yield "cpu", ZoneAmount(cpus, cpus, cpus)
    if node.memory:
        yield "memory", ZoneAmount(node.memory, node.memory, node.memory)
    for pages in node.hugepages:
        if pages.bytes:
            yield hugepage_resource(pages.page_size_ki), ZoneAmount(pages.bytes, pages.bytes, pages.bytes)


def _node_amounts(view: NodeView, node: NUMANode) -> Iterator[tuple[str, ZoneAmount]]:
    cpus = view.topology.numa_nodes.get(node.id, 0)
    if cpus:
        own = cpus & ~view.reserved
        # Under policy none no CPU is ever exclusive, so all stay available.
        free = view.ownable_next & own if view.pins_cpus else own
        yield "cpu", ZoneAmount(cpus.bit_count(), own.bit_count(), free.bit_count())
    if view.binds_memory and node.id in view.memory:
        for kind, table in (view.memory[node.id].memory_map or {}).items():
            if table != NO_TABLE:
                yield kind, ZoneAmount(table.total, table.allocatable, table.free)


def _device_amounts(devices: DeviceState, numa: int) -> Iterator[tuple[str, ZoneAmount]]:
    """Yield the devices that plugins have listed near this NUMA node."""
    for resource, pool in devices.pools.items():
        here = pool.known & bits_of(position for position, nodes in pool.numa.items() if numa in nodes)
        healthy = here & pool.healthy
        free = healthy & ~devices.used.get(resource, 0)
        if here:
            yield resource, ZoneAmount(here.bit_count(), healthy.bit_count(), free.bit_count())


# The object


def _make_object(
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
        **({"attributes": _attribute_list(attributes)} if attributes else {}),
        "zones": [
            _make_zone(machine, node, amounts[node.id]) for node in sorted(machine.nodes, key=lambda own: own.id)
        ],
    }


def _make_zone(machine: Machine, node: NUMANode, amounts: Mapping[str, ZoneAmount]) -> Json:
    # Distances are in the kernel's order, by ascending node id.
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


def _attribute_list(attributes: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in attributes.items()]


def _option_attributes(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(options.items()):
        # The exporters' form of an option's name (cluster-integration B.1.1).
        pascal = "".join(part.capitalize() for part in name.split("-"))
        yield LIMIT if name == LIMIT_OPTION else f"{OPTION}{pascal}", value
