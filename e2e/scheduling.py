"""Nodes on paper and pods for a real kube-scheduler: no kubelet, no runtime, only objects of the API server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from e2e.controlplane import MERGE, STRATEGIC, Api, ControlPlane, Json

T = TypeVar("T")
PATIENCE = 90.0
"""Seconds after which something that should have happened has not, on a busy machine."""
SOON = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1, "percentageOfNodesToScore": 100}
"""A scheduler that looks at every node and tries again soon."""


def profile(name: str) -> Json:
    return {"schedulerName": name}


def extender(url: str, **settings: Any) -> Json:
    """An entry of `extenders`: every verb, names instead of nodes, unless `settings` say otherwise."""
    return {
        "urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "bindVerb": "bind", "weight": 200,
        "nodeCacheCapable": True, "ignorable": False, "httpTimeout": "10s",
    } | settings  # fmt: skip


def create_node(api: Api, name: str, *, cpus: int = 32, labels: dict[str, str] | None = None, pods: int = 250) -> None:
    """A ready node with so many CPUs."""
    amounts = {"cpu": str(cpus), "memory": "256Gi", "pods": str(pods)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "on paper"}
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}}})
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)
    api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)


def pod(name: str, scheduler: str, *, cpus: str = "1", **spec: Any) -> Json:
    """A pod of class Guaranteed with one container."""
    amounts = {"cpu": cpus, "memory": "64Mi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
            "containers": [container],
        } | spec,
    }  # fmt: skip


class Pods:
    """The pods of one namespace."""

    def __init__(self, api: Api, namespace: str = "default") -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._events = f"/api/v1/namespaces/{namespace}/events"

    def create(self, document: Json) -> Json:
        return self.api.call("POST", self.path, document)

    def get(self, name: str) -> Json:
        return self.api.call("GET", f"{self.path}/{name}")

    def delete(self, name: str) -> None:
        self.api.ask("DELETE", f"{self.path}/{name}?gracePeriodSeconds=0")

    def nominate(self, name: str, node: str) -> None:
        self.api.call("PATCH", f"{self.path}/{name}/status", {"status": {"nominatedNodeName": node}}, STRATEGIC)

    def node(self, name: str) -> str:
        """Return the node to which a pod is bound; empty for none."""
        return str(self.get(name)["spec"].get("nodeName", ""))

    def nominated(self, name: str) -> str:
        return str(self.get(name)["status"].get("nominatedNodeName", ""))

    def unscheduled(self, name: str) -> Json:
        """The condition PodScheduled of a pod that is not scheduled, empty while it has none."""
        conditions = self.get(name)["status"].get("conditions", [])
        found: Json = next((one for one in conditions if one["type"] == "PodScheduled" and one["status"] != "True"), {})
        return found

    def events(self, name: str) -> list[Json]:
        about = quote(f"involvedObject.name={name}")
        found: list[Json] = self.api.call("GET", f"{self._events}?fieldSelector={about}")["items"]
        return found


def eventually(look: Callable[[], T], what: str = "", patience: float = PATIENCE) -> T:
    """Wait until `look` finds something, and return it. Raises `AssertionError` when it does not in so many seconds."""
    deadline = time.monotonic() + patience
    while not (found := look()):
        assert time.monotonic() < deadline, what or "it did not happen"
        time.sleep(0.05)
    return found


def start_scheduler_named(plane: ControlPlane, name: str, configuration: Json) -> None:
    """A scheduler of that name, by a configuration that names no profile."""
    plane.start_scheduler(SOON | {"profiles": [profile(name)]} | configuration, name=name)
