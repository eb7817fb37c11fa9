"""The answers of `podslice audit` and `podslice probe`."""

from __future__ import annotations

from podslice.audit.report import AuditReport
from podslice.isolation.latency import LatencyReport
from podslice.isolation.report import IsolationReport

__all__ = ["AuditReport", "IsolationReport", "LatencyReport"]
