"""A node that decides as an agent's node does, built from the agent's `LiveNode` document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet_file import config_from_fields
from podslice.config.policy import API_VERSION as POLICY_VERSION
from podslice.config.policy import KIND as POLICY_KIND
from podslice.config.policy import PodslicePolicy
from podslice.config.policy_file import policy_from_dict
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.form import from_data
from podslice.node.node import Node
from podslice.values.document import without_header
from podslice.values.errors import InputError, StartError
from podslice.values.quirks import profile_of_release

_REMEDY = "give the agent and kubectl-podslice the same version"


class RemoteNode(NamedTuple):
    """A copy of a node of the cluster. `problem` is the reason why `node` is None."""

    name: str
    node: Node | None
    problem: str


def remote_node(document: Mapping[Any, Any], source: str, kubernetes: str = "") -> RemoteNode:
    """Build the node of a `LiveNode`, with `kubernetes` under the kubelet of that version. Raises `InputError` for a
    document that this version does not understand, or a release that it does not know."""
    try:
        facts = without_header("LiveNode", document)
        name, problem = str(facts["node"]), str(facts["problem"])
        return RemoteNode(name, None if problem else _node(facts, kubernetes), problem)
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"the agent's answer is not understood: {type(error).__name__} {error}"
        raise InputError(problem, source=source, remedy=_REMEDY) from None
    except StartError as error:
        raise InputError(f"the agent's state makes no node: {error}", source=source, remedy=_REMEDY) from None
    except InputError as error:
        raise error.at(source=source) from None


def kubelet_version(document: Mapping[Any, Any]) -> str:
    """Return the version of the kubelet that a `LiveNode` names; empty where its agent does not know it."""
    return str(document.get("kubelet", ""))


def _node(facts: dict[str, Any], kubernetes: str) -> Node:
    profile = str(facts["profile"])
    node = Node(
        from_data(facts["machine"]),
        config_from_fields(facts["configuration"]).config,
        profile=profile_of_release(profile, kubernetes) if kubernetes else profile,
        devices=inventory_from_data({"devices": facts["devices"]}) if facts["devices"] else None,
        # What the scheduler counts is not in the document.
        predicates=False,
        policy=_policy(facts.get("policy", {})),
        files={name: text.encode() for name, text in facts["files"].items()},
    )
    refused = node.resume(map(_pod, facts["pods"]))
    if refused:
        who = ", ".join(f"{one.namespace}/{one.name}" for one in refused[:3])
        raise InputError(f"pods that run there are not taken here: {who}", path="pods", remedy=_REMEDY)
    return node


def _pod(document: Mapping[str, Any]) -> Pod:
    metadata = {**document["metadata"], "annotations": dict(document.get("annotations", {}))}
    return pod_from_dict({"metadata": metadata, "spec": document["spec"]})


def _policy(spec: dict[str, Any]) -> PodslicePolicy:
    return policy_from_dict({"apiVersion": POLICY_VERSION, "kind": POLICY_KIND, "spec": spec})
