"""The answer of `podslice status`."""

from __future__ import annotations

from podslice.status.status import AgentStatus

__all__ = ["AgentStatus"]
