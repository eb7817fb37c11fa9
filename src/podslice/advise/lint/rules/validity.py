"""Rules about a file as text and about a pod as an object: what the API server refuses, or does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.advise.lint.model import ERROR, WARNING, Problem, Rule
from podslice.advise.lint.subject import FileSubject, PodSubject
from podslice.api.pod.field_error import FieldError
from podslice.api.pod.spec import Pod
from podslice.api.server.create import is_live, prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import budget_errors, validate_create, validate_pod
from podslice.api.server.validate_resources import LONE_HUGEPAGES
from podslice.values.gates import GATES


def _invalid(subject: PodSubject) -> Iterator[Problem]:
    """Report what the API server refuses and no other rule reports: PS204 and PS205 report budgets, PS303 huge
    pages."""
    # What v1.36.2 refuses is an error; what only later gates refuse is a warning of what will be.
    gates = {**subject.gates, **{name: False for name, gate in GATES.items() if gate.later}}
    pod, today = _validate(subject.written, gates)
    reported_elsewhere = set(budget_errors(pod))
    fix = "correct the field as the message says"
    for error in today:
        lone = error.detail == LONE_HUGEPAGES and not error.field.startswith("spec.overhead")
        if lone or error in reported_elsewhere:
            continue
        origin = subject.template if error.field.startswith("metadata.") else None
        if origin is None:
            yield Problem(error.field, f"the API server refuses the pod: {error}", fix)
        # The metadata of a template are not validated; name and namespace of the object are.
        elif error.field.removeprefix("metadata.") in origin.owned:
            path = f"{origin.path}.{error.field}" if origin.path else error.field
            yield Problem(path, f"the API server refuses the object: {error}", fix, absolute=True)
    for error in _validate(subject.written, subject.gates)[1]:
        if error not in today:
            message = f"v1.36.2 accepts the pod, but with the fixes of KEP-2837 the API server refuses it: {error}"
            yield Problem(error.field, message, fix, WARNING)


def _validate(written: Pod, gates: Mapping[str, bool]) -> tuple[Pod, list[FieldError]]:
    """Return the pod as the API server has it, and its errors. A pod from a cluster may have more than a create
    request, such as containers of `kubectl debug`."""
    pod = default_pod(written, gates)
    if is_live(written):
        return pod, list(validate_pod(pod, gates))
    pod = prepare_for_create(pod, gates)
    return pod, list(validate_create(pod, gates))


def _unknown_fields(subject: PodSubject) -> Iterator[Problem]:
    for field in subject.unknown_fields:
        fix = f"did you mean {field.suggestion}?" if field.suggestion else "remove it"
        yield Problem(
            field.path, f"unknown field of {field.kind}: Kubernetes drops it with its value", fix, absolute=True
        )


def _duplicate_keys(subject: FileSubject) -> Iterator[Problem]:
    for one in subject.duplicates:
        yield Problem(
            "",
            f"the key {one.key[:60]!r} is there more than once: the last value counts, and the one before is lost",
            "write it once",
            line=one.line,
            document=one.document,
        )


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS001",
        "invalid-pod",
        ERROR,
        "The API server refuses the pod",
        "The pod is defaulted and validated as the API server does, as far as resources are concerned; the message is "
        "the API server's own. Violations that have a rule of their own (PS204, PS205, PS303) are reported there. A "
        "pod that v1.36.2 accepts and a release with the fixes of KEP-2837 refuses is a warning.",
        _invalid,
        others=(WARNING,),
    ),
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
FILE_RULES: tuple[Rule[FileSubject], ...] = (
    Rule(
        "PS003",
        "duplicate-key",
        WARNING,
        "A key is there more than once in one object",
        "YAML forbids it, and programs differ. kubectl keeps the last value without a word, because it turns the file "
        "into JSON before it sends it. An API server that gets the text itself keeps the last value with a warning, "
        "and refuses the object with fieldValidation=Strict. A kubelet keeps the last value of its configuration with "
        "a line in its log; kustomize and Helm refuse the file. Other rules read the last value.",
        _duplicate_keys,
    ),
)
