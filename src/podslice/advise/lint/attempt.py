"""Trials of what a finding advises: the changed pod is admitted on the empty node, before the advice is given."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from podslice.advise.explain.fixes.edits import with_amounts
from podslice.advise.lint.subject import PodSubject
from podslice.api.pod.demand import GUARANTEED, compute_qos
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod, PodStatus
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_pod
from podslice.node.decision import Decision
from podslice.node.node import with_default_uid
from podslice.values.errors import UpstreamDefectError
from podslice.values.quantity import Quantity
from podslice.values.quirks import PROFILE_RELEASES

SEARCH_ON = "podslice explain searches on: lint stops after some hundred trials"
NOTHING_HELPS = "no single change that was tried helps: choose another machine or configuration"


def admit_on_empty_node(subject: PodSubject, pod: Pod) -> Decision | None:
    """Return the empty node's answer to a pod; None where there is no node, or where upstream's kubelet hangs or
    crashes."""
    if subject.node is None or subject.node.view is None:
        return None
    try:
        return subject.node.new_node().admit(pod)
    except UpstreamDefectError:
        return None


def helps(subject: PodSubject, edited: Pod, owners: frozenset[str] = frozenset(), *, guaranteed: bool = False) -> bool:
    """Whether the API server and, where it is known, the empty node accept an edited pod, it is Guaranteed if that is
    asked for, and these containers are entitled to exclusive CPUs in it."""
    pod = default_pod(edited, subject.gates)
    # Errors that the pod has anyway are findings of their own.
    if {*validate_pod(pod, subject.gates)} - {*validate_pod(subject.pod, subject.gates)}:
        return False
    if guaranteed and compute_qos(pod, subject.gates) != GUARANTEED:
        return False
    if owners:
        # A class that the API server has stored is that of the pod before the edit.
        fresh = msgspec.structs.replace(pod, status=PodStatus())
        admission = AdmissionPod.of(fresh, subject.gates, release=PROFILE_RELEASES[subject.profile])
        entitled = {one.name for one in admission.containers if one.exclusive_cpus}
        if not owners <= entitled:
            return False
    if subject.node is None or subject.node.view is None:
        return True
    decision = admit_on_empty_node(subject, pod)
    return decision is not None and decision.admitted


def advise(subject: PodSubject, candidates: Iterable[tuple[str, Pod]], otherwise: str = "") -> str:
    """Return the texts of the candidates, each with the pod it leads to, that help; where none does, `otherwise`, or
    the first fix of `podslice explain`."""
    texts = [text for text, edited in candidates if helps(subject, edited)]
    return ", or ".join(texts) or otherwise or explain_fix(subject)


def choose_tried(subject: PodSubject, candidates: Iterable[tuple[str, Pod]], owner: str) -> str:
    """Return the texts of the candidates that help, `2 or 4`, empty for none. The container `owner` owns CPUs then."""
    owners = frozenset({owner} if owner and subject.static_cpus is not False else ())
    return " or ".join(text for text, edited in candidates if helps(subject, edited, owners))


def explain_fix(subject: PodSubject) -> str:
    """Return the best change after which the empty node admits a pod that it refuses, as explain finds it."""
    explainer = None if subject.node is None else subject.node.explainer
    if explainer is None or subject.node is None:
        return NOTHING_HELPS
    subject.node.trials.refill()
    explanation = explainer.explain(with_default_uid(subject.written))
    if not explanation.fixes:
        return SEARCH_ON if explanation.unsearched else NOTHING_HELPS
    text = explanation.fixes[0].text.rstrip(".")
    return text[:1].lower() + text[1:]


def with_cpus(subject: PodSubject, owner: str, cpus: int) -> Pod:
    """Return the pod with another number of CPUs in a container, or with an empty `owner` for the pod as a whole."""
    return with_amounts(subject.pod, {(owner, "cpu"): Quantity.of(cpus)})
