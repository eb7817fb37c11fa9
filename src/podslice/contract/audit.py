"""The answer of `podslice audit`."""

from __future__ import annotations

from podslice.audit.report import AuditReport
from podslice.core.isolation.report import IsolationReport

__all__ = ["AuditReport", "IsolationReport"]
