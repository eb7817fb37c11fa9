"""Explaining a pod on a node: the trace of its admission, its story, and for a refused pod the ranked fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from podslice.advise.explain.causes.cause import Causes
from podslice.advise.explain.causes.search import DEFECT, CauseFinder, Refused
from podslice.advise.explain.causes.words import sentences
from podslice.advise.explain.fixes.alternatives import Alternatives, GivenUpError
from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.explain.fixes.commands import renamed
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.explain.fixes.search import Found, search_fixes
from podslice.advise.explain.placement import placement_sentences
from podslice.advise.explain.sharing import sharing_sentences
from podslice.advise.explain.story import story
from podslice.advise.explain.trace import Trace, trace
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.evidence.said import KubeletStatus, status_said
from podslice.node.effects.quota_words import quota_sentence
from podslice.node.node import Node
from podslice.node.pod_remarks import budget_remarks
from podslice.node.shared_pool import describe_pool, idle_notes
from podslice.node.view import NodeView
from podslice.values.errors import Refusal, UpstreamDefectError
from podslice.values.shown import Shown, plain_data

replace = msgspec.structs.replace
_MOST_REMEMBERED = 256
_MOST_IDLE = 3
NOT_SEARCHED = "Changes that would make it fit were not searched for."
_GIVEN_UP = "The search for changes that make it fit was stopped: it takes too long."


class Explanation(Shown, msgspec.Struct, frozen=True):
    """The answer for one pod. `story` are sentences; `fixes`, best first, all admit the pod when applied. `unsearched`
    is the reason why there are none, or not all, though some change might help; empty where all were searched. `said`
    is the pod's status as the kubelet wrote it, None without one. `causes` are what keeps a refused pod out; `why` are
    they in sentences, the binding one first, and of an admitted pod where it is and the rule that chose."""

    trace: Trace
    story: tuple[str, ...]
    fixes: tuple[Fix, ...]
    unsearched: str = ""
    said: KubeletStatus | None = None
    causes: Causes = Causes()
    why: tuple[str, ...] = ()

    def __repr__(self) -> str:
        trace = self.trace
        verdict = "admitted" if trace.admitted else f"refused, {trace.code}, fixes: {len(self.fixes)}"
        return f"<Explanation {trace.namespace}/{trace.name}: {verdict}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as `podslice explain -o json` prints it."""
        from podslice.advise.explain.documents import pod_document  # imports this module

        return plain_data(pod_document(self))


def _idle_sentences(view: NodeView) -> Iterator[str]:
    """Yield what keeps CPUs from a refused pod although nothing uses them."""
    for note in islice(idle_notes(view), _MOST_IDLE):
        yield f"{note}."


