"""Random slices, classes and claims: one case is a node with pools of devices, and pods with claims that come one after
the other."""

from __future__ import annotations

import random
from typing import NamedTuple

from e2e.controlplane import Json

DRIVERS = ("gpu.example.com", "nic.example.com", "podslice.io")
NUMA = "resource.kubernetes.io/numaNode"
CLASSES: tuple[Json, ...] = (
    *(
        {"metadata": {"name": driver.partition(".")[0]},
         "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}}
        for driver in DRIVERS
    ),
    {"metadata": {"name": "any"}, "spec": {}},
    {"metadata": {"name": "fast"}, "spec": {"selectors": [{"cel": {"expression":
        'device.attributes[device.driver].?fast.orValue(false)'}}]}},
)  # fmt: skip


class PodCase(NamedTuple):
    """The specs of the claims of one pod."""

    claims: tuple[Json, ...]


class Case(NamedTuple):
    """Specs of slices, with `index` in the order of their names, and pods in the order they come."""

    slices: tuple[Json, ...]
    pods: tuple[PodCase, ...]


def random_case(draw: random.Random, node: str, *, missing: float = 0.0) -> Case:
    """`missing` is how likely a pool lacks a slice."""
    drivers = draw.sample(DRIVERS, draw.choice((1, 2, 2, 3, 3)))
    slices = [one for driver in drivers for one in _pool(draw, driver, node, missing=missing)]
    pods = tuple(PodCase(tuple(_claim(draw) for _ in range(draw.choice((1, 1, 1, 2, 3))))) for _ in range(4))
    return Case(tuple(slices), pods)


def _pool(draw: random.Random, driver: str, node: str, *, missing: float) -> list[Json]:
    if draw.random() < 0.2:
        return [_each_cpu(draw, driver, node)]
    shared = draw.random() < 0.5
    counters = not shared and draw.random() < 0.5
    count = draw.choice((1, 1, 2, 3))
    generation = draw.choice((0, 1, 7))
    promised = count + counters + (draw.random() < missing)
    devices = [_device(draw, number, shared=shared, counters=counters) for number in range(draw.randint(count, 8))]
    found = []
    for index in range(count):
        found.append({"devices": devices[index::count]})
    if counters:
        amounts = {"slots": {"value": str(draw.randint(2, 8))}, "memory": {"value": f"{draw.randint(4, 40)}Gi"}}
        found.append({"sharedCounters": [{"name": "all", "counters": amounts}]})
    pool = {"name": f"{node}/{driver}", "generation": generation, "resourceSliceCount": promised}
    whole = [{"driver": driver, "pool": pool, "nodeName": node, **one} for one in found]
    if generation and draw.random() < 0.2:
        old = {"name": f"{node}/{driver}", "generation": generation - 1, "resourceSliceCount": 1}
        device = _device(draw, 90, shared=shared, counters=False)
        whole.append({"driver": driver, "pool": old, "nodeName": node, "devices": [device]})
    return whole


def _each_cpu(draw: random.Random, driver: str, node: str) -> Json:
    """A device for each CPU: many that differ by name and number only."""
    together = draw.choice((2, 3, 4))
    devices = [
        {"name": f"cpu-{number}", "attributes": {
            "cpu": {"int": number}, "model": {"string": "ab"[number // together % 2]},
            "version": {"version": "2.0.0"}, NUMA: {"int": number // together},
        }}
        for number in range(draw.randint(4, 9))
    ]  # fmt: skip
    pool = {"name": f"{node}/{driver}", "generation": 1, "resourceSliceCount": 1}
    return {"driver": driver, "pool": pool, "nodeName": node, "devices": devices}


def _device(draw: random.Random, number: int, *, shared: bool, counters: bool) -> Json:
    attributes: Json = {
        "model": {"string": draw.choice(("a", "b"))},
        "version": {"version": draw.choice(("1.2.3", "2.0.0"))},
    }
    if draw.random() < 0.8:
        attributes[NUMA] = {"int": draw.randint(0, 2)}
    if draw.random() < 0.5:
        attributes["fast"] = {"bool": draw.random() < 0.6}
    device: Json = {"name": f"device-{number}", "attributes": attributes}
    if shared:
        device["allowMultipleAllocations"] = True
        device["capacity"] = {"cpu": _capacity(draw, draw.choice((4, 8, 16)), ""), "memory": _capacity(draw, 16, "Gi")}
    elif draw.random() < 0.3:
        device["capacity"] = {"memory": {"value": f"{draw.randint(1, 40)}Gi"}}
    if counters:
        amounts = {"slots": {"value": str(draw.randint(1, 3))}}
        if draw.random() < 0.5:
            amounts["memory"] = {"value": f"{draw.randint(1, 16)}Gi"}
        device["consumesCounters"] = [{"counterSet": "all", "counters": amounts}]
    if draw.random() < 0.15:
        effect = draw.choice(("NoSchedule", "NoExecute", "None"))
        device["taints"] = [{"key": "sick", "value": draw.choice(("yes", "no")), "effect": effect}]
    return device


def _capacity(draw: random.Random, most: int, unit: str) -> Json:
    capacity: Json = {"value": f"{most}{unit}"}
    kind = draw.randrange(4)
    if kind == 1:
        values = sorted(draw.sample(range(1, most), 2))
        capacity["requestPolicy"] = {"default": f"{values[0]}{unit}", "validValues": [f"{one}{unit}" for one in values]}
    elif kind == 2:
        step = draw.choice((1, 2, 3))
        least = draw.choice((0, 1))
        limits = {"min": f"{least}{unit}", "step": f"{step}{unit}"}
        if draw.random() < 0.4:
            limits["max"] = f"{least + step * max(1, (most // 2) // step)}{unit}"
        if least + step <= most:
            capacity["requestPolicy"] = {"default": f"{least}{unit}", "validRange": limits}
    elif kind == 3:
        capacity["requestPolicy"] = {"default": f"1{unit}", "validRange": {"min": f"1{unit}"}}
    return capacity


def _claim(draw: random.Random) -> Json:
    requests = [_request(draw, f"r{number}") for number in range(draw.choice((1, 1, 2, 3)))]
    spec: Json = {"requests": requests}
    if draw.random() < 0.45:
        names = [one["name"] for one in requests]
        constraints = []
        for _ in range(draw.choice((1, 1, 2))):
            rule: Json = {
                draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): draw.choice(
                    (NUMA, NUMA, "gpu.example.com/model", "podslice.io/model")
                )
            }
            if draw.random() < 0.5:
                rule["requests"] = draw.sample(names, draw.randint(1, len(names)))
            constraints.append(rule)
        spec["constraints"] = constraints
    return {"devices": spec}


def _request(draw: random.Random, name: str) -> Json:
    if draw.random() < 0.2:
        forms = [{"name": f"s{number}", **_form(draw)} for number in range(draw.randint(1, 3))]
        return {"name": name, "firstAvailable": forms}
    return {"name": name, "exactly": _form(draw)}


SELECTORS = (
    'device.attributes["resource.kubernetes.io"].?numaNode.orValue(9) < 2',
    'device.attributes[device.driver].model == "a"',
    'device.attributes[device.driver].version.isGreaterThan(semver("1.5.0"))',
    'has(device.attributes["gpu.example.com"].model) || device.allowMultipleAllocations',
    'device.capacity["podslice.io"].?cpu.orValue(quantity("0")).compareTo(quantity("8")) >= 0',
    '!("fast" in device.attributes[device.driver]) || device.attributes[device.driver].fast',
    'device.attributes["nothing.example.com"].?x.hasValue() == false',
)


def _form(draw: random.Random) -> Json:
    form: Json = {"deviceClassName": draw.choice(("gpu", "nic", "podslice", "any", "any", "any", "fast"))}
    if draw.random() < 0.3:
        chosen = draw.sample(SELECTORS, draw.choice((1, 1, 2)))
        form["selectors"] = [{"cel": {"expression": one}} for one in chosen]
    kind = draw.random()
    if kind < 0.12:
        form["allocationMode"] = "All"
    elif kind < 0.4:
        form["count"] = draw.choice((1, 2, 2, 3, 4))
    if draw.random() < 0.2:
        operator = draw.choice(("Exists", "Equal"))
        form["tolerations"] = [
            {"key": "sick", "operator": operator} | ({"value": "yes"} if operator == "Equal" else {})
        ]
    if draw.random() < 0.2:
        asked = {"cpu": draw.choice(("1", "1", "2", "3", "1500m", "9"))}
        if draw.random() < 0.5:
            asked["memory"] = draw.choice(("1Gi", "3Gi", "512Mi", "20Gi"))
        form["capacity"] = {"requests": asked}
    return form
