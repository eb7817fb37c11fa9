"""Rules about the form of a pod: fields that Kubernetes does not know."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.model import ERROR, Problem, Rule
from podslice.advise.lint.subject import PodSubject


def _unknown_fields(subject: PodSubject) -> Iterator[Problem]:
    for field in subject.unknown_fields:
        fix = f"did you mean {field.suggestion}?" if field.suggestion else "remove it"
        yield Problem(
            field.path, f"unknown field of {field.kind}: Kubernetes drops it with its value", fix, absolute=True
        )


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS002",
        "unknown-pod-field",
        ERROR,
        "A field that Kubernetes does not know",
        "The API server drops fields it does not know. With kubectl's field validation (--validate=strict) it refuses "
        "the object; other clients only see a warning, and the pod runs without what its author wrote: a container "
        "with resources: {limit: …} is BestEffort. All fields of v1.36 are known here, in the pod and in the object "
        "around its template.",
        _unknown_fields,
    ),
)
