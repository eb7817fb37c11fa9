"""Random histories of a node: pods arrive, change and leave, containers start and stop, the kubelet restarts."""

from __future__ import annotations

import copy
from random import Random

from tools.judge.chance import Json, often, pick
from tools.judge.kubelets import change_kubelet, draw_kubelet, spare_lists
from tools.judge.machines import draw_machine
from tools.judge.pods import PodDrawer, change_pod, container_names, cpus_asked

_RESOURCES = ("example.com/nic", "example.com/gpu", "vendor.io/fpga")


def draw_history(r: Random, name: str, *, length: int | None = None) -> Json:
    """Draw a history of `length` operations on one node."""
    most_nodes = pick(r, (6, 2), (8, 4), (1.5, 6), (0.8, 8), (0.2, 10), (0.25, 16))
    most_cpus = pick(r, (8, 64), (2, 128), (0.5, 512 if most_nodes <= 8 or often(r, 0.5) else 128))
    machine = draw_machine(r, most_nodes=most_nodes, most_cpus=most_cpus)
    kubelet = draw_kubelet(r, machine)
    devices = draw_devices(r, machine) if often(r, 0.45) else []
    case: Json = {"name": name, "machine": machine, "kubelet": kubelet}
    if devices:
        case["devices"] = devices
    if len(machine["nodes"]) <= 4 and often(r, 0.4):
        case["recordHints"] = True
    writer = _Writer(r, case)
    for _ in range(length or pick(r, (3, 4), (4, 8), (3, 14), (1, 30))):
        writer.step()
    case["ops"] = writer.operations
    return case


def draw_devices(r: Random, machine: Json) -> list[Json]:
    """Draw device plugins. One without preferred allocation has few devices, because upstream then picks by chance."""
    nodes = [node["id"] for node in machine["nodes"]]
    resources = []
    for name in r.sample(_RESOURCES, r.choice([1, 1, 2])):
        preferred = not often(r, 0.2)
        placed = not often(r, 0.1)
        number = r.choice([1, 2, 3, 4, 6, 8] if preferred else [1, 1, 2, 3])
        devices = []
        for i in range(number):
            device: Json = {"id": f"{name.split('/')[1]}{i:02d}"}
            numa = pick(r, (80, [r.choice(nodes)]), (12, r.sample(nodes, min(2, len(nodes)))), (3, []), (5, None))
            if placed and numa is not None:
                device["numa"] = sorted(numa)
            if often(r, 0.05):
                device["health"] = "Unhealthy"
            devices.append(device)
        if often(r, 0.3):
            r.shuffle(devices)
        resource: Json = {"resource": name, "devices": devices}
        if not preferred:
            resource["preferredAllocation"] = False
        resources.append(resource)
    return resources


