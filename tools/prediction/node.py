"""A cluster of one node: an API server, a real kubelet on a made-up machine, and a runtime without processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.controlplane import STRATEGIC, Api, ControlPlane, Settings, StatusError
from e2e.programs import Programs

from tools.prediction.kubelet import RealKubelet
from tools.prediction.machine import Shape
from tools.prediction.runtime import FakeRuntime

Json = dict[str, Any]
NODE = "n1"
_PODS = "/api/v1/namespaces/default/pods"
_NOT_FOUND = 404
WITH_OVERHEAD = "with-overhead"
"""A runtime class."""
_WITH_OVERHEAD = {
    "metadata": {"name": WITH_OVERHEAD},
    "handler": WITH_OVERHEAD,
    "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
}


class OneNode:
    """Actions on the node, through its API server."""

    def __init__(self, api: Api, kubelet: RealKubelet, runtime: FakeRuntime) -> None:
        self.api, self.kubelet, self.runtime = api, kubelet, runtime

    def create(self, pod: Json) -> Json:
        """Create a pod bound to the node, and return it as stored. Raises `StatusError`."""
        spec = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1, **pod["spec"]}
        spec["nodeName"] = self.kubelet.node
        return self.api.call("POST", _PODS, {"metadata": pod["metadata"], "spec": spec})

    def resize(self, name: str, spec: Json) -> Json:
        """Request other resources for a pod or its containers, and return it once the kubelet has seen that. Raises
        `StatusError`."""
        wanted = self.api.call("PATCH", f"{_PODS}/{name}/resize", {"spec": spec}, STRATEGIC)
        generation = wanted["metadata"]["generation"]
        return self.until(name, lambda pod: bool(pod["status"].get("observedGeneration") == generation))

    def get(self, name: str) -> Json:
        return self.api.call("GET", f"{_PODS}/{name}")

    def pods(self) -> list[Json]:
        """Return all pods, the oldest first."""
        items: list[Json] = self.api.call("GET", _PODS)["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def allocatable(self) -> Json:
        """Return the allocatable amounts of the Node object."""
        nodes = self.api.call("GET", "/api/v1/nodes")["items"]
        found: list[Json] = [own["status"].get("allocatable") or {} for own in nodes if _name(own) == self.kubelet.node]
        return found[0] if found else {}

    def events(self, uid: str) -> list[Json]:
        """Return the events about a pod."""
        chosen = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3D{uid}"
        items: list[Json] = self.api.call("GET", chosen)["items"]
        return items

    def wait_for_decision(self, name: str) -> Json:
        """Return a pod once the kubelet has refused it, it has ended, or all its containers have been started."""
        return self.until(name, lambda pod: is_over(pod) or _has_started(pod))

    def until(self, name: str, state: Callable[[Json], bool]) -> Json:
        """Return a pod once `state` holds for it."""
        self.kubelet.wait(f"pod {name}", lambda: state(self.get(name)))
        return self.get(name)

    def delete(self, name: str) -> None:
        """Delete a pod, and wait until the kubelet has ended it and the API server has forgotten it."""
        self.api.call("DELETE", f"{_PODS}/{name}")
        self.kubelet.wait(f"the end of pod {name}", lambda: not self._exists(name))

    def forget(self, name: str) -> None:
        """Remove a pod from the API server at once, without waiting for the kubelet."""
        self.api.call("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")

    def _exists(self, name: str) -> bool:
        try:
            self.get(name)
        except StatusError as error:
            if error.code == _NOT_FOUND:
                return False
            raise
        return True


def _name(found: Json) -> str:
    return str(found["metadata"]["name"])


def is_over(pod: Json) -> bool:
    """Whether a pod is refused, or all its containers have ended for good."""
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def _has_started(pod: Json) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    begun = ("running", "terminated")
    return len(statuses) == len(pod["spec"]["containers"]) and all(
        any(state in own["state"] or state in own["lastState"] for state in begun) for own in statuses
    )


@contextmanager
def control_plane(programs: Programs, folder: Path) -> Iterator[ControlPlane]:
    """Run an API server for `node_of`, with a runtime class whose pods have an overhead."""
    settings = Settings(nodes=(NODE,), api_server=("--disable-admission-plugins=ServiceAccount",))
    with ControlPlane(programs, folder / "plane", settings) as plane:
        with plane.api() as api:
            api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", _WITH_OVERHEAD)
        yield plane


@contextmanager
def node_of(plane: ControlPlane, programs: Programs, folder: Path, machine: Shape) -> Iterator[OneNode]:
    """Yield the node of an API server, without the leftovers of an earlier one; its kubelet is not started yet."""
    with (
        FakeRuntime(folder / "cri.sock") as runtime,
        plane.api() as api,
        RealKubelet(
            programs.hyperkube,
            plane.kubeconfig(f"system:node:{NODE}"),
            NODE,
            folder=folder / NODE,
            machine=machine,
            runtime=runtime,
        ) as kubelet,
    ):
        node = OneNode(api, kubelet, runtime)
        for pod in node.pods():
            node.forget(pod["metadata"]["name"])
        if any(found["metadata"]["name"] == NODE for found in api.call("GET", "/api/v1/nodes")["items"]):
            api.call("DELETE", f"/api/v1/nodes/{NODE}")
        yield node


@contextmanager
def one_node(programs: Programs, folder: Path, machine: Shape) -> Iterator[OneNode]:
    """Yield a node with an API server of its own."""
    with control_plane(programs, folder) as plane, node_of(plane, programs, folder, machine) as node:
        yield node


def soon(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until `what` holds, and return whether it did within `seconds`."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
