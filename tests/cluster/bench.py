"""A service on paper: nodes that decide with the real core, a fake API server, and a clock that the test turns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from e2e.hollow_nodes import HollowJournals, HollowNodes, node_rules

from podslice.cluster.apiclient import ClusterApi
from podslice.cluster.certificate_watch import WatchedCertificate
from podslice.cluster.extender.messages import FilterRequest, read_filter
from podslice.cluster.journal.sources import ReplicaSource
from podslice.cluster.log_lines import Log
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.cluster.object_table import Trouble
from podslice.cluster.placements import NodeReport, PlacementEvents, Placements
from podslice.cluster.service import ClusterService, ServiceSettings
from podslice.cluster.wiring import wire
from podslice.machine.readers.synthetic import from_synthetic
from podslice.service.clusterobjects import ScheduledPod, read_node, read_pod
from tests.cluster.fake_api import Json

SMALL = "pack:1 numa:2(memory=8GiB) core:4 pu:2"
"""16 CPUs on two NUMA nodes; 15 can be given away."""
LIKE = node_rules(from_synthetic(SMALL))


def pod_object(name: str, cpus: str = "4", node: str = "", **spec: Any) -> Json:
    """A pod of class Guaranteed, as the API server has it."""
    amounts = {"cpu": cpus, "memory": "64Mi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 2 if node else 1},
        "spec": {"schedulerName": "podslice", "containers": [container]} | ({"nodeName": node} if node else {}) | spec,
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }  # fmt: skip


def mirror_object(static: str, name: str, cpus: str, node: str, **spec: Any) -> Json:
    """The mirror that a node's kubelet makes of a static pod, which has another UID there."""
    made = pod_object(name, cpus, node, **spec)
    made["metadata"]["annotations"] = {"kubernetes.io/config.hash": static, "kubernetes.io/config.mirror": static}
    made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": node, "controller": True}]
    return made


def shared_pod(name: str) -> Json:
    """A pod that wants nothing for itself."""
    return pod_object(name, "500m")


def node_object(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {"cpu": "15", "pods": "250"}}}


def scheduled_pod(document: Json) -> ScheduledPod:
    return read_pod(json.dumps(document).encode())


def filter_body(document: Json, names: list[str]) -> bytes:
    return json.dumps({"Pod": document, "Nodes": None, "NodeNames": names}).encode()


def filter_request(document: Json, names: list[str]) -> FilterRequest:
    return read_filter(filter_body(document, names))


def ignore(*told: object) -> None:
    """Hears what a test does not look at."""


def wire_service(
    api: ClusterApi,
    journals: ReplicaSource,
    settings: ServiceSettings | None = None,
    *,
    trouble: Trouble = ignore,
    clock: Callable[[], float] = time.monotonic,
    log: Log | None = None,
    certificate: WatchedCertificate | None = None,
) -> ClusterService:
    """The service as `podslice cluster` makes it, without NodeState objects."""
    return wire(
        api,
        journals,
        settings or ServiceSettings(),
        trouble=trouble,
        disputed=ignore,
        clock=clock,
        log=log,
        certificate=certificate,
    )


class Bench:
    """Placements beside hollow nodes whose journals reach them at once. `binding_outcomes` and `disputes` record
    reports of nodes."""

    def __init__(self, *names: str, heard: bool = True, policy: PlanPolicy = "compare") -> None:
        self.now = 0.0
        self.rooms = 0
        self.binding_outcomes: list[str] = []
        self.disputes: list[NodeReport] = []
        self.names = names
        self.policy = policy
        self.nodes = HollowNodes(names, None, like=LIKE)
        self.journals = HollowJournals(self.nodes.source)
        self.nodes.send = self.journals.feed
        self._pods: dict[str, ScheduledPod] = {}
        self.begin_again()
        if heard:
            self.journals.catch_up(names)

    def begin_again(self) -> None:
        """The service is started: nodes and pods are listed, no journal has come yet."""
        self.journals.restart()
        self.placing = Placements(
            ClusterModel(ModelLimits(best=1)),
            PlacementEvents(),
            schedulers=frozenset({"podslice"}),
            clock=lambda: self.now,
            policy=self.policy,
        )
        self.placing.events.room_freed.add(self._room)
        self.placing.events.binding_outcome.add(self._record_outcome)
        self.journals.events.applied.add(
            lambda name, stamped, applied: self.placing.apply_event(
                name, stamped, applied, self.journals.nodes[name].replica
            )
        )
        for name in self.names:
            self.placing.node_changed(None, read_node(json.dumps(node_object(name)).encode()))
        for pod in self._pods.values():
            self.placing.pod_changed(None, pod)

    def _record_outcome(self, report: NodeReport) -> None:
        self.binding_outcomes.append(report.outcome.kind)
        if report.outcome.kind in ("disputed", "refused"):
            self.disputes.append(report)

    def _room(self) -> None:
        self.rooms += 1

    def watch_pod(self, document: Json, *, node_hears: bool = True) -> None:
        """The watch says so, to the service and, unless it is late, to the node."""
        new = scheduled_pod(document)
        old = self._pods.get(new.uid)
        self._pods[new.uid] = new
        self.placing.pod_changed(old, new)
        if node_hears:
            self.nodes.pod_changed(None if old is None or not old.node else old, new)

    def delete_pod(self, name: str) -> None:
        """The pod is deleted."""
        old = self._pods.pop(f"uid-{name}")
        self.placing.pod_changed(old, None)
        self.nodes.pod_changed(old, None)
