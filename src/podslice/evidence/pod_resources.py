"""Answers of a kubelet's PodResources API.

The answers are kept as JSON in the usual form of protocol buffers, which other clients print too:
`{"list": {"podResources": [...]}, "allocatable": {"cpuIds": [...], "devices": [...]}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from podslice.node.devices.checkpoint import PodDevicesEntry, encode
from podslice.values.cpuset import Bits, bits_of
from podslice.values.errors import InputError

POD_RESOURCES_FILE: Final = "podresources.json"
"""The file, beside the state files."""
_CPU = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class _Node(msgspec.Struct):
    ID: _CPU = 0


class _Topology(msgspec.Struct):
    nodes: tuple[_Node, ...] = ()


class _Devices(msgspec.Struct, rename="camel"):
    resource_name: str = ""
    device_ids: tuple[str, ...] = ()
    topology: _Topology = msgspec.field(default_factory=_Topology)


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    cpu_ids: tuple[_CPU, ...] = ()
    devices: tuple[_Devices, ...] = ()


class _Pod(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    containers: tuple[_Container, ...] = ()


class _List(msgspec.Struct, rename="camel"):
    pod_resources: tuple[_Pod, ...] = ()


class _Allocatable(msgspec.Struct, rename="camel"):
    cpu_ids: tuple[_CPU, ...] = ()
    devices: tuple[_Devices, ...] = ()


class _Answers(msgspec.Struct):
    list: _List = msgspec.field(default_factory=_List)
    allocatable: _Allocatable = msgspec.field(default_factory=_Allocatable)


class ReportedContainer(NamedTuple):
    """A container by the kubelet's answer: its `pod` as NAMESPACE/NAME, its exclusive CPUs, and its devices by
    resource."""

    pod: str
    name: str
    cpus: Bits
    devices: Mapping[str, frozenset[str]]


class PodResources(NamedTuple):
    """The kubelet's answers: containers, allocatable CPUs, and the NUMA nodes of all devices by resource and id."""

    containers: tuple[ReportedContainer, ...]
    cpus: Bits
    devices: Mapping[str, Mapping[str, tuple[int, ...]]]


def read_pod_resources(data: bytes, source: str) -> PodResources:
    """Decode the kubelet's answers. Raises `InputError`."""
    try:
        found = msgspec.json.decode(data, type=_Answers, strict=False)  # protocol buffers write large numbers as text
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"is not an answer of PodResources: {error}", source=source, remedy="podslice capture"
        ) from None
    containers = tuple(
        ReportedContainer(f"{pod.namespace}/{pod.name}", one.name, bits_of(one.cpu_ids), _ids(one.devices))
        for pod in found.list.pod_resources
        for one in pod.containers
    )
    places: dict[str, dict[str, tuple[int, ...]]] = {}
    for group in found.allocatable.devices:
        nodes = tuple(node.ID for node in group.topology.nodes)
        places.setdefault(group.resource_name, {}).update(dict.fromkeys(group.device_ids, nodes))
    return PodResources(containers, bits_of(found.allocatable.cpu_ids), places)


def rebuild_device_file(answers: PodResources, uids: Mapping[str, str]) -> bytes:
    """Return the Device Manager's file that the answers describe. `uids` are those of pods by NAMESPACE/NAME; owners
    that it lacks are left out, because the file names pods by UID."""
    entries = []
    for one in answers.containers:
        for resource, ids in sorted(one.devices.items()) if one.pod in uids else ():
            by_node: dict[int, list[str]] = {}
            for name in sorted(ids):
                nodes = answers.devices.get(resource, {}).get(name) or (-1,)
                by_node.setdefault(nodes[0], []).append(name)
            entries.append(PodDevicesEntry(uids[one.pod], one.name, resource, by_node, None))
    return encode(entries, {resource: sorted(ids) for resource, ids in answers.devices.items()})


def _ids(groups: tuple[_Devices, ...]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for group in groups:
        found[group.resource_name] = found.get(group.resource_name, frozenset()) | set(group.device_ids)
    return found
