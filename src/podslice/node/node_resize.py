"""In-place resizes of a kubelet's pods: the API server's checks, the attempt, and the answers.

A resize is tried with the admission chain: a pod that gets everything it requests is granted it, a refused one keeps
what it has. Only podslice resizes what containers own; for that, rules decide first whether waiting can help
(docs/resize.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.event import PodEvent
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.api.server.resize import prepare_for_resize, validate_resize
from podslice.api.server.resize_admission import node_capacity_error
from podslice.config.annotations import MIXED, AnnotationProblem, annotation_problems, requested_resize
from podslice.node.container import ContainerManager
from podslice.node.cpu.manager import NOTHING_LEFT
from podslice.node.decision import ResizeDecision
from podslice.node.hotplug.degraded import give_up_lost, restore_promises
from podslice.node.kubelet import Kubelet
from podslice.node.resize.allocation import INFEASIBLE, ResizeNode, ResizeVerdict, try_resize
from podslice.node.resize.events import (
    ResizeStep,
    in_progress_condition,
    is_new_condition,
    pending_condition,
    resize_event,
)
from podslice.node.resize.exclusive import ResizeRules, check_exclusive
from podslice.node.resize.pending import Attempt, PendingResize, RetryTrigger
from podslice.node.rules import NodeRules
from podslice.values.errors import AdmissionError, InputError, Refusal
from podslice.values.quantity import Quantity
from podslice.values.tables import drop, put


def prepare_resize(
    active: Mapping[str, AdmissionPod], pod: Pod, rules: NodeRules, allocatable: Mapping[str, Quantity] | None = None
) -> Pod:
    """Return a pod of the node as the API server of its release stores it after a request to resize it to the resources
    of `pod`. Raises `InputError` for a pod that is not on the node, and with the API server's errors.

    `allocatable`: the node's allocatable amounts, where the API server checks that the pod requests no more; else None.
    """
    gates = rules.gates
    known = active.get(pod.metadata.uid)
    if known is None:
        raise InputError(f"pod {pod.metadata.uid!r} is not on the node", path="metadata.uid", remedy="admit it first")
    desired = prepare_for_resize(default_pod(pod, gates), known.spec, gates)
    errors = validate_resize(desired, known.spec, gates, rules.release)
    if errors:
        raise InputError("; ".join(map(str, errors)))
    beyond = "" if allocatable is None else node_capacity_error(desired, allocatable)
    if beyond:
        raise InputError(f"the API server refuses the resize: {beyond}", path="spec.containers[...].resources")
    generation = max(pod.metadata.generation, max(known.spec.metadata.generation, 1) + 1)
    return replace(desired, metadata=replace(known.spec.metadata, generation=generation))


class _ResizeLimits(NamedTuple):
    """Amounts that a resized pod may request in all, as checked by the API server and by the node; None for the one
    that does not check."""

    api_server: Mapping[str, Quantity] | None
    node: Mapping[str, Quantity] | None


def _resize_limits(kubelet: Kubelet) -> _ResizeLimits:
    allocatable = kubelet.node_resources().allocatable
    waits = kubelet.quirks.resize_beyond_node_waits
    return _ResizeLimits(allocatable, None) if waits else _ResizeLimits(None, allocatable)


def api_server_allocatable(kubelet: Kubelet) -> Mapping[str, Quantity] | None:
    """Return the allocatable amounts that the API server checks a resize against, None where the node itself checks
    it."""
    return _resize_limits(kubelet).api_server


# Attempts


def resize(kubelet: Kubelet, pod: Pod, since: float | None = None) -> list[Attempt]:
    """Submit the changed specification of an active pod and try every waiting resize, this one among them.

    `since` is when its PodResizePending condition was set, in seconds of any clock.
    """
    kubelet.resizes.submit(PendingResize(kubelet.active[pod.metadata.uid].spec, pod, since), kubelet.sort_key)
    return retry_resizes(kubelet, "pod_updated")


def retry_resizes(kubelet: Kubelet, trigger: RetryTrigger) -> list[Attempt]:
    """Try the waiting resizes again, as a kubelet does on many occasions and every three minutes."""
    return kubelet.resizes.retry(trigger, partial(_try, kubelet))


def _try(kubelet: Kubelet, resize: PendingResize) -> ResizeVerdict:
    """Try one waiting resize: first the resize check, then the admission chain."""
    desired, manager, config = resize.desired, kubelet.manager, kubelet.config
    node = ResizeNode(
        gates=manager.context.gates,
        cpu_policy=config.cpu_manager_policy,
        memory_policy=config.memory_manager_policy,
        pod_scope=config.aligns_pods,
        exclusive_cpus=manager.elastic,
        exclusive_memory=manager.elastic_memory,
        os=kubelet.machine.operating_system,
        quirks=kubelet.quirks,
        release=kubelet.release,
        # Exclusive resources have rules of their own, which know more (`check_exclusive`).
        allocatable=None if manager.elastic or manager.elastic_memory else _resize_limits(kubelet).node,
    )
    return try_resize(desired, kubelet.active[desired.metadata.uid].spec, node, partial(_admit, kubelet))


def _admit(kubelet: Kubelet, desired: Pod) -> Refusal | ResizeVerdict | None:
    """Run the admission chain for an active pod that requests other resources. A refused one keeps what it has."""
    admission = kubelet.admission(desired)
    allocated = kubelet.active[admission.uid]
    manager, context = kubelet.manager, kubelet.manager.context
    if not (manager.elastic or manager.elastic_memory):
        return kubelet.decide(admission, stays=allocated)
    verdict = _mixed_verdict(kubelet, allocated, admission) or _infeasible(manager, allocated, admission)
    if verdict is not None:
        return verdict
    context.resizing = True
    before, left = manager.cpu.state, None
    # Growth must not count on offline CPUs: the resize gives them up first, and is promised others in their place.
    if before.offline and manager.cpu.rules.resizer is not None:
        left = give_up_lost(before, allocated, admission)
        manager.cpu.state = before if left is None else left.state
    refusal: Refusal | None = None
    try:
        refusal = kubelet.decide(admission, stays=allocated)
        if refusal is None and left is not None:
            manager.cpu.state = restore_promises(manager.cpu.state, admission.uid, left)
        if refusal is None or (kubelet.policy.resize.misfit == "deferred" and _fits_alone(kubelet, admission)):
            return refusal
    finally:
        context.resizing = False
        # A refused owner keeps its lost CPUs too: they are its own again when they come back.
        if refusal is not None:
            manager.cpu.state = before
    return _infeasible_refusal(manager, admission, refusal)


def _mixed_verdict(kubelet: Kubelet, allocated: AdmissionPod, desired: AdmissionPod) -> ResizeVerdict | None:
    """Return the refusal of amounts for which a mixed pod's annotation does not fit, None where it fits."""
    if not (allocated.mixed or desired.mixed):
        return None
    problems = [one for one in annotation_problems(kubelet.policy, desired.spec) if one.key == MIXED]
    if not problems and (crowd := kubelet.explain_mixed_surplus(desired)):
        problems = [AnnotationProblem(MIXED, crowd)]
    return ResizeVerdict(INFEASIBLE, problems[0].message, "mixed_cpus") if problems else None


