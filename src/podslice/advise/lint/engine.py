"""Running the rules over one subject."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from podslice.advise.lint.model import Finding, ObjectReference, Problem, Rule, Subject
from podslice.advise.lint.registry import FILE_RULES, NODE_RULES, POD_RULES
from podslice.advise.lint.subject import FileSubject, NodeSubject, PodSubject

IGNORE_ANNOTATION = "podslice/lint-ignore"
"""Annotation of a pod (or of a pod template) that names rules to leave out, separated by commas."""


def lint_pod(subject: PodSubject, rules: Collection[str], *, kind: str = "Pod", prefix: str = "") -> list[Finding]:
    """Return findings about a pod of an object of `kind`; `prefix` is the path of the pod within the object."""
    metadata = subject.written.metadata
    reference = ObjectReference(kind, metadata.namespace, metadata.name)
    ignored = {part.strip() for part in (metadata.annotations or {}).get(IGNORE_ANNOTATION, "").split(",")}
    chosen = [rule for rule in POD_RULES if rule.id in rules and not ignored & {rule.id, rule.name}]
    return _run(chosen, subject, reference, prefix)


UNDECODED = "PS401"


def lint_kubelet(subject: NodeSubject, rules: Collection[str]) -> list[Finding]:
    """Return findings about a kubelet's configuration; for one that cannot be decoded only the reason."""
    chosen = [rule for rule in NODE_RULES if rule.id in rules and (rule.id == UNDECODED or not subject.undecoded)]
    return _run(chosen, subject, ObjectReference("KubeletConfiguration"), "")


def lint_file(subject: FileSubject, rules: Collection[str]) -> list[Finding]:
    """Return findings about a file as text, each with its line; the object is the whole document."""
    chosen = [rule for rule in FILE_RULES if rule.id in rules]
    return [
        Finding(rule.id, rule.name, problem.severity or rule.severity, _document_of(subject, problem), problem.path,
                problem.message, problem.fix, document=problem.document, line=problem.line, column=1)
        for rule in chosen
        for problem in rule.check(subject)
    ]  # fmt: skip


def _document_of(subject: FileSubject, problem: Problem) -> ObjectReference:
    data = subject.documents[problem.document] if problem.document < len(subject.documents) else None
    if not isinstance(data, dict):
        return ObjectReference("document")
    metadata = data.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    return ObjectReference(
        str(data.get("kind", "document")), str(named.get("namespace", "")), str(named.get("name", ""))
    )


def _run(rules: Iterable[Rule[Subject]], subject: Subject, reference: ObjectReference, prefix: str) -> list[Finding]:
    findings: list[Finding] = []
    replaced: set[str] = set()
    for rule in rules:
        # A rule may meet the same problem twice; it is reported once.
        for problem in dict.fromkeys(rule.check(subject)):
            severity = problem.severity or rule.severity
            path = f"{prefix}.{problem.path}" if prefix and problem.path else prefix or problem.path
            if problem.absolute:
                path = problem.path
            findings.append(Finding(rule.id, rule.name, severity, reference, path, problem.message, problem.fix))
            if severity == "error":
                replaced.update(rule.replaces)
    return [finding for finding in findings if finding.id not in replaced]
