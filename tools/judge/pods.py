"""Random pods: container-level and pod-level resources, init containers, sidecars, huge pages and devices."""

from __future__ import annotations

import copy
from random import Random

from tools.judge.chance import MIB, Json, cpu_text, memory_text, often, pick
from tools.judge.machines import PAGE_NAMES, cpus_of, page_sizes

_Amounts = dict[str, int]
"""Requests of a container: `cpu` in millicores, everything else in bytes or pieces."""


class PodDrawer:
    """Draws pods for one machine. `spare`: how many resources beside CPUs and memory a pod may request."""

    def __init__(self, r: Random, machine: Json, devices: list[Json], spare: int) -> None:
        self._r = r
        self._count = 0
        self.cpus = len(cpus_of(machine))
        with_cpus = sum(1 for node in machine["nodes"] if node.get("cores"))
        self._node_cpus = max(1, self.cpus // max(1, with_cpus))
        self._memory = max(node.get("memory", 0) for node in machine["nodes"])
        self._pages = page_sizes(machine)
        self._devices = {resource["resource"]: len(resource["devices"]) for resource in devices}
        self._spare = spare
        self._share = r.choice([0.05, 0.1, 0.25, 0.5])
        self._cpu_share = r.choice([0.2, 0.4, 0.7])

    def pod(self, *, pod_level: bool, prefix: str = "p") -> Json:
        """Draw a pod with a name of its own."""
        r = self._r
        self._count += 1
        name = f"{prefix}{self._count}"
        spec = self._pod_level() if pod_level else self._plain()
        for container in spec["containers"] + spec.get("initContainers", []):
            container["image"] = "x"
        if often(r, 0.05):
            spec["overhead"] = {"cpu": "250m", "memory": "64Mi"}
        drawn = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}
        claimed = self._claim_devices(spec)
        return {**drawn, "status": {"extendedResourceClaimStatus": claimed}} if claimed else drawn

    def _claim_devices(self, spec: Json) -> Json:
        """Return the status of a claim that the scheduler made for some devices, now and then; else empty."""
        containers = spec["containers"] + spec.get("initContainers", [])
        mappings = [
            {"containerName": one["name"], "resourceName": name, "requestName": f"r{place}"}
            for place, one in enumerate(containers)
            for name in one.get("resources", {}).get("limits", {})
            if name in self._devices and often(self._r, 0.1)
        ]
        return {"resourceClaimName": "made", "requestMappings": mappings} if mappings else {}

    # Amounts

    def _cpu(self) -> int:
        r = self._r
        whole = pick(
            r,
            (8, r.randint(1, max(1, int(self._node_cpus * self._cpu_share)))),
            (1, r.randint(1, max(1, self.cpus // 3))),
            (0.6, r.choice([1, 2, self._node_cpus, self._node_cpus + 1])),
        )
        return whole * 1000

    def _bytes(self) -> int:
        r = self._r
        size = r.randint(1, max(2, int(self._memory * self._share) // MIB)) * MIB
        if often(r, 0.04):
            size = int(self._memory * r.choice([0.9, 1, 1.3, 2])) // MIB * MIB
        if often(r, 0.04):
            size += r.choice([1, 4096, 512])
        return max(size, MIB)

    def _extras(self) -> list[str]:
        """Draw the resources beside CPUs and memory that a pod may use."""
        r = self._r
        pages = [PAGE_NAMES[size] for size in self._pages] if often(r, 0.4) else []
        devices = list(self._devices) if often(r, 0.5) else []
        offered = pages + devices
        return r.sample(offered, min(len(offered), self._spare))

    def _extra(self, name: str) -> int:
        r = self._r
        if name == "hugepages-2Mi":
            return 2 * MIB * r.choice([1, 1, 2, 3, 64])
        if name == "hugepages-1Gi":
            return 1024 * MIB * r.choice([1, 1, 1, 2])
        return min(r.choice([1, 1, 1, 2, 3, 0 if often(r, 0.1) else 1]), self._devices[name] + 1)

    # Containers

    def _container(self, name: str, kind: str, extras: list[str], *, small: bool = False) -> tuple[Json, _Amounts]:
        """Draw a container of a kind, and return it with the amounts that it requests."""
        r = self._r
        amounts: _Amounts = {}
        if kind not in ("none", "memory only"):
            amounts["cpu"] = r.randint(1, max(1, min(4, self._node_cpus // 2))) * 1000 if small else self._cpu()
        if kind not in ("none", "CPU only"):
            amounts["memory"] = self._bytes()
        if kind == "fraction":
            amounts["cpu"] = max(100, amounts["cpu"] - r.choice([100, 250, 500]))
        if kind in ("guaranteed", "fraction"):
            amounts.update({extra: self._extra(extra) for extra in extras})
        limits = {key: self._text(key, amount) for key, amount in amounts.items()}
        requests = dict(limits)
        if kind == "burstable":
            del limits["cpu"]
            if often(r, 0.5):
                del requests["memory"]
            else:
                del limits["memory"]
        elif kind == "guaranteed" and often(r, 0.05):
            requests["cpu"] = f"{amounts['cpu']}m"
        elif often(r, 0.03):
            requests = {}
        resources = {key: texts for key, texts in (("requests", requests), ("limits", limits)) if texts}
        return ({"name": name, "resources": resources} if resources else {"name": name}), amounts

    def _text(self, name: str, amount: int) -> str:
        if name == "cpu":
            return cpu_text(self._r, amount)
        return str(amount) if name in self._devices else memory_text(self._r, amount)

    def _some(self, extras: list[str], probability: float) -> list[str]:
        return [extra for extra in extras if often(self._r, probability)]

    def _plain(self) -> Json:
        """Draw a pod whose containers have resources of their own."""
        r = self._r
        extras = self._extras()
        kind = pick(r, (8, "guaranteed"), (1, "fraction"), (1, "burstable"), (0.5, "none"), (2, "mixed"))

        def draw_kind() -> str:
            return r.choice(["guaranteed", "guaranteed", "fraction"]) if kind == "mixed" else kind

        spec: Json = {
            "containers": [
                self._container(f"c{i}", draw_kind(), self._some(extras, 0.7))[0]
                for i in range(pick(r, (5, 1), (4, 2), (1.5, 3), (0.3, 5)))
            ]
        }
        inits = []
        for i in range(pick(r, (5, 0), (3, 1), (2, 2), (1, 3))):
            sidecar = often(r, 0.45)
            container, _ = self._container(
                f"{'s' if sidecar else 'i'}{i}", draw_kind(), self._some(extras, 0.4), small=sidecar
            )
            if sidecar:
                container["restartPolicy"] = "Always"
            inits.append(container)
        if inits:
            spec["initContainers"] = inits
        return spec

    def _pod_level(self) -> Json:
        """Draw a pod with pod-level resources, mostly enough for its containers."""
        r = self._r
        extras = self._extras()
        kinds = (5, "guaranteed"), (2, "none"), (1, "burstable"), (1, "fraction"), (1, "CPU only"), (0.7, "memory only")
        drawn = [
            self._container(f"c{i}", pick(r, *kinds), self._some(extras, 0.5), small=True)
            for i in range(pick(r, (5, 1), (4, 2), (2, 3), (0.5, 5)))
        ]
        inits: list[tuple[Json, _Amounts]] = []
        for i in range(pick(r, (5, 0), (3, 1), (2, 2), (1, 3))):
            kind = pick(r, (4, "guaranteed"), (2, "none"), (1, "fraction"), (0.5, "CPU only"), (0.5, "memory only"))
            sidecar = often(r, 0.5)
            container, amounts = self._container(
                f"{'s' if sidecar else 'i'}{i}", kind, self._some(extras, 0.4), small=True
            )
            if sidecar:
                container["restartPolicy"] = "Always"
            inits.append((container, amounts))
        spec: Json = {"containers": [container for container, _ in drawn]}
        if inits:
            spec["initContainers"] = [container for container, _ in inits]
        spec["resources"] = self._budget(_total([amounts for _, amounts in drawn], inits), extras)
        return spec

    def _budget(self, total: _Amounts, extras: list[str]) -> Json:
        r = self._r
        cpu, memory = total.get("cpu", 0), total.get("memory", 0)
        if not often(r, 0.3):
            cpu += r.choice([0, 500, 1000, 1000, 2000, 3000])
        if often(r, 0.8):
            cpu = -(-cpu // 1000) * 1000
        if not often(r, 0.3):
            memory += r.choice([0, 64, 128, 512, 1024]) * MIB
        if often(r, 0.05):
            cpu, memory = max(1000, cpu - 1000), max(MIB, memory - 64 * MIB)
        amounts = {"cpu": cpu or r.choice([1000, 2000]), "memory": memory or 256 * MIB}
        if often(r, 0.08):
            del amounts[r.choice(["cpu", "memory"])]
        for name in extras:
            if name.startswith("hugepages") and often(r, 0.85) and (total.get(name) or often(r, 0.3)):
                amounts[name] = total.get(name, 0) + r.choice([0, 0, self._extra(name)]) or self._extra(name)
        limits = {name: self._text(name, amount) for name, amount in amounts.items()}
        requests = dict(limits)
        if "cpu" in amounts and often(r, 0.06):
            requests["cpu"] = self._text("cpu", max(1000, amounts["cpu"] - 1000))
        return {"limits": limits} if often(r, 0.04) else {"requests": requests, "limits": limits}


def _total(apps: list[_Amounts], inits: list[tuple[Json, _Amounts]]) -> _Amounts:
    """Return the most that the containers need at any one time."""
    total: _Amounts = {}
    for name in {name for amounts in [*apps, *(own for _, own in inits)] for name in amounts}:
        running = peak = 0
        for container, amounts in inits:
            now = running + amounts.get(name, 0)
            peak = max(peak, now)
            if "restartPolicy" in container:
                running = now
        total[name] = max(peak, running + sum(amounts.get(name, 0) for amounts in apps))
    return total


def container_names(pod: Json) -> list[str]:
    """Return the names of all containers, init containers first."""
    spec = pod["spec"]
    return [container["name"] for container in [*spec.get("initContainers", ()), *spec["containers"]]]


def cpus_asked(pod: Json) -> int:
    """Estimate how many CPUs a pod takes on the node."""
    spec = pod["spec"]
    owners = [spec] if "resources" in spec else spec["containers"]
    texts = [owner.get("resources", {}).get("limits", {}).get("cpu", "0") for owner in owners]
    return sum(int(text[:-1]) // 1000 if text.endswith("m") else int(float(text)) for text in texts)


def change_pod(r: Random, pod: Json) -> Json:
    """Return the pod with other amounts, as after a resize; now and then with a container more or less."""
    changed = copy.deepcopy(pod)
    spec = changed["spec"]
    owners = [one for one in [*spec["containers"], spec] if one.get("resources", {}).get("limits")]
    for owner in r.sample(owners, r.randint(1, len(owners))) if owners else ():
        resources = owner["resources"]
        for name in list(resources["limits"]):
            if often(r, 0.6):
                resources["limits"][name] = _change_text(r, name, resources["limits"][name])
                if name in resources.get("requests", {}):
                    resources["requests"][name] = resources["limits"][name]
    if often(r, 0.06):
        if len(spec["containers"]) > 1 and often(r, 0.5):
            spec["containers"].pop()
        else:
            spec["containers"].append({**copy.deepcopy(spec["containers"][0]), "name": "added"})
    return changed


def _change_text(r: Random, name: str, text: str) -> str:
    if name == "cpu":
        milli = int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)
        return cpu_text(r, max(500, milli + r.choice([-1000, 1000, 2000, 500])))
    for suffix, shift in (("Gi", 30), ("Mi", 20)):
        if text.endswith(suffix) and text[:-2].isdigit():
            step = MIB * 1024 if suffix == "Gi" and name != "memory" else 64 * MIB
            return memory_text(r, max(step, (int(text[:-2]) << shift) + r.choice([-step, step, 2 * step])))
    if "/" in name:
        return str(max(1, int(text) + r.choice([-1, 1])))
    return text
