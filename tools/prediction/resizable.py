"""Random pods that leave room to grow, and their resizes: other amounts of CPU and memory, the same QoS class."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from tools.judge.chance import often, pick

Json = dict[str, Any]
_MIB = 1 << 20


class ResizableDrawer:
    """Draws pods for a machine with `cpus` CPUs, on which a few of them fit together."""

    def __init__(self, r: Random, cpus: int) -> None:
        self._r, self._count, self._cpus = r, 0, cpus
        self._most = max(100, cpus * 1000 // 10)

    def pod(self) -> Json:
        """Draw a pod: Guaranteed, Burstable or with pod-level resources; with a sidecar or init container now and
        then."""
        r = self._r
        self._count += 1
        spec: Json = {"containers": [{"name": f"c{number}"} for number in range(r.choice([1, 1, 2, 3]))]}
        if often(r, 0.3):
            spec["initContainers"] = [{"name": "i0"}]
            if often(r, 0.7):
                spec["initContainers"][0]["restartPolicy"] = "Always"
        containers = [*spec["containers"], *spec.get("initContainers", ())]
        kinds = pick(r, (3, ("same",)), (4, ("between", "requests", "memory")), (2, ("same", "between")))
        for container in containers:
            container["image"] = "x"
            container["resources"] = self._resources(r.choice(kinds))
            if often(r, 0.2):
                container["resizePolicy"] = [{"resourceName": r.choice(["cpu", "memory"]),
                                              "restartPolicy": "RestartContainer"}]  # fmt: skip
        if often(r, 0.35):
            for container in containers:
                if often(r, 0.3):
                    container["resources"] = {}
            spec["resources"] = self._pod_level(containers, same=often(r, 0.5))
        for container in spec.get("initContainers", ()):
            if "restartPolicy" not in container:
                container.pop("resizePolicy", None)
        return {"metadata": {"name": f"p{self._count}"}, "spec": spec}

    def draw_resize(self, pod: Json) -> Json:
        """Draw the `spec` of a resize: the same members with other amounts, for some containers."""
        r, spec = self._r, copy.deepcopy(pod["spec"])
        sidecars = [own for own in spec.get("initContainers", ()) if own.get("restartPolicy") == "Always"]
        resizable = [*spec["containers"], *sidecars]
        for container in resizable:
            if often(r, 0.7):
                container["resources"] = _like(container["resources"], self._resources(_kind(container["resources"])))
        changed: Json = {"containers": [_name_of(own) for own in spec["containers"]]}
        if sidecars:
            changed["initContainers"] = [_name_of(own) for own in sidecars]
        if "resources" in spec:
            same = spec["resources"]["limits"] == spec["resources"]["requests"]
            changed["resources"] = self._pod_level([*spec["containers"], *spec.get("initContainers", ())], same=same)
        return changed

    def _resources(self, kind: str) -> Json:
        """Requests and limits: `same` for both, limits `between` which there is room, `requests` alone, or a limit of
        `memory` alone; nothing for any other kind."""
        r = self._r
        cpu = pick(r, (4, r.randrange(10, self._most)), (2, r.choice([50, 100, 250])), (2, self._whole()))
        memory = r.randint(8, 256)
        least = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        most = {"cpu": f"{cpu + r.randrange(1, 500)}m", "memory": f"{memory + r.randint(1, 200)}Mi"}
        return {
            "same": {"requests": least, "limits": least},
            "between": {"requests": least, "limits": most},
            "requests": {"requests": least},
            "memory": {"requests": least, "limits": {"memory": most["memory"]}},
        }.get(kind, {})

    def _whole(self) -> int:
        return 1000 * self._r.randint(1, max(1, self._cpus // 6))

    def _pod_level(self, containers: list[Json], *, same: bool) -> Json:
        """Draw pod-level resources with room for all containers and some more."""
        r = self._r
        cpu = sum(_milli(own, "requests", "cpu") for own in containers) + r.choice([100, 250, 1000])
        memory = sum(_mib(own, "requests", "memory") for own in containers) + r.randint(8, 128)
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        cpu = max([cpu, *(_milli(own, "limits", "cpu") for own in containers)])
        memory = max([memory, *(_mib(own, "limits", "memory") for own in containers)])
        if same:
            requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
            return {"requests": requests, "limits": dict(requests)}
        limits = {"cpu": f"{cpu + r.choice([1, 500])}m", "memory": f"{memory + r.randint(1, 100)}Mi"}
        return {"requests": requests, "limits": limits}


def _kind(resources: Json) -> str:
    requests, limits = resources.get("requests"), resources.get("limits")
    if not requests:
        return "none"
    if not limits:
        return "requests"
    if "cpu" not in limits:
        return "memory"
    return "same" if requests == limits else "between"


def _like(old: Json, new: Json) -> Json:
    """Keep only the members that `old` has."""
    return {part: {name: new[part][name] for name in amounts} for part, amounts in old.items() if part in new}


def _name_of(container: Json) -> Json:
    return {"name": container["name"], "resources": container["resources"]}


def _milli(container: Json, part: str, name: str) -> int:
    text = str(container["resources"].get(part, {}).get(name, "0"))
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def _mib(container: Json, part: str, name: str) -> int:
    text = str(container["resources"].get(part, {}).get(name, "0Mi"))
    return int(text[:-2]) if text.endswith("Mi") else int(text[:-2]) << 10
