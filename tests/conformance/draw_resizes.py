"""Resizes of stored pods drawn at random from a seed, and what kubelets report of the pods."""

from __future__ import annotations

import copy

from tests.conformance.draw import Draw, Json

_SIZES = {
    "cpu": ("100m", "250m", "500m", "1", "2", "3500m", "4", "8"),
    "memory": ("64Mi", "128Mi", "256Mi", "1Gi", "2Gi"),
}


class ResizeDraw(Draw):
    """Resizes of stored pods, most of them ones that a person would ask for."""

    def status(self, pod: Json) -> Json:
        """Return the status that a kubelet reports, sometimes of one that does not resize."""
        running = {"state": {"running": {}}, "image": "i", "imageID": "i", "restartCount": 0, "ready": True}
        reported = [
            {**running, "name": one["name"]} | ({} if self.odd(0.4) else {"resources": one.get("resources") or {}})
            for one in pod["spec"]["containers"]
        ]
        return {**pod["status"], "phase": "Running", "containerStatuses": reported}

    def resize(self, pod: Json) -> Json:
        new = copy.deepcopy(pod)
        spec = new["spec"]
        owners = [*spec["containers"], *spec.get("initContainers", ())]
        for owner in owners:
            if self.chance(0.4):
                self._amounts(owner)
            if self.odd(0.04):
                owner["resizePolicy"] = [self.resize_policy() for _ in range(self.one((1, 2)))]
        if self.chance(0.5 if spec.get("resources") else 0.1):
            self._amounts(spec)
        if self.odd(0.08):
            self._other_change(spec)
        return new

    def update(self, pod: Json) -> Json:
        """An ordinary update: mostly one change, allowed or not, now and then several."""
        new = copy.deepcopy(pod)
        while True:
            if self.chance(0.75):
                self._other_change(new["spec"])
            else:
                new = self.resize(new)
            if self.chance(0.8):
                return new

    def _amounts(self, owner: Json) -> None:
        resources = owner.setdefault("resources", {}) or {}
        owner["resources"] = resources
        kind = self.random.random()
        if kind < 0.08:
            owner["resources"] = self.resources() or {}
        elif kind < 0.12:
            owner.pop("resources")
        else:
            for side in ("requests", "limits"):
                for name in list(resources.get(side) or ()):
                    if name in ("cpu", "memory") or self.odd(0.1):
                        self._one_amount(resources, side, name)
                if self.odd(0.06):
                    resources.setdefault(side, {})[self.one(("cpu", "memory", "hugepages-2Mi"))] = "100m"
        if self.chance(0.5) and (owner.get("resources") or {}).get("limits"):
            limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
            resources["requests"] = {**requests, **{name: limits[name] for name in requests if name in limits}}

    def _one_amount(self, resources: Json, side: str, name: str) -> None:
        if self.odd(0.04):
            del resources[side][name]
        elif self.chance(0.6):
            resources[side][name] = self.amount(name) if self.odd(0.2) else self.one(_SIZES.get(name, ("2Mi", "1")))

    def _other_change(self, spec: Json) -> None:
        containers = self.one_of([spec["containers"], spec.get("initContainers") or spec["containers"]])
        if not containers:
            return
        container = self.one_of(containers)
        what = self.one(("name", "image", "remove", "add", "swap", "policy", "deadline", "pod", "drop"))
        if what == "name":
            container["name"] = "renamed"
        elif what == "image":
            container["image"] = "localhost/other:2"
        elif what == "remove":
            containers.pop()
        elif what == "add":
            containers.append(self.container("extra"))
        elif what == "swap":
            containers.reverse()
        elif what == "policy":
            container["restartPolicy"] = "Always"
        elif what == "deadline":
            spec["activeDeadlineSeconds"] = 5
        elif what == "pod":
            spec["restartPolicy"] = "Never"
        else:
            spec.pop("resources", None)
