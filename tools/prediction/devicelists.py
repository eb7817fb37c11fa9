"""Lists of devices that change while a kubelet runs: a device changes its health, goes, comes, or moves to another NUMA
node."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from random import Random
from typing import Any

from tools.judge.chance import pick

Json = dict[str, Any]
Devices = tuple[Json, ...]
_ILL = "Unhealthy"


def change_list(r: Random, devices: Devices, nodes: int) -> tuple[str, Devices]:
    """Change the list of one resource, on a machine of `nodes` NUMA nodes. Returns the resource's name and the lists of
    all. Every list keeps a device."""
    found = copy.deepcopy(devices)
    resource = r.choice(found)
    listed = resource["devices"]
    kinds = [(5.0, lambda: _turn(r.choice(listed))), (2.0, lambda: _come(r, listed, nodes)),
             (1.0, lambda: _move(r, r.choice(listed), nodes))]  # fmt: skip
    if len(listed) > 1:
        kinds.append((2.0, lambda: listed.remove(r.choice(listed))))
    pick(r, *kinds)()
    return resource["resource"], found


def _turn(device: Json) -> None:
    """Flip the health of a device."""
    if device.pop("health", None) is None:
        device["health"] = _ILL


def _come(r: Random, listed: list[Json], nodes: int) -> None:
    """Add a device, perhaps in the place of an earlier one."""
    names = {own["id"] for own in listed}
    device: Json = {"id": next(name for name in _names(listed) if name not in names)}
    _move(r, device, nodes)
    listed.append(device)


def _names(listed: Sequence[Json]) -> list[str]:
    stem = listed[0]["id"].rstrip("0123456789")
    return [f"{stem}{number}" for number in range(len(listed) + 1)]


def _move(r: Random, device: Json, nodes: int) -> None:
    """Move a device to other NUMA nodes, or none: then the plugin reports none."""
    before = device.pop("numa", [])
    near = before
    while near == before:
        near = sorted(r.sample(range(nodes), min(r.choice((0, 1, 1, 1, 2)), nodes)))
    if near:
        device["numa"] = near


def without_chance(spec: Json, devices: Devices) -> None:
    """Let no plain init container request more devices than the next container that requests them. Otherwise a kubelet
    chooses at random which ones the next container takes over."""
    resources = {own["resource"] for own in devices}
    least: dict[str, int] = {}
    for container in reversed([*spec.get("initContainers", ()), *spec["containers"]]):
        limits = container.get("resources", {}).get("limits") or {}
        plain = container in spec.get("initContainers", ()) and container.get("restartPolicy") != "Always"
        for name in resources & limits.keys():
            count = int(limits[name])
            if plain and count > least.get(name, count):
                count = least[name]
                for amounts in (limits, container["resources"].get("requests") or {}):
                    if name in amounts:
                        amounts[name] = str(count)
            if count:
                least[name] = min(count, least.get(name, count))
