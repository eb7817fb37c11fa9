"""The answers of `podslice audit` and `podslice probe`."""

from __future__ import annotations

from podslice.audit.report import AuditReport
from podslice.core.isolation.latency import LatencyReport
from podslice.core.isolation.report import IsolationReport

__all__ = ["AuditReport", "IsolationReport", "LatencyReport"]
