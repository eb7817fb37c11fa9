"""Explaining a resize: what a pod has, what it requests, what stands in the way, and for a resize that is not granted
the changes that let it in, each of them tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from podslice.advise.explain.fixes.fix import Fix, text_of
from podslice.advise.explain.fixes.resize_fixes import MovesFor, ResizeFixes
from podslice.advise.trial.trial import Moved, Trial
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.resizable import containers_to_restart
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.node.node import Node, with_default_uid
from podslice.node.refusal import free_cpus_text, policy_demand_text
from podslice.node.resize.allocation import DEFERRED, INFEASIBLE, ResizeVerdict
from podslice.node.resize.events import restart_note
from podslice.node.view import NodeView
from podslice.values.cpuset import CPUSet

_GRANTED = ("Allocated", "Unchanged")
NOT_SEARCHED = "Changes that would let it in were not searched for."
_FINAL = {
    "topology": "It would not fit if no other pod were here either.",
    "cpus": "The node has too few CPUs for it.",
}


class ResizedContainer(msgspec.Struct, frozen=True, rename="camel"):
    """A container whose resources a resize changes. `asked_before` and `asked` are its CPU requests; `cpus_before` and
    `cpus` are the CPUs that it owns (empty: it shares), before and after; `promised` are those of its admission."""

    name: str
    asked_before: str
    asked: str
    promised: CPUSet
    cpus_before: CPUSet
    cpus: CPUSet


class ResizeExplanation(msgspec.Struct, frozen=True):
    """The answer for one resize. `outcome`, `message` and `detail` are those of the decision; `story` are sentences;
    with each of `fixes`, best first, the resize is granted. `unsearched` is the reason why none were searched for."""

    name: str
    namespace: str
    uid: str
    outcome: str
    message: str
    detail: str
    containers: tuple[ResizedContainer, ...]
    story: tuple[str, ...]
    fixes: tuple[Fix, ...] = ()
    unsearched: str = ""

    @property
    def granted(self) -> bool:
        """Whether the pod has what it requested."""
        return self.outcome in _GRANTED


class ResizeResult(NamedTuple):
    """An explanation, and the node before and after the resize."""

    explanation: ResizeExplanation
    before: NodeView
    after: NodeView


def no_moves(node: Trial, pod: Pod) -> tuple[Moved, ...]:
    """Find no moves: the default where no search for moves of other containers is given."""
    return ()


def explain_resize(node: Node, pod: Pod, *, fixes: bool = True, moves: MovesFor = no_moves) -> ResizeExplanation:
    """Explain why a node grants or refuses a resize of a pod that is on it. The node stays as it is. Raises
    `InputError` as `Node.resize`."""
    return next(explain_resizes(node, [pod], fixes=fixes, moves=moves)).explanation


def explain_resizes(
    node: Node, pods: Iterable[Pod], *, fixes: bool = True, moves: MovesFor = no_moves
) -> Iterator[ResizeResult]:
    """Explain one resize after the other, on a copy of the node; granted resources stay for those after it, and
    deferred resizes wait there. `moves` searches moves of other containers that make room."""
    trial = Trial.of(node)
    for one in pods:
        before, copy = trial.view, trial.copy()
        pod = default_pod(with_default_uid(one), before.gates)
        verdict = trial.resize(pod)
        found: tuple[Fix, ...] = ()
        if fixes and verdict.outcome not in _GRANTED:
            found = tuple(ResizeFixes(copy, pod, verdict, moves).find())
        explanation = _explanation(before, trial.view, pod, verdict, found)
        if not fixes and not explanation.granted:
            explanation = msgspec.structs.replace(explanation, unsearched=NOT_SEARCHED)
        yield ResizeResult(explanation, before, trial.view)


def _explanation(
    before: NodeView, after: NodeView, pod: Pod, verdict: ResizeVerdict, fixes: tuple[Fix, ...]
) -> ResizeExplanation:
    was = before.pods[pod.metadata.uid]
    metadata, wants = was.spec.metadata, before.admission(pod)
    changed = tuple(_changes(before, after, was, wants))
    story = tuple(_story(before, was, wants, verdict, changed))
    name, namespace = metadata.name, metadata.namespace or "default"
    answer = verdict.outcome, verdict.message, verdict.detail
    return ResizeExplanation(name, namespace, was.uid, *answer, changed, story, fixes)


def _changes(before: NodeView, after: NodeView, was: AdmissionPod, wants: AdmissionPod) -> Iterator[ResizedContainer]:
    wanted = {one.name: one for one in wants.containers}
    for one in was.containers:
        desired = wanted.get(one.name, one)
        if _cpu(desired) == _cpu(one) and before.owners.get(was.uid) == after.owners.get(was.uid):
            continue
        held = (before.assignment(was.uid, one.name) or 0, after.assignment(was.uid, one.name) or 0)
        if _cpu(desired) == _cpu(one) and held[0] == held[1]:
            continue
        yield ResizedContainer(
            one.name,
            _cpu(one),
            _cpu(desired),
            CPUSet.from_bits(before.promised(was.uid, one.name)),
            CPUSet.from_bits(held[0]),
            CPUSet.from_bits(held[1]),
        )


def _cpu(container: AdmissionContainer) -> str:
    return text_of((container.spec.resources.requests or {}).get("cpu")) or "0"


# Sentences


def _story(
    node: NodeView,
    was: AdmissionPod,
    wants: AdmissionPod,
    verdict: ResizeVerdict,
    containers: tuple[ResizedContainer, ...],
) -> Iterator[str]:
    name = was.spec.metadata.full_name
    yield f"{name}: the resize is {_outcome(verdict)}"
    if was.uid in node.pod_cpus:
        promised = CPUSet.from_bits(node.pod_cpus[was.uid] & ~node.pod_loans.get(was.uid, 0))
        whole = CPUSet.from_bits(node.pod_cpus[was.uid])
        yield f"The pod owns {_sets(whole, promised)}, and asks for {wants.cpus} as a whole."
    for one in containers:
        yield _describe_container(one, granted=verdict.outcome in _GRANTED)
    if verdict.outcome == "Allocated" and (restarts := containers_to_restart(was.spec, wants.spec)):
        yield f"The resize {restart_note(restarts)}"
    if verdict.outcome == DEFERRED or verdict.detail in _FINAL:
        yield f"{free_cpus_text(node)}."
        if node.config.aligns and (node.single_numa_node or node.config.topology_manager_policy == "restricted"):
            yield f"{policy_demand_text(node)} What the pod has already counts: a growth keeps it."
    if verdict.outcome == DEFERRED:
        yield "It waits, and is tried again whenever a pod changes, comes, leaves or ends, and every three minutes."
    elif verdict.outcome == INFEASIBLE:
        final = _FINAL.get(verdict.detail, "")
        yield f"{final} It is not tried again before the pod changes.".strip()


def _outcome(verdict: ResizeVerdict) -> str:
    if verdict.outcome == "Allocated":
        return "granted."
    if verdict.outcome == "Unchanged":
        return "granted already: nothing changes."
    return f"{'put off (Deferred)' if verdict.outcome == DEFERRED else 'refused (Infeasible)'}: {verdict.message}"


def _describe_container(one: ResizedContainer, *, granted: bool) -> str:
    had = f"owns {_sets(one.cpus_before, one.promised)}" if one.cpus_before else "shares CPUs"
    text = f"Container {one.name} {had}, and asks for {one.asked} CPUs instead of {one.asked_before}."
    if not granted:
        return text
    came, went = one.cpus - one.cpus_before, one.cpus_before - one.cpus
    parts = [f"gets {came}"] * bool(came) + [f"gives back {went}"] * bool(went)
    return f"{text} It {' and '.join(parts)}." if parts else f"{text} It keeps what it has."


def _sets(owned: CPUSet, promised: CPUSet) -> str:
    cpus = f"{len(owned)} CPU{'s' if len(owned) != 1 else ''} ({owned})"
    if owned == promised:
        return f"{cpus}, all of them promised at its admission"
    return f"{cpus}, of which {promised} were promised at its admission"
