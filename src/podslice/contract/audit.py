"""The answer of `podslice audit`."""

from __future__ import annotations

from podslice.agent.audit import AuditReport

__all__ = ["AuditReport"]
