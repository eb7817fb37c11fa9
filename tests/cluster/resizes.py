"""Resizes of pods that a real API server stores: what it answers at the subresource, and what podslice says."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from e2e.controlplane import Api

from podslice.core.errors import InputError
from podslice.core.pod.create import stored
from podslice.core.pod.decode import decode_error
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.resize import (
    prepare_for_resize,
    validate_resize,
)
from podslice.core.pod.resize_admission import ResizedPodsNode, resize_refusal
from podslice.core.pod.spec import pod_from_dict
from podslice.core.values.gates import FeatureGates
from podslice.core.values.quantity import Quantity
from tests.cluster.compare import Json, Said, causes, fields
from tests.cluster.draw import Draw


def make_node(api: Api, name: str, allocatable: Mapping[str, str], features: Sequence[str]) -> ResizedPodsNode:
    """A node with a status, as if its kubelet had reported."""
    labels = {"kubernetes.io/os": "linux"}
    made = api.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    status = {"allocatable": allocatable, "capacity": allocatable, "declaredFeatures": list(features)}
    kept = api.call("PUT", f"/api/v1/nodes/{name}/status", {**made, "status": status})
    amounts = {resource: Quantity.parse(amount) for resource, amount in kept["status"]["allocatable"].items()}
    return ResizedPodsNode(name, labels, amounts, kept["status"].get("declaredFeatures") or ())


def server_says_of_resize(api: Api, new: Json) -> Said:
    """A dry run."""
    metadata = new["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/resize?dryRun=All"
    answer = api.ask("PUT", path, new)
    if answer.code == 200:
        return Said("accepted", fields=fields(pod_from_dict(answer.body)))
    verdict = {422: "invalid", 403: "forbidden", 400: "unreadable"}.get(answer.code, str(answer.code))
    return Said(verdict, causes(answer) if answer.code == 422 else (answer.message,))


def podslice_says_of_resize(new: Json, old: Json, gates: FeatureGates, node: ResizedPodsNode) -> Said:
    """Validation, then the admission plugins."""
    kept = default_pod(pod_from_dict(old), gates)
    try:
        asked = default_pod(pod_from_dict(new), gates)
    except InputError as error:
        return Said("unreadable", (decode_error(new) or str(error),))
    prepared = prepare_for_resize(asked, kept, gates)
    errors = validate_resize(prepared, kept, gates)
    if errors:
        return Said("invalid", tuple(sorted(map(str, errors))))
    refusal = resize_refusal(prepared, kept, node)
    if refusal:
        return Said("forbidden", (f"plugin: {refusal}",))
    return Said("accepted", fields=fields(default_pod(stored(prepared), gates)))


_SIZES = {
    "cpu": ("100m", "250m", "500m", "1", "2", "3500m", "4", "8"),
    "memory": ("64Mi", "128Mi", "256Mi", "1Gi", "2Gi"),
}


class ResizeDraw(Draw):
    """Resizes of stored pods, most of them ones that a person would ask for."""

    def status(self, pod: Json) -> Json:
        """What a kubelet reports, now and then one that does not resize."""
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
