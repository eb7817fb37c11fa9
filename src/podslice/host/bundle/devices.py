"""The plugin devices of a bundle with their NUMA nodes.

The kubelet's PodResources API has them all. Without its answers no file of a node does: the Device Manager's state file
has the ids of all devices and the NUMA nodes of those that are held, PCI functions have NUMA nodes and no ids, a Node
object has numbers. Together they say how many free devices are on which NUMA node; which of them is where makes no
difference to a decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.evidence.pod_resources import read_pod_resources
from podslice.host.discover import discover
from podslice.host.pci import group_by_resource, read_pci_functions
from podslice.host.snapshot import open_snapshot
from podslice.machine.devices import DeviceInventory, is_extended_resource_name
from podslice.node.devices import checkpoint as device_file
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError
from podslice.values.quantity import Quantity, QuantityError

_NOTHING: Mapping[str, Mapping[str, Sequence[int]]] = {}
_NOWHERE = -1
_MOST = 4096
"""Devices of a resource for which names are made."""


class FoundDevices(NamedTuple):
    """A file of devices, and a line for each resource of which some have no known NUMA node."""

    data: bytes
    unplaced: tuple[str, ...]


def find_devices(
    machine: Path | None, node: Path | None, state: Path | None, answers: Path | None = None
) -> FoundDevices | None:
    """Return the devices of a snapshot, a Node object, the Device Manager's state file and the kubelet's answers; None
    where they tell of no device, or where one of them cannot be read, which others report."""
    try:
        held = None if state is None else device_file.load(state.read_bytes())
        counts = {} if node is None else _counts(msgspec.json.decode(node.read_bytes()))
        answered = {} if answers is None else read_pod_resources(answers.read_bytes(), str(answers)).devices
        if not counts and not answered and (held is None or not held.registered):
            return None
        inventory = DeviceInventory() if machine is None else _pci(machine)
    except (OSError, ValueError, RecursionError, CheckpointError, InputError):
        return None
    found = place_devices(counts, held, inventory, answered)
    lines = tuple(line for one in found if one["resource"] not in answered and (line := _unplaced(one)))
    return FoundDevices(msgspec.json.encode({"devices": found}), lines) if found else None


def _unplaced(resource: Mapping[str, Any]) -> str:
    devices = resource["devices"]
    lost = sum("numa" not in one for one in devices)
    return f"the NUMA nodes of {lost} of {len(devices)} {resource['resource']} (--devices names them)" if lost else ""


def _pci(path: Path) -> DeviceInventory:
    fs = open_snapshot(path)
    return group_by_resource(read_pci_functions(fs, discover(fs)), {})


def _counts(node: Any) -> dict[str, int]:
    """Return the extended resources of a Node object with their numbers."""
    status = node.get("status") if isinstance(node, dict) else None
    capacity = status.get("capacity") if isinstance(status, dict) else None
    counts = {}
    for name, value in (capacity or {}).items() if isinstance(capacity, dict) else ():
        try:
            number = Quantity.parse(str(value)).value()
        except QuantityError:
            continue
        if is_extended_resource_name(name) and 0 < number <= _MOST:
            counts[name] = number
    return counts


def place_devices(
    counts: Mapping[str, int],
    held: DeviceCheckpoint | None,
    pci: DeviceInventory,
    answered: Mapping[str, Mapping[str, Sequence[int]]] = _NOTHING,
) -> list[dict[str, Any]]:
    """Return devices by resource, as in a file of devices. A device without a known place has no NUMA node. `answered`:
    the NUMA nodes of all devices of a resource by id, as the kubelet answers."""
    placed = {one.resource: [device.numa[0] if device.numa else None for device in one.devices]
              for one in pci.resources}  # fmt: skip
    registered = {} if held is None or held.registered is None else held.registered
    result = []
    for name in sorted({*counts, *registered, *answered}):
        known = dict(_held(held, name))
        if name in answered:
            places = {**{one: () if node is None else (node,) for one, node in known.items()}, **answered[name]}
            devices = [{"id": one, **({"numa": list(nodes)} if nodes else {})} for one, nodes in places.items()]
            result.append({"resource": name, "devices": devices})
            continue
        ids = list(dict.fromkeys([*(registered.get(name) or ()), *known]))
        ids = ids or [f"{name}-{number}" for number in range(counts.get(name, 0))]
        free = [one for one in ids if one not in known]
        homes = {**known, **dict(zip(free, _free_places(known, placed.get(name, ()), len(ids)), strict=False))}
        devices = [{"id": one, **({} if homes.get(one) is None else {"numa": [homes[one]]})} for one in ids]
        if devices:
            result.append({"resource": name, "devices": devices})
    return result


def _held(held: DeviceCheckpoint | None, resource: str) -> Iterator[tuple[str, int | None]]:
    """Yield the devices of a resource that containers hold, with their NUMA nodes."""
    for entry in (held.entries if held is not None else None) or ():
        if entry.resource == resource and isinstance(entry.by_node, Mapping):
            for node, names in entry.by_node.items():
                yield from ((name, None if node == _NOWHERE else node) for name in names or ())


def _free_places(known: Mapping[str, int | None], placed: Sequence[int | None], total: int) -> list[int | None]:
    """Return the NUMA nodes that are left for devices that no container holds; none where PCI has another number of
    devices, or another place for a held one."""
    left = Counter(placed)
    left.subtract(known.values())
    if len(placed) != total or any(number < 0 for number in left.values()):
        return []
    return sorted(left.elements(), key=lambda node: -1 if node is None else node)
