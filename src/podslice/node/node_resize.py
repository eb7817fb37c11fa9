"""In-place resizes of a kubelet's pods: what somebody asks for, how it is tried, and what is said about it.

A resize is tried with the admission chain: whoever gets all it asks for has it, whoever is refused keeps what it has.
What containers own is resized by podslice only; there, rules say first whether waiting can help (docs/resize.md).
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
from podslice.config.annotations import MIXED, AnnotationProblem, annotation_problems, resize_wishes
from podslice.node.container import ContainerManager
from podslice.node.cpu.manager import NOTHING_LEFT
from podslice.node.decision import ResizeDecision
from podslice.node.hotplug.degraded import leave_lost, promise_again
from podslice.node.kubelet import Kubelet
from podslice.node.resize.allocation import INFEASIBLE, ResizeNode, ResizeVerdict, try_resize
from podslice.node.resize.events import ResizeStep, in_progress_condition, is_news, pending_condition, resize_event
from podslice.node.resize.exclusive import ResizeRules, check_exclusive
from podslice.node.resize.pending import Attempt, PendingResize, RetryTrigger
from podslice.values.errors import AdmissionError, InputError, Refusal
from podslice.values.quantity import Quantity
from podslice.values.tables import drop, put


def resize_wish(
    active: Mapping[str, AdmissionPod],
    pod: Pod,
    gates: Mapping[str, bool],
    allocatable: Mapping[str, Quantity] | None = None,
) -> Pod:
    """A pod of the node as the API server stores it once somebody asked for the resources of `pod`. Raises `InputError`
    for a pod that is not there, and with the API server's errors.

    `allocatable`: what its node may give in all, where the API server is to look whether the pod asks for more."""
    known = active.get(pod.metadata.uid)
    if known is None:
        raise InputError(f"pod {pod.metadata.uid!r} is not on the node", path="metadata.uid", remedy="admit it first")
    desired = prepare_for_resize(default_pod(pod, gates), known.spec, gates)
    errors = validate_resize(desired, known.spec, gates)
    if errors:
        raise InputError("; ".join(map(str, errors)))
    beyond = "" if allocatable is None else node_capacity_error(desired, allocatable)
    if beyond:
        raise InputError(f"the API server refuses the resize: {beyond}", path="spec.containers[...].resources")
    generation = max(pod.metadata.generation, max(known.spec.metadata.generation, 1) + 1)
    return replace(desired, metadata=replace(known.spec.metadata, generation=generation))


class _LookedAt(NamedTuple):
    """What pods may request in all, for whoever compares a resize with it; None for who does not."""

    api_server: Mapping[str, Quantity] | None
    node: Mapping[str, Quantity] | None


def _looked_at(kubelet: Kubelet) -> _LookedAt:
    allocatable = kubelet.node_resources().allocatable
    waits = kubelet.quirks.resize_beyond_node_waits
    return _LookedAt(allocatable, None) if waits else _LookedAt(None, allocatable)


def api_server_allocatable(kubelet: Kubelet) -> Mapping[str, Quantity] | None:
    """What the API server compares a resize with, where the node itself does not look."""
    return _looked_at(kubelet).api_server


# Trying


def resize(kubelet: Kubelet, pod: Pod, since: float | None = None) -> list[Attempt]:
    """The specification of an active pod changed; every waiting resize is tried, this one among them.

    `since` is when its PodResizePending condition was set, in seconds of any clock.
    """
    kubelet.resizes.submit(PendingResize(kubelet.active[pod.metadata.uid].spec, pod, since), kubelet.sort_key)
    return retry_resizes(kubelet, "pod_updated")


def retry_resizes(kubelet: Kubelet, trigger: RetryTrigger) -> list[Attempt]:
    """Try the waiting resizes again, as a kubelet does on many occasions and every three minutes."""
    return kubelet.resizes.retry(trigger, partial(_try, kubelet))


def _try(kubelet: Kubelet, resize: PendingResize) -> ResizeVerdict:
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
        # What containers own has rules of its own, which know more.
        allocatable=None if manager.elastic or manager.elastic_memory else _looked_at(kubelet).node,
    )
    return try_resize(desired, kubelet.active[desired.metadata.uid].spec, node, partial(_admit, kubelet))


def _admit(kubelet: Kubelet, desired: Pod) -> Refusal | ResizeVerdict | None:
    """The admission chain for an active pod that wants other resources. A refused one keeps what it has."""
    admission = kubelet.admission(desired)
    allocated = kubelet.active[admission.uid]
    manager, context = kubelet.manager, kubelet.manager.context
    if not (manager.elastic or manager.elastic_memory):
        return kubelet.decide(admission, stays=allocated)
    verdict = _mixed_verdict(kubelet, allocated, admission) or _never(manager, allocated, admission)
    if verdict is not None:
        return verdict
    context.resizing = True
    before, left = manager.cpu.state, None
    if before.offline and manager.cpu.rules.resizer is not None:
        left = leave_lost(before, allocated, admission)
        manager.cpu.state = before if left is None else left.state
    refusal: Refusal | None = None
    try:
        refusal = kubelet.decide(admission, stays=allocated)
        if refusal is None and left is not None:
            manager.cpu.state = promise_again(manager.cpu.state, admission.uid, left)
        if refusal is None or (kubelet.policy.resize.misfit == "deferred" and _fits_alone(kubelet, admission)):
            return refusal
    finally:
        context.resizing = False
        if refusal is not None:
            manager.cpu.state = before
    return _hopeless(manager, admission, refusal)


def _mixed_verdict(kubelet: Kubelet, allocated: AdmissionPod, desired: AdmissionPod) -> ResizeVerdict | None:
    """Why a pod with mixed containers cannot have these amounts: its annotation is about others."""
    if not (allocated.mixed or desired.mixed):
        return None
    problems = [one for one in annotation_problems(kubelet.policy, desired.spec) if one.key == MIXED]
    if not problems and (crowd := kubelet.mixed_surplus(desired)):
        problems = [AnnotationProblem(MIXED, crowd)]
    return ResizeVerdict(INFEASIBLE, problems[0].message, "mixed_cpus") if problems else None


def _fits_alone(kubelet: Kubelet, admission: AdmissionPod) -> bool:
    """True when a resize would be granted if no other pod were on the node."""
    context = kubelet.manager.context
    before, counted = kubelet.state, context.metrics
    context.metrics = counted.copy()
    try:
        for uid in [uid for uid in kubelet.active if uid != admission.uid]:
            kubelet.remove_pod(uid)
        return kubelet.decide(admission, stays=kubelet.active[admission.uid]) is None
    finally:
        kubelet.state, context.metrics = before, counted


def _never(manager: ContainerManager, allocated: AdmissionPod, desired: AdmissionPod) -> ResizeVerdict | None:
    """Why the new sizes can never be granted; None where it is for what is free to decide."""
    cpu, uid = manager.cpu, desired.uid
    verdict = None
    if cpu.rules.resizer is not None:
        verdict = check_exclusive(
            allocated,
            desired,
            {one.name: cpu.state.promised(uid, one.name) for one in allocated.containers},
            ResizeRules(manager.policy.resize, resize_wishes(manager.policy, allocated.spec)),
            whole=desired.managed and manager.config.aligns_pods,
            bubble=cpu.state.promised_to_pod(uid) if uid in cpu.state.bubbles else None,
            core_size=cpu.rules.core_size if cpu.options.full_pcpus_only else 1,
        )
    if verdict is None:
        try:
            manager.memory.check_whole(desired)
        except AdmissionError as error:
            return ResizeVerdict(INFEASIBLE, error.message, "empty_pod_pool")
    return verdict


def _hopeless(manager: ContainerManager, desired: AdmissionPod, refusal: Refusal) -> ResizeVerdict:
    """The verdict about sizes that would not fit if no other pod were there either."""
    detail = "topology"
    too_few = desired.cpus > manager.cpu.allocatable.bit_count() and manager.cpu.static
    if too_few or refusal.kind is NOTHING_LEFT:
        detail = "cpus"
    elif manager.memory.is_too_small_for(desired):
        detail = "memory"
    return ResizeVerdict(INFEASIBLE, refusal.message, detail)


# Telling


def resize_decisions(kubelet: Kubelet, attempts: Iterable[Attempt]) -> dict[str, ResizeDecision]:
    """What became of the attempts by pod UID, with the condition each pod has from now on."""
    decisions = {attempt.uid: _decision(kubelet, attempt) for attempt in attempts}
    return {
        uid: replace(decision, others=tuple(other for other in decisions.values() if other is not decision))
        for uid, decision in decisions.items()
    }


def _decision(kubelet: Kubelet, attempt: Attempt) -> ResizeDecision:
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
        events = (_event(kubelet, verdict.outcome, attempt),) if is_news(condition, known) else ()
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