def _fits_alone(kubelet: Kubelet, admission: AdmissionPod) -> bool:
    """Return whether a resize would be granted if no other pod were on the node. The state is restored."""
    context = kubelet.manager.context
    before, counted = kubelet.state, context.metrics
    context.metrics = counted.copy()
    try:
        for uid in [uid for uid in kubelet.active if uid != admission.uid]:
            kubelet.remove_pod(uid)
        return kubelet.decide(admission, stays=kubelet.active[admission.uid]) is None
    finally:
        kubelet.state, context.metrics = before, counted


def _infeasible(manager: ContainerManager, allocated: AdmissionPod, desired: AdmissionPod) -> ResizeVerdict | None:
    """Return why the new sizes can never be granted; None where free resources decide."""
    cpu, uid = manager.cpu, desired.uid
    verdict = None
    if cpu.rules.resizer is not None:
        verdict = check_exclusive(
            allocated,
            desired,
            {one.name: cpu.state.promised(uid, one.name) for one in allocated.containers},
            ResizeRules(manager.policy.resize, requested_resize(manager.policy, allocated.spec)),
            whole=desired.managed and manager.config.aligns_pods,
            pod_cpus=cpu.state.promised_to_pod(uid) if uid in cpu.state.pod_cpus else None,
            core_size=cpu.rules.core_size if cpu.options.full_pcpus_only else 1,
        )
    if verdict is None:
        try:
            manager.memory.check_whole(desired)
        except AdmissionError as error:
            return ResizeVerdict(INFEASIBLE, error.message, "empty_pod_pool")
    return verdict


def _infeasible_refusal(manager: ContainerManager, desired: AdmissionPod, refusal: Refusal) -> ResizeVerdict:
    """Return the verdict on sizes that would not fit even without the other pods."""
    detail = "topology"
    too_few = desired.cpus > manager.cpu.allocatable.bit_count() and manager.cpu.static
    if too_few or refusal.kind is NOTHING_LEFT:
        detail = "cpus"
    elif manager.memory.is_too_small_for(desired):
        detail = "memory"
    return ResizeVerdict(INFEASIBLE, refusal.message, detail)


# Answers


def resize_decisions(kubelet: Kubelet, attempts: Iterable[Attempt]) -> dict[str, ResizeDecision]:
    """Return the outcomes of the attempts by pod UID, and set the condition that each pod has from now on."""
    decisions = {attempt.uid: _decision(kubelet, attempt) for attempt in attempts}
    return {
        uid: replace(decision, others=tuple(other for other in decisions.values() if other is not decision))
        for uid, decision in decisions.items()
    }


def _decision(kubelet: Kubelet, attempt: Attempt) -> ResizeDecision:
    """Return the decision of one attempt, and set the pod's condition."""
    uid, verdict = attempt.uid, attempt.verdict
    metadata = attempt.pod.metadata
    known = kubelet.conditions.get(uid)
    kubelet.conditions = drop(kubelet.conditions, uid)
    condition = None
    events: tuple[PodEvent, ...] = ()
    if verdict.outcome == "Allocated":
        condition = in_progress_condition(metadata.generation)
        events = (_event(kubelet, "Started", attempt),)
    elif verdict.outcome != "Unchanged":
        condition = pending_condition(verdict.outcome, verdict.message, metadata.generation)
        kubelet.conditions = put(kubelet.conditions, uid, condition)
        events = (_event(kubelet, verdict.outcome, attempt),) if is_new_condition(condition, known) else ()
    return ResizeDecision(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=uid,
        outcome=verdict.outcome,
        message=verdict.message,
        detail=verdict.detail,
        trigger=attempt.trigger,
        condition=condition,
        events=events,
        restarts=attempt.restarts,
    )


def _event(kubelet: Kubelet, kind: ResizeStep, attempt: Attempt) -> PodEvent:
    gates, verdict = kubelet.manager.context.gates, attempt.verdict
    return resize_event(kind, attempt.pod, gates, kubelet.quirks, error=verdict.message, reason=verdict.reason)
