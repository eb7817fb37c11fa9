"""Lists of devices that change while a kubelet runs: a device falls ill or gets well, goes, comes, or is found on
another NUMA node."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from random import Random
from typing import Any

from tools.judge.chance import pick

Json = dict[str, Any]
Devices = tuple[Json, ...]
_ILL = "Unhealthy"


def changed_list(r: Random, devices: Devices, nodes: int) -> tuple[str, Devices]:
    """The name of a resource whose list is another one now, and the lists of all, on a machine of so many NUMA nodes.
    Every list keeps a device."""
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
    """Ill or well."""
    if device.pop("health", None) is None:
        device["health"] = _ILL


def _come(r: Random, listed: list[Json], nodes: int) -> None:
    """A device that was not there; its place may have been another one's."""
    names = {own["id"] for own in listed}
    device: Json = {"id": next(name for name in _names(listed) if name not in names)}
    _move(r, device, nodes)
    listed.append(device)


def _names(listed: Sequence[Json]) -> list[str]:
    stem = listed[0]["id"].rstrip("0123456789")
    return [f"{stem}{number}" for number in range(len(listed) + 1)]


def _move(r: Random, device: Json, nodes: int) -> None:
    """Other NUMA nodes than before, or none: then the plugin does not tell of any."""
    before = device.pop("numa", [])
    near = before
    while near == before:
        near = sorted(r.sample(range(nodes), min(r.choice((0, 1, 1, 1, 2)), nodes)))
    if near:
        device["numa"] = near


def without_chance(spec: Json, devices: Devices) -> None:
    """No plain init container asks for more devices than the next container that wants such: which ones of several
    that takes over a kubelet leaves to chance."""
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
