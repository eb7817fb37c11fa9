"""The audit of an agent, with pods' names in place of UIDs."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from podslice.audit.report import AuditFinding, AuditReport
from podslice.kubectl.documents import NodeAudit
from podslice.kubectl.pod import read_status
from podslice.values.document import without_header
from podslice.values.errors import InputError

_POD = re.compile(r"\bpod (\S+)")


def audit_of(node: str, answer: tuple[Any, Any] | InputError) -> NodeAudit:
    """Return the audit of an AuditReport and an AgentStatus, or of the error in their place."""
    if isinstance(answer, InputError):
        return NodeAudit(node, str(answer), None)
    try:
        report = msgspec.convert(without_header("AuditReport", answer[0]), AuditReport)
        names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in read_status(answer[1], node).pods}
    except (msgspec.ValidationError, AttributeError, InputError) as error:
        return NodeAudit(node, f"the agent's answer is not understood: {error}", None)
    findings = tuple(_with_names(finding, names) for finding in report.findings)
    return NodeAudit(node, "", msgspec.structs.replace(report, findings=findings))


def _with_names(finding: AuditFinding, names: dict[str, str]) -> AuditFinding:
    where = _POD.sub(lambda match: f"pod {names.get(match[1], match[1])}", finding.where)
    return msgspec.structs.replace(finding, where=where)