class _Writer:
    """Adds operations one by one; `_live` are the pods that may be on the node."""

    def __init__(self, r: Random, case: Json) -> None:
        self.operations: list[Json] = []
        self._r = r
        self._machine = case["machine"]
        self._kubelet = case["kubelet"]
        self._devices = case.get("devices", [])
        self._live: dict[str, Json] = {}
        self._pods = PodDrawer(r, self._machine, self._devices, spare_lists(self._machine, self._kubelet))
        self._full = r.choice([0.6, 0.8, 1.0, 1.4]) * self._pods.cpus
        managed = self._kubelet.get("featureGates", {}).get("PodLevelResourceManagers")
        self._pod_level = r.choice([0.1, 0.5, 0.9] if managed else [0.1, 0.4])
        self._restarts = r.choice([0.08, 0.14, 0.25])

    def step(self) -> None:
        """Add one operation."""
        r = self._r
        if not self._live or often(r, 0.03):
            self._admit()
            return
        if often(r, self._restarts):
            self._restart()
            return
        load = sum(cpus_asked(pod) for pod in self._live.values())
        room = load < self._full
        kind = pick(
            r,
            (60 if room else 15, self._admit),
            (12 if room else 60, self._remove),
            (8, self._readmit),
            (9, self._touch),
            (2, self._collect),
        )
        kind()

    def _add(self, kind: str, **fields: object) -> Json:
        self.operations.append({"op": kind, **fields})
        return self.operations[-1]

    def _admit(self) -> None:
        r = self._r
        pod = self._pods.pod(pod_level=often(r, self._pod_level))
        operation = self._add("admit", pod=pod)
        if often(r, 0.12):
            operation["start"] = r.randint(0, len(container_names(pod)))
        if often(r, 0.06):
            operation["gc"] = False
        self._live[pod["metadata"]["uid"]] = pod

    def _remove(self) -> None:
        r = self._r
        uid = r.choice(list(self._live))
        operation = self._add("removePod", podUID=uid)
        if often(r, 0.15):
            operation["gc"] = False
        del self._live[uid]

    def _readmit(self) -> None:
        r = self._r
        uid = r.choice(list(self._live))
        known = self._live[uid]
        pod = change_pod(r, known) if often(r, 0.65) else copy.deepcopy(known)
        operation = self._add("admit", pod=pod)
        if often(r, 0.1):
            operation["gc"] = False
        self._live[uid] = pod

    def _touch(self) -> None:
        r = self._r
        uid = r.choice(list(self._live))
        kind = pick(r, (3, "startContainer"), (3, "stopContainer"), (1.2, "removeContainer"))
        operation = self._add(kind, podUID=uid, container=r.choice(container_names(self._live[uid])))
        if often(r, 0.15):
            operation["gc"] = False

    def _collect(self) -> None:
        self._add("gc")

    # Restarts

    def _restart(self) -> None:
        r = self._r
        operation = self._add("restart")
        kind = pick(r, (32, "same"), (27, "kubelet"), (5, "machine"), (14, "convert"), (5, "files"))
        if kind == "kubelet":
            self._change_kubelet(operation)
        elif kind == "machine":
            operation["machine"] = _change_machine(r, self._machine)
        elif kind == "convert":
            operation["convert"] = {"cpu": r.choice(["v1", "v2", "v3"])}
            if often(r, 0.4):
                operation["convert"]["memory"] = r.choice(["v1", "v2"])
        elif kind == "files":
            operation["files"] = {r.choice(["cpu_manager_state", "memory_manager_state"]): None}
        if self._live and often(r, 0.25):
            gone = r.sample(list(self._live), r.randint(1, min(2, len(self._live))))
            operation["deletePods"] = gone
            for uid in gone:
                del self._live[uid]
        if often(r, 0.35):
            operation["pluginsReady"] = True
        if often(r, 0.06):
            operation["readmit"] = False
        if often(r, 0.12):
            operation["gc"] = False
        if self._devices and often(r, 0.12):
            operation["devices"] = self._devices = self._change_devices()

    def _change_kubelet(self, operation: Json) -> None:
        r = self._r
        new = change_kubelet(r, self._machine, self._kubelet)
        operation["kubelet"] = new
        before, after = (
            bool(one.get("featureGates", {}).get("PodLevelResourceManagers")) for one in (self._kubelet, new)
        )
        if before != after and often(r, 0.5):
            operation["convert"] = {"cpu": r.choice(["v2", "v3", "v1"]), "memory": r.choice(["v1", "v2"])}
        other_policy = any(
            new.get(key) != self._kubelet.get(key) for key in ("cpuManagerPolicy", "memoryManagerPolicy")
        )
        if other_policy or often(r, 0.3):
            files: Json = {"cpu_manager_state": None}
            if other_policy or often(r, 0.7):
                files["memory_manager_state"] = None
            operation["files"] = files
        if often(r, 0.8):
            self._kubelet = new

    def _change_devices(self) -> list[Json]:
        r = self._r
        changed: list[Json] = copy.deepcopy(self._devices)
        devices = r.choice(changed)["devices"]
        how = pick(r, (3, "unhealthy"), (3, "more"), (1, "fewer"))
        if how == "unhealthy":
            r.choice(devices)["health"] = "Unhealthy"
        elif how == "fewer" and len(devices) > 1:
            devices.pop(r.randrange(len(devices)))
        else:
            ids = {device["id"] for device in devices}
            new = next(name for name in map("x{}".format, range(len(devices) + 1)) if name not in ids)
            devices.append({"id": new, "numa": [self._machine["nodes"][0]["id"]]})
        return changed


def _change_machine(r: Random, machine: Json) -> Json:
    """Return the machine after a reboot: a thread or some memory more or less, or its nodes in another order."""
    changed = copy.deepcopy(machine)
    node = r.choice(changed["nodes"])
    how = pick(r, (4, "thread"), (3, "memory"), (3, "order"))
    if how == "thread" and node.get("cores"):
        threads = r.choice(node["cores"])["threads"]
        if len(threads) > 1:
            threads.pop()
    elif how == "memory" and node.get("memory"):
        node["memory"] += r.choice([-1, 1]) * 4096 * r.randint(1, 1000)
    else:
        r.shuffle(changed["nodes"])
    return changed
