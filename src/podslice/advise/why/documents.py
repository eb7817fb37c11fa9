"""The document of `podslice why`."""

from __future__ import annotations

import msgspec

from podslice.advise.explain.documents import ExplainedPod, pod_document
from podslice.advise.explain.explain import Explanation
from podslice.advise.why.diagnosis import Diagnosis
from podslice.advise.why.reported import PodEventLine, ReportedPod
from podslice.evidence.provenance import Provenance


class PodDiagnosis(msgspec.Struct, frozen=True, rename="camel"):
    """Why a pod is as it is. `code` is stable (docs/why.md), `cause` says it in a sentence, `evidence` what it follows
    from, `advice` what to do. `phase`, `reason`, `message` and `events` are what the API server has; `then` is the
    admission on the node as it was when the kubelet refused the pod, `now` on the node as it is, null where it was not
    repeated. `missing` is what could not be had of the node, `provenance` what the answer rests on."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    reason: str
    message: str
    code: str
    cause: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    events: tuple[PodEventLine, ...]
    then: ExplainedPod | None
    now: ExplainedPod | None
    missing: tuple[str, ...]
    provenance: Provenance


def diagnosis_document(
    reported: ReportedPod,
    diagnosis: Diagnosis,
    events: tuple[PodEventLine, ...],
    missing: tuple[str, ...],
    provenance: Provenance,
) -> PodDiagnosis:
    """Return the document of an answer."""
    return PodDiagnosis(
        namespace=reported.namespace,
        name=reported.name,
        uid=reported.uid,
        node=reported.node,
        phase=reported.phase,
        reason=reported.reason,
        message=reported.message,
        code=diagnosis.code,
        cause=diagnosis.cause,
        evidence=diagnosis.evidence,
        advice=diagnosis.advice,
        events=events,
        then=_explained(diagnosis.then),
        now=_explained(diagnosis.now),
        missing=missing,
        provenance=provenance,
    )


def _explained(explanation: Explanation | None) -> ExplainedPod | None:
    return None if explanation is None else pod_document(explanation)
