"""The answer of `podslice explain`."""

from __future__ import annotations

import msgspec

from podslice.admit.documents import ClaimAnswer
from podslice.advise.explain.explain import Explanation
from podslice.advise.explain.fixes.fix import Edit, Fix
from podslice.advise.explain.resize import ResizedContainer, ResizeExplanation
from podslice.advise.explain.trace import Trace


class ShownFix(msgspec.Struct, frozen=True):
    """A change after which the pod is admitted: its class, in words, its price and the fields to edit. `pods` are the
    UIDs of the pods that it moves or removes; `drained`: the node is emptied first. `losses` are the guarantees it
    gives up: `alignment`, `cpu-class`, `exclusive-cpus`, `full-cores`, `memory-binding`, `promised-cpus`,
    `strict-reservation`."""

    code: str
    text: str
    cost: float
    edits: tuple[Edit, ...]
    pods: tuple[str, ...]
    drained: bool
    losses: tuple[str, ...]


class ExplainedPod(Trace, frozen=True, rename="camel", kw_only=True):
    """Everything about one decision, its story in sentences, and what would make a refused pod fit."""

    story: tuple[str, ...]
    fixes: tuple[ShownFix, ...]


class ExplainedResize(msgspec.Struct, frozen=True, rename="camel"):
    """Everything about one resize: the answer, what its containers had and have, its story in sentences, and what
    would let one in that is not granted."""

    name: str
    namespace: str
    uid: str
    outcome: str
    message: str
    detail: str
    containers: tuple[ResizedContainer, ...]
    story: tuple[str, ...]
    fixes: tuple[ShownFix, ...]


class ExplanationList(msgspec.Struct, frozen=True):
    """One explanation for each pod, in the order of the files, and for each resize after them; `claims` says of claims
    what the scheduler gives them, or why it does not. Pods that wait for theirs have no explanation."""

    items: tuple[ExplainedPod, ...]
    resizes: tuple[ExplainedResize, ...] = ()
    claims: tuple[ClaimAnswer, ...] = ()


def explained(explanation: Explanation) -> ExplainedPod:
    """The explanation of one pod; a fix names what it changes, not whole pods."""
    fixes = tuple(map(_shown, explanation.fixes))
    facts = msgspec.structs.asdict(explanation.trace)
    return ExplainedPod(**facts, story=explanation.story, fixes=fixes)


def explained_resize(explanation: ResizeExplanation) -> ExplainedResize:
    """The explanation of one resize."""
    facts = msgspec.structs.asdict(explanation)
    return ExplainedResize(**{**facts, "fixes": tuple(map(_shown, explanation.fixes))})


def _shown(fix: Fix) -> ShownFix:
    return ShownFix(
        code=fix.code,
        text=fix.text,
        cost=fix.cost,
        edits=fix.edits,
        pods=tuple(getattr(fix.change, "uids", ())),
        drained=getattr(fix.change, "drained", False),
        losses=fix.losses,
    )
