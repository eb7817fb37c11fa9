"""The answer of `podslice audit`."""

from __future__ import annotations

from podslice.audit.report import AuditReport

__all__ = ["AuditReport"]
