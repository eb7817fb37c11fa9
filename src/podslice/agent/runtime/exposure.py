"""The content of `/run/podslice/resources.json`, the resources of one container (docs/agent.md).

It says nothing about other containers. `assigned` has the names of KEP-6369's downward API; its texts are empty where
the container owns nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from podslice.agent.api_server.timestamps import rfc3339
from podslice.agent.records import Pinning
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, bits_of, format_bits, iter_bits


class Upcoming(NamedTuple):
    """The CPUs that a container will be left with, and the earliest Unix time of that."""

    cpus: Bits
    not_before: float


class NextCPUs(msgspec.Struct, frozen=True, rename="camel"):
    """An upcoming change as it stands in the file."""

    exclusive_cpus: str = msgspec.field(name="exclusiveCPUs")
    not_before: str


class NodeShare(msgspec.Struct, frozen=True):
    """A container's CPUs on one NUMA node, and whether its memory is bound to that node."""

    cpus: str
    memory: bool


class AssignedResources(msgspec.Struct, frozen=True):
    """Exclusive CPUs, and the NUMA nodes to which memory is bound."""

    cpuset: str = ""
    memset: str = ""


class ContainerResources(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The file. CPU sets are in list format. `order`: the exclusive CPUs in the order they were granted, permanent ones
    first. `reserved_siblings`: hyperthreads of its cores that stay idle. `devices`: NUMA nodes by resource and device
    id."""

    cpus: str
    exclusive_cpus: str = msgspec.field(name="exclusiveCPUs")
    shared_cpus: str = msgspec.field(name="sharedCPUs")
    memory_nodes: str
    isolation: str
    assigned: AssignedResources
    reserved_siblings: str = ""
    order: tuple[int, ...] = ()
    original_cpus: str = msgspec.field(default="", name="originalCPUs")
    cpu_class: str = msgspec.field(default="", name="class")
    numa: dict[str, NodeShare] = {}
    devices: dict[str, dict[str, list[int]]] = {}
    next: NextCPUs | None = None


def describe_pinning(placement: Pinning, **more: Any) -> ContainerResources:
    """Return the resources of a container of which only the pinning is known."""
    own = format_bits(placement.exclusive)
    return ContainerResources(
        cpus=placement.cpu_list,
        exclusive_cpus=own,
        shared_cpus=format_bits(placement.shared),
        memory_nodes=placement.mem_list,
        isolation=placement.isolation,
        assigned=AssignedResources(own, placement.mem_list),
        reserved_siblings=format_bits(placement.siblings),
        **more,
    )


def describe_container(
    view: NodeView,
    pod: AdmissionPod,
    container: AdmissionContainer,
    placement: Pinning,
    upcoming: Upcoming | None,
) -> ContainerResources:
    """Return the resources of a container of a pod on the node."""
    uid, name, own = pod.uid, container.name, placement.exclusive
    promised = view.promised(uid, name) & own
    loaned = tuple(cpu for cpu in view.loans.get(uid, {}).get(name, ()) if own >> cpu & 1)
    known = bits_of((*iter_bits(promised), *loaned))
    return describe_pinning(
        placement,
        order=(*iter_bits(promised), *loaned, *iter_bits(own & ~known)),
        original_cpus=format_bits(promised),
        cpu_class="" if view.cpu_classes is None else view.cpu_classes.name_of(own or placement.cpus),
        numa=_numa(view, placement),
        devices=_devices(view, uid, name),
        next=None if upcoming is None else NextCPUs(format_bits(upcoming.cpus), rfc3339(upcoming.not_before)),
    )


def _numa(view: NodeView, placement: Pinning) -> dict[str, NodeShare]:
    cpus = placement.exclusive or placement.cpus
    shares = {node: cpus & of_node for node, of_node in view.topology.numa_nodes.items()}
    return {
        str(node): NodeShare(format_bits(mine), bool(placement.mems >> node & 1))
        for node, mine in sorted(shares.items())
        if mine or placement.mems >> node & 1
    }


def _devices(view: NodeView, uid: str, name: str) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for resource, placed in sorted(view.device_ids.get(uid, {}).get(name, {}).items()):
        nodes: dict[str, list[int]] = {}
        for numa, ids in sorted(placed.items()):
            # A device without a NUMA node is listed under -1 and gets an empty list.
            for one in ids:
                nodes.setdefault(one, []).extend([numa] if numa >= 0 else [])
        found[resource] = dict(sorted(nodes.items()))
    return found
