"""Remarks about a pod: differences between v1.36.2 and the profile, and the answers of the node and its policy."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.inspect.facts import Gates, KnownNode
from podslice.api.pod.class_edits import find_spoiled, spoiled_sentences
from podslice.api.pod.demand import compute_qos
from podslice.api.pod.spec import Pod
from podslice.api.server.create import prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_create
from podslice.config.annotations import annotation_problems, requested_resize
from podslice.config.mixed import make_admission_pod
from podslice.scheduling.pod_features import pod_level_refusal
from podslice.values.gates import GATES
from podslice.values.quirks import Quirks


def remarks(written: Pod, prepared: Pod, gates: Gates, quirks: Quirks, node: KnownNode) -> tuple[str, ...]:
    """Return remarks about a pod as it was written and as it is stored."""
    return (
        *_release(written, prepared, gates),
        *_node(prepared, gates, quirks, node),
        *_owning(prepared, gates),
        *_policy(prepared, gates, node),
    )


def _release(written: Pod, prepared: Pod, gates: Gates) -> Iterator[str]:
    """Yield differences between the fixes of KEP-2837 that the gates have and the release, which lacks them."""
    later = [name for name, gate in GATES.items() if gate.later and gates[name]]
    # A stored QoS class stays, whatever release computes it.
    if not later or written.status.qos_class:
        return
    without = {**gates, **dict.fromkeys(later, False)}
    today = prepare_for_create(default_pod(written, without), without)
    refused, refused_today = (bool(validate_create(pod, some)) for pod, some in ((prepared, gates), (today, without)))
    if refused != refused_today:
        verb = "refuses" if refused_today else "accepts"
        yield f"v1.36.2, which lacks the fixes of KEP-2837, {verb} it"
    before = compute_qos(today, without)
    if before != compute_qos(prepared, gates):
        yield f"in v1.36.2, which lacks the fixes of KEP-2837, its QoS class is {before}"


def _node(pod: Pod, gates: Gates, quirks: Quirks, node: KnownNode) -> Iterator[str]:
    refusal = pod_level_refusal(
        pod, gates, quirks, os=node.os, cgroup_version=node.cgroup_version, release=node.release
    )
    if refusal is not None:
        yield f"the node refuses it with {refusal.reason}: {refusal.message}"


def _owning(pod: Pod, gates: Gates) -> Iterator[str]:
    """Yield the edit with which containers that ask for whole CPUs own them."""
    found = find_spoiled(pod, gates)
    if found is not None:
        _, edit = spoiled_sentences(found)
        yield f"under the static CPU manager no container owns CPUs. {edit.rstrip('.')}"


def _policy(pod: Pod, gates: Gates, node: KnownNode) -> Iterator[str]:
    """Yield how the node's policy treats the pod's annotations and exclusive CPUs."""
    policy = node.policy
    refuses = policy.annotations.invalid == "refuse"
    for one in annotation_problems(policy, pod):
        yield f"the node's policy {'refuses it' if refuses else 'ignores its annotation'}: {one.message}"
    if not policy.resize.exclusive or node.config.cpu_manager_policy != "static":
        return
    requests = requested_resize(policy, pod)
    for container in make_admission_pod(policy, pod, gates, release=node.release).containers:
        if container.exclusive_cpus and not container.plain_init:
            allowed = policy.resize.below_baseline == "allow" or container.name in requests.below
            least = "also below" if allowed else "never below"
            delay = requests.delays.get(container.name, policy.resize.shrink_delay_seconds)
            waits = f", and keeps CPUs that it gives back for {delay:g} s" if delay else ""
            text = f"container {container.name} can be resized in place, {least} its {container.exclusive_cpus} CPUs"
            yield f"{text}{waits}"
