"""Why the containers of an admitted pod own no CPUs, and the smallest edit with which they would."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from podslice.advise.explain.trace import ContainerFacts, Trace
from podslice.api.pod.class_edits import find_spoiled, spoiled_sentences, with_amounts
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod, PodStatus
from podslice.node.view import NodeView
from podslice.values.quantity import Quantity, plural

Sentences = tuple[str, ...]


def sharing_sentences(pod: Pod, decision: Trace, view: NodeView, admits: Callable[[Pod], bool]) -> Sentences:
    """Return which field keeps a defaulted pod from CPUs of its own, and the smallest edit; nothing where a container
    owns CPUs, or asks for less than one. `admits`: whether the node as it is admits the edited pod."""
    if any(one.exclusive_cpus for one in decision.containers):
        return ()
    if not view.pins_cpus:
        return _by_policy(pod, view)
    found = find_spoiled(pod, view.gates)
    if found is not None:
        return spoiled_sentences(found, admits=admits(found.edited))
    by_code = {one.eligibility: one for one in decision.containers if one.name}
    if "fraction" in by_code:
        return _by_fraction(pod, by_code["fraction"], admits)
    return _by_pod_level(view) if "pod-level-ignored" in by_code else ()


def _by_pod_level(view: NodeView) -> Sentences:
    """Blame the gate that would let the managers act on the pod's budget, or the release that has no such gate."""
    edit = "leave out spec.resources and give every container equal requests and limits."
    if not view.release.has_pod_level_managers:
        why = f"and the managers of Kubernetes {view.release} leave such pods alone."
        return f"No container owns CPUs, because the pod has spec.resources, {why}", f"Smallest edit: {edit}"
    return (
        "No container owns CPUs, because the pod has spec.resources and feature gate PodLevelResourceManagers is off.",
        f"Smallest edit: turn the gate on on the node, or {edit}",
    )


def _by_policy(pod: Pod, view: NodeView) -> Sentences:
    """Blame policy none where the static policy would give a container CPUs."""
    owners = [one for one in AdmissionPod.of(pod, view.gates, release=view.release).containers if one.exclusive_cpus]
    if not owners:
        return ()
    owned = " and ".join(f"{one.name} owns {plural(one.exclusive_cpus, 'CPU')}" for one in owners)
    return (
        "No container owns CPUs, because the node's cpuManagerPolicy is none.",
        f"Smallest edit: set cpuManagerPolicy: static on the node, with a CPU reservation. Then {owned}.",
    )


def _by_fraction(pod: Pod, facts: ContainerFacts, admits: Callable[[Pod], bool]) -> Sentences:
    """Name the fraction that keeps the first such container from owning CPUs."""
    amount = next((one.amount for one in facts.requested if one.resource == "cpu"), "0")
    whole = Quantity.parse(amount).value()
    # A container that asks for half a CPU is meant to share.
    if whole < 2:
        return ()
    changes = {facts.name: {"cpu": Quantity.of(whole)}}
    edited = msgspec.structs.replace(with_amounts(pod, changes), status=PodStatus())
    effect = f"{facts.name} owns {whole} CPUs" if admits(edited) else "the node as it is would refuse the pod"
    return (
        f"Container {facts.name} owns no CPUs, because its limits.cpu {amount} is not a whole number.",
        f"Smallest edit: set requests.cpu and limits.cpu: {whole} of {facts.name}. Then {effect}.",
    )