class Explainer:
    """Explains pods on one node, which must stay as it is while the explainer is used.

    Answers about the node are shared between pods: a hundred refused pods cost far less than a hundred times one. Once
    `given_up` returns True, the search for fixes stops, and explanations come without any.
    """

    def __init__(self, node: Trial, given_up: Callable[[], bool] | None = None) -> None:
        self._nodes = Alternatives(node, given_up)
        self._gates = self._nodes.view.gates
        self._clean = self._nodes.view.undoes_refusals
        self._known: dict[tuple[bytes, bool], Explanation] = {}

    def explain(self, pod: Pod, *, fixes: bool = True) -> Explanation:
        """Explain what the node does with a pod, which need not be on it."""
        pod = default_pod(pod, self._gates)
        key = self._equivalence_key(pod), fixes
        # Replicas of one Deployment differ only in name and UID: the first one's explanation serves all.
        known = self._known.get(key)
        if known is None:
            decision, causes, placed = self._decide(pod)
            why, said = placed or sentences(causes, decision.code), status_said(pod)
            try:
                found = search_fixes(self._nodes, pod) if fixes and not decision.admitted else Found([])
            except GivenUpError:
                given_up = Explanation(decision, tuple(story(decision)), (), _GIVEN_UP, said, causes, why)
                return _for_pod(given_up, pod)
            *beginning, ending = story(decision)
            if decision.admitted:
                beginning[1:1] = self._remarks(pod, decision)
            idle = () if decision.admitted else self._idle
            unsearched = found.unsearched if fixes or decision.admitted else NOT_SEARCHED
            # The ending stays last: tables print it first.
            whole = (*beginning, *idle, ending)
            known = Explanation(decision, whole, tuple(found.fixes), unsearched, said, causes, why)
            if not decision.admitted and pod.metadata.uid not in self._nodes.view.pods:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[key] = known
        return _for_pod(known, pod)

    def _remarks(self, pod: Pod, decision: Trace) -> Iterator[str]:
        """Yield what people ask about an admitted pod: why it owns no CPUs, why it is throttled, why the pool is small,
        and what of its budget is wasted."""
        yield from sharing_sentences(pod, decision, self._nodes.view, self._admits)
        yield from self._quota(pod, decision)
        yield from self._pool(decision)
        yield from self._unused(pod)

    def _admits(self, pod: Pod) -> bool:
        """Whether the node as it is admits a pod."""
        return self._nodes.node.copy().try_admit(pod)

    def _quota(self, pod: Pod, decision: Trace) -> Iterator[str]:
        """Yield which CPU quota throttles which container, where containers may own CPUs."""
        view = self._nodes.view
        owners = [one.name for one in decision.containers if one.exclusive_cpus and one.eligibility == "exclusive"]
        if not view.pins_cpus:
            return
        if text := quota_sentence(pod, view.gates, view.release, owners, cfs_quota=view.config.cpu_cfs_quota):
            yield text

    def _pool(self, decision: Trace) -> Iterator[str]:
        """Yield who owns the CPUs that a pod does not get which shares the rest."""
        view = self._nodes.view
        if not view.pins_cpus or any(one.exclusive_cpus for one in decision.containers):
            return
        if text := describe_pool(view):
            yield f"{text}."

    def _unused(self, pod: Pod) -> Iterator[str]:
        """Yield what of the pod's budget no container can use."""
        view = self._nodes.view
        admission = view.admission(pod)
        for text in budget_remarks(admission, view.gates, whole=view.places_whole(admission)):
            yield f"{text[:1].upper()}{text[1:]}."

    def with_pod(self, pod: Pod) -> Trial:
        """Return a copy of the node after an admitted pod was admitted there and its containers started."""
        copy = self._nodes.recorder
        copy.try_run(pod)
        self._nodes.forget_recorder()
        return copy

    def find_fixes(self, pod: Pod) -> list[Fix]:
        """Return every fix of a refused pod in the searched classes (docs/explain.md): first those that give up no
        guarantee, then by cost.

        A pod that the API server refuses gets only edits as fixes. Where draining the node alone helps, other changes
        that need a drained node are left out.
        """
        return search_fixes(self._nodes, default_pod(pod, self._gates)).fixes

    def _equivalence_key(self, pod: Pod) -> bytes:
        """Return a key that is equal for pods that differ in name and UID only."""
        return msgspec.json.encode(replace(pod, metadata=replace(pod.metadata, name="", uid="")), enc_hook=str)

    def _decide(self, pod: Pod) -> tuple[Trace, Causes, tuple[str, ...]]:
        """Return the trace of a pod's admission, the causes of its refusal, and where an admitted one is."""
        node = self._nodes.recorder if self._clean else self._nodes.node.copy()
        admission = node.view.admission(pod)
        with node.recording() as record:
            try:
                refusal = node.admit(pod)
            except UpstreamDefectError as defect:
                refusal = Refusal(DEFECT, {"defect": defect.sentence, "name": defect.name})
        # A refusal leaves the recorder as it was (`undoes_refusals`), so it serves the next pod; an admission or a
        # crash does not.
        if refusal is None or refusal.kind == DEFECT:
            self._nodes.forget_recorder()
        decision = trace(node.view, admission, record, refusal)
        if refusal is None:
            return decision, Causes(), tuple(placement_sentences(node.view, pod.metadata.uid, decision.steps))
        return decision, self._finder.find(pod, admission, Refused(record, refusal)), ()

    @cached_property
    def _idle(self) -> tuple[str, ...]:
        return tuple(_idle_sentences(self._nodes.view))

    @cached_property
    def _finder(self) -> CauseFinder:
        return CauseFinder(self._nodes.node.copy(), self._nodes.view)


class Explained(NamedTuple):
    """An explanation, and the node before and after the pod; the same one where it was refused."""

    explanation: Explanation
    before: NodeView
    after: NodeView


def explain_each(node: Node, pods: Iterable[Pod], *, fixes: bool = True) -> Iterator[Explained]:
    """Explain one pod after the other; admitted pods stay for those after them, on a copy of the node."""
    now = Trial.of(node)
    explainer = Explainer(now)
    for pod in pods:
        explanation = explainer.explain(pod, fixes=fixes)
        before = now.view
        if explanation.trace.admitted:
            now = explainer.with_pod(pod)
            explainer = Explainer(now)
            uid, steps = explanation.trace.uid, explanation.trace.steps
            explanation = replace(explanation, why=tuple(placement_sentences(now.view, uid, steps)))
        yield Explained(explanation, before, now.view)


def explain(node: Node, pod: Pod, *, fixes: bool = True) -> Explanation:
    """Explain what this node does with a pod. The node is left as it is; the pod need not be on it."""
    return Explainer(Trial.of(node)).explain(pod, fixes=fixes)


def find_fixes(node: Node, pod: Pod) -> list[Fix]:
    """Return every fix of a refused pod, as `Explainer.find_fixes`."""
    return Explainer(Trial.of(node)).find_fixes(pod)


def _with_name_of(edited: Pod, pod: Pod) -> Pod:
    """Return an edited pod with another one's metadata, except the annotations, which may have been edited."""
    return replace(edited, metadata=replace(pod.metadata, annotations=edited.metadata.annotations))


def _fix_for_pod(fix: Fix, pod: Pod) -> Fix:
    change = fix.change
    return replace(fix, change=EditPod(_with_name_of(change.pod, pod))) if isinstance(change, EditPod) else fix


def _for_pod(known: Explanation, pod: Pod) -> Explanation:
    """Return an explanation for a pod that differs in name and UID only."""
    metadata, cached = pod.metadata, known.trace
    if (cached.name, cached.uid) == (metadata.name, metadata.uid):
        return known
    decision = replace(cached, name=metadata.name, uid=metadata.uid)
    before = replace(metadata, name=cached.name)
    fixes = tuple(_fix_for_pod(renamed(fix, before, metadata), pod) for fix in known.fixes)
    opening = next(iter(story(decision)))
    return replace(known, trace=decision, story=(opening, *known.story[1:]), fixes=fixes)
