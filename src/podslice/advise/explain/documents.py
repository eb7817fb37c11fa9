"""Documents that `podslice explain` prints."""

from __future__ import annotations

import msgspec

from podslice.admit.documents import ClaimAnswer
from podslice.advise.explain.causes.cause import Causes
from podslice.advise.explain.explain import Explanation
from podslice.advise.explain.fixes.fix import AffectedPod, Edit, Fix
from podslice.advise.explain.resize import ResizedContainer, ResizeExplanation
from podslice.advise.explain.trace import Trace
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import Provenance
from podslice.evidence.said import KubeletStatus


class ShownFix(msgspec.Struct, frozen=True):
    """A change after which the pod is admitted: its class, in words, its price and the fields to edit. `pods` are the
    UIDs of the pods that it moves or removes; `drained`: the node is emptied first. `losses` are the guarantees it
    gives up: `alignment`, `cpu-class`, `exclusive-cpus`, `full-cores`, `memory-binding`, `promised-cpus`, `resources`,
    `strict-reservation`. `because` says why it helps where that is not plain; `commands` carry it out, with what to
    edit as comments; `affected` are the other pods that it deletes, restarts or moves."""

    code: str
    text: str
    cost: float
    edits: tuple[Edit, ...]
    pods: tuple[str, ...]
    drained: bool
    losses: tuple[str, ...]
    because: str = ""
    commands: tuple[str, ...] = ()
    affected: tuple[AffectedPod, ...] = ()


class ExplainedPod(Trace, frozen=True, rename="camel", kw_only=True):
    """Everything about one decision.

    `why` are sentences: of a refused pod what keeps it out, the binding cause first, of an admitted one where it is and
    the rule that chose; `causes` are the former as values. `story` tells the decision in order; `fixes` are the changes
    that would make a refused pod fit, `unsearched` the reason why there are none, or not all, though some change might
    help. `said` is the pod's status as the kubelet wrote it, null without one; `reason` and `message` are what is
    expected of it. `contradiction` is how the two differ, null where they do not."""

    why: tuple[str, ...] = ()
    causes: Causes = Causes()
    story: tuple[str, ...]
    fixes: tuple[ShownFix, ...]
    unsearched: str = ""
    said: KubeletStatus | None = None
    contradiction: Contradiction | None = None


class ExplainedResize(msgspec.Struct, frozen=True, rename="camel"):
    """Everything about one resize: the answer, the CPUs of its containers before and after, its story in sentences, and
    for a resize that is not granted the changes that would let it in."""

    name: str
    namespace: str
    uid: str
    outcome: str
    message: str
    detail: str
    containers: tuple[ResizedContainer, ...]
    story: tuple[str, ...]
    fixes: tuple[ShownFix, ...]
    unsearched: str = ""


class ExplanationList(msgspec.Struct, frozen=True):
    """One explanation for each pod, in the order of the files, and for each resize after them. `claims` holds for each
    claim what the scheduler allocates, or why it does not. Pods that wait for their claims have no explanation.
    `provenance` is what they rest on."""

    items: tuple[ExplainedPod, ...]
    resizes: tuple[ExplainedResize, ...] = ()
    claims: tuple[ClaimAnswer, ...] = ()
    provenance: Provenance = Provenance()


def pod_document(explanation: Explanation, contradiction: Contradiction | None = None) -> ExplainedPod:
    """Return the document of one pod's explanation, and of how it contradicts the pod's status; a fix names what it
    changes, not whole pods."""
    fixes = tuple(map(_fix_document, explanation.fixes))
    facts = msgspec.structs.asdict(explanation.trace)
    return ExplainedPod(
        **facts,
        why=explanation.why,
        causes=explanation.causes,
        story=explanation.story,
        fixes=fixes,
        unsearched=explanation.unsearched,
        said=explanation.said,
        contradiction=contradiction,
    )


def resize_document(explanation: ResizeExplanation) -> ExplainedResize:
    """Return the document of one resize's explanation."""
    facts = msgspec.structs.asdict(explanation)
    return ExplainedResize(**{**facts, "fixes": tuple(map(_fix_document, explanation.fixes))})


def _fix_document(fix: Fix) -> ShownFix:
    return ShownFix(
        code=fix.code,
        text=fix.text,
        cost=fix.cost,
        edits=fix.edits,
        pods=tuple(getattr(fix.change, "uids", ())),
        drained=getattr(fix.change, "drained", False),
        losses=fix.losses,
        because=fix.because,
        commands=fix.commands,
        affected=fix.affected,
    )
