"""A machine from a v1 Node (`kubectl get node NAME -o yaml`): amounts, a few labels, and no topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.evidence.reported import ReportedNode
from podslice.machine.devices import DeviceInventory, inventory_from_data, is_extended_resource_name
from podslice.node_objects.described import (
    HUGE_PAGES,
    SYSTEM_MEMORY,
    DescribedNode,
    Zone,
    build_machine,
    guess_threads,
    parse_page_size,
    parse_quantity,
    parse_whole,
    require_mapping,
)
from podslice.values.assumption import Assumption
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity

_MULTITHREADING = "feature.node.kubernetes.io/cpu-hardware_multithreading"
_NUMA = "feature.node.kubernetes.io/memory-numa"
_POLICIES = "cpuManagerPolicy none and topologyManagerPolicy none, a kubelet's defaults (--set or --config says others)"


def from_node(data: Mapping[Any, Any]) -> DescribedNode:
    """Return the node that a v1 Node describes. Raises `InputError` with the field's path."""
    metadata, status = require_mapping(data.get("metadata"), "metadata"), require_mapping(data.get("status"), "status")
    labels = require_mapping(metadata.get("labels"), "metadata.labels")
    capacity = require_mapping(status.get("capacity"), "status.capacity")
    allocatable = require_mapping(status.get("allocatable"), "status.allocatable") or capacity
    _check_amounts(capacity, allocatable)
    cpus = parse_whole(capacity["cpu"], "status.capacity[cpu]")
    info = require_mapping(status.get("nodeInfo"), "status.nodeInfo")
    architecture = str(info.get("architecture") or labels.get("kubernetes.io/arch") or "")
    system = str(info.get("operatingSystem") or labels.get("kubernetes.io/os") or "linux")
    numa, numa_line = _numa_nodes(labels, cpus)
    try:
        threads, threads_line = guess_threads([cpus], str(labels.get(_MULTITHREADING, "")), architecture=architecture)
    except InputError as error:
        raise error.at(path=f"metadata.labels[{_MULTITHREADING}]") from None
    zones = _zones(capacity, cpus, numa, threads)
    machine = build_machine(
        zones, threads=threads, name=str(metadata.get("name") or ""), architecture=architecture, system=system
    )
    devices = _devices(capacity)
    named = ", ".join(resource.resource for resource in devices.resources)
    assumed = [Assumption("nodes", numa_line)] if numa_line else []
    assumed += [Assumption("cpus", threads_line)] if threads_line else []
    if threads > 1:
        assumed.append(Assumption("cpus", "CPUs numbered as Linux does: first threads of all cores, then second ones"))
    assumed += [Assumption("devices", f"devices of {named} near no NUMA node")] if named else []
    reported = ReportedNode(_amounts(capacity), _amounts(allocatable), str(info.get("kubeletVersion") or ""))
    return DescribedNode(
        machine,
        _config_fields(capacity, allocatable),
        devices,
        tuple(assumed),
        (Assumption("configuration", _POLICIES),),
        reported=reported,
    )


def _amounts(listed: Mapping[str, Any]) -> dict[str, Quantity]:
    names = [name for name in listed if name in ("cpu", "memory") or name.startswith(HUGE_PAGES)]
    return {name: parse_quantity(listed[name], f"status[{name}]") for name in names}


def _check_amounts(capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> None:
    """Raise `InputError` for amounts that are missing or contradict each other."""
    for name in ("cpu", "memory"):
        if name not in capacity:
            raise InputError("is missing", path=f"status.capacity[{name}]", remedy="kubectl get node NAME -o yaml")
    if parse_whole(capacity["cpu"], "status.capacity[cpu]") < 1:
        raise InputError("a node without CPUs", path="status.capacity[cpu]")
    for name, value in allocatable.items():
        left, has = parse_quantity(value, f"status.allocatable[{name}]"), capacity.get(name)
        if has is None or left > parse_quantity(has, f"status.capacity[{name}]"):
            raise InputError(
                f"{value} is more than the capacity, {has if has is not None else 'which has none of it'}",
                path=f"status.allocatable[{name}]", remedy="the two contradict each other",
            )  # fmt: skip


def _numa_nodes(labels: Mapping[str, Any], cpus: int) -> tuple[int, str]:
    label = str(labels.get(_NUMA, ""))
    if label == "true" and cpus > 1:
        # NFD's label says only that there are several, so the smallest such number is assumed.
        return 2, f"two NUMA nodes of equal size, because {_NUMA} says that there are several"
    if label == "false":
        return 1, ""
    return 1, f"one NUMA node, because no label says otherwise ({_NUMA})"


def _zones(capacity: Mapping[str, Any], cpus: int, numa: int, threads: int) -> list[Zone]:
    """Split everything evenly over the NUMA nodes; an indivisible rest goes to the first."""
    memory = parse_whole(capacity["memory"], "status.capacity[memory]")
    pages = dict(_pages(capacity))
    cores = cpus // threads
    return [
        Zone(
            node,
            (cores // numa + (node < cores % numa)) * threads,
            memory // numa + (memory % numa if node == 0 else 0),
            {size: (total // numa + (node < total % numa)) * size * 1024 for size, total in pages.items()},
        )
        for node in range(numa)
    ]


def _pages(capacity: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the number of huge pages by page size in KiB."""
    for name, value in capacity.items():
        if name.startswith(HUGE_PAGES):
            path = f"status.capacity[{name}]"
            size, amount = parse_page_size(name, path), parse_whole(value, path)
            if amount % (size * 1024):
                raise InputError(f"{value} are not whole pages", path=path)
            if amount:
                yield size, amount // (size * 1024)


def _devices(capacity: Mapping[str, Any]) -> DeviceInventory:
    listed = []
    for name, value in capacity.items():
        if is_extended_resource_name(name):
            listed.append({"resource": name, "count": parse_whole(value, f"status.capacity[{name}]")})
    try:
        return inventory_from_data([one for one in listed if one["count"]])
    except InputError as error:
        raise error.at(path="status.capacity") from None


def _config_fields(capacity: Mapping[str, Any], allocatable: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with which a kubelet reports this allocatable."""
    cpu = parse_quantity(capacity["cpu"], "cpu").sub(parse_quantity(allocatable.get("cpu", 0), "cpu"))
    taken = parse_whole(capacity["memory"], "memory") - parse_quantity(allocatable.get("memory", 0), "memory").value()
    # A kubelet subtracts huge pages from allocatable memory, so they are no reservation.
    taken -= sum(size * 1024 * pages for size, pages in _pages(capacity))
    fields: dict[str, Any] = {"systemReserved": {}}
    if cpu.sign() > 0:
        fields["systemReserved"]["cpu"] = str(cpu)
    if taken < SYSTEM_MEMORY:
        # Less is reserved than the default threshold alone takes, so the node must have been started without it.
        fields["evictionHard"] = {}
    # The default threshold takes its part of the difference; only the rest is a reservation.
    reserved = max(0, taken - (SYSTEM_MEMORY if taken >= SYSTEM_MEMORY else 0))
    if reserved:
        fields["systemReserved"]["memory"] = str(reserved)
    if "pods" in capacity:
        fields["maxPods"] = parse_whole(capacity["pods"], "status.capacity[pods]")
    return fields
