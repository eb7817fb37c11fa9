"""One pod: what the API server has of it, what its node's agent has, and the decision if it came now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podslice.advise.explain.documents import pod_document
from podslice.advise.explain.explain import Explanation, explain
from podslice.advise.why.reported import PodEventLine, read_events
from podslice.api.manifests.fields import part_of
from podslice.api.pod.names import check_namespace_name, check_pod_name
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.kubectl.agents import AgentPod, Agents
from podslice.kubectl.client import Cluster, list_events
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.documents import PodPlacement
from podslice.kubectl.live import remote_node
from podslice.node.node import Node
from podslice.service.podlist import find_mirrored_uid
from podslice.status.status import AgentStatus, PodReport, RefusalStatus
from podslice.values.document import without_header
from podslice.values.errors import InputError


class FoundPod(msgspec.Struct, frozen=True):
    """The placement as a document, and the explanation to print."""

    placement: PodPlacement
    now: Explanation | None


def find_pod(agents: Agents, namespace: str, name: str, node: str = "") -> FoundPod:
    """Find a pod and try it on `node`, empty for the node it is on. Raises `InputError` where there is no such pod, or
    no agent on the node that was named."""
    cluster = agents.cluster
    namespace, name = check_namespace_name(namespace, "-n"), check_pod_name(name)
    try:
        data = cluster.read(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ClusterError as error:
        if error.status == 404:
            remedy = f"kubectl get pods -n {namespace} lists them; -n names another namespace"
            raise InputError(f"there is no pod {namespace}/{name}", remedy=remedy) from None
        raise
    pod, status = pod_from_dict(data), part_of(data, "status")
    metadata = part_of(data, "metadata")
    # `find_mirrored_uid` takes owner references as undecoded JSON, as watches have them.
    owners = msgspec.Raw(msgspec.json.encode(metadata.get("ownerReferences")))
    # The agent knows a static pod by the kubelet's UID, which its mirror pod has in an annotation.
    uid = find_mirrored_uid(part_of(metadata, "annotations"), owners, pod.spec.node_name) or pod.metadata.uid
    where = node or pod.spec.node_name
    report, now, problem = _ask_node(agents, pod, uid, where, agents.on(node) if node else None)
    reason, message = _reason_and_message(status)
    placement = PodPlacement(
        namespace=namespace,
        name=name,
        uid=uid,
        node=where,
        phase=str(status.get("phase") or ""),
        qos_class=str(status.get("qosClass") or ""),
        reason=reason,
        message=message,
        problem=problem,
        containers=report.containers if report is not None else (),
        refusals=report.refusals if report is not None else (),
        findings=report.findings if report is not None else (),
        events=_events(cluster, namespace, name, pod.metadata.uid),
        now=None if now is None else pod_document(now),
    )
    return FoundPod(placement, now)


def _reason_and_message(status: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and message of the pod, or of the scheduler where it found no node."""
    if status.get("reason") or status.get("message"):
        return str(status.get("reason") or ""), str(status.get("message") or "")
    conditions = status.get("conditions")
    for condition in map(part_of, conditions if isinstance(conditions, list) else ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or ""), str(condition.get("message") or "")
    return "", ""


def _ask_node(
    agents: Agents, pod: Pod, uid: str, where: str, agent: AgentPod | None
) -> tuple[PodReport | None, Explanation | None, str]:
    """Return the agent's report of a pod, the decision if it came now, and the reason why one of them is missing."""
    if not where:
        return None, None, "no node has it; --node NAME tries it there"
    try:
        agent = agent or agents.on(where)
        status = read_status(agents.ask(agent, "/status"), where)
        remote = remote_node(agents.ask(agent, "/node"), where)
    except InputError as error:
        return None, None, str(error)
    report = _report(status, uid)
    if remote.node is None:
        return report, None, remote.problem
    known = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))
    now = explain(_remove_pod(remote.node, uid), known)
    return report, now, "" if report is not None else f"the agent on {where} does not have it"


def _report(status: AgentStatus, uid: str) -> PodReport | None:
    """Return the agent's report of a pod, also of one that it marked Failed; None for neither."""
    for pod in status.pods:
        if pod.uid == uid:
            return pod
    for gone in status.rejected:
        if gone.uid == uid:
            refusal = RefusalStatus("", gone.reason, gone.message, gone.why, gone.since, gone.fix, rejected=True)
            return PodReport(gone.namespace, gone.name, uid, False, True, (), (refusal,))
    return None


def _remove_pod(node: Node, uid: str) -> Node:
    """Return the node without the pod, and without parts of it that the agent counts separately (UID/part)."""
    for held in [one for one in node.pods if one.partition("/")[0] == uid]:
        node.remove(held)
    return node


def _events(cluster: Cluster, namespace: str, name: str, uid: str) -> tuple[PodEventLine, ...]:
    """Return the Events of a pod, oldest first; one line with the error where they may not be read."""
    try:
        return read_events(list_events(cluster, namespace, name, uid=uid))
    except ClusterError as error:
        return (PodEventLine("Warning", "NoEvents", str(error), 1, "", "podslice"),)


def read_status(document: Any, source: str) -> AgentStatus:
    """Read an agent's status. Raises `InputError` for that of another version."""
    try:
        return msgspec.convert(without_header("AgentStatus", document), AgentStatus)
    except (msgspec.ValidationError, AttributeError, InputError):
        problem = "what answers is not a podslice agent of this version"
        raise InputError(
            problem, source=source, remedy="give the agent and kubectl-podslice the same version"
        ) from None
