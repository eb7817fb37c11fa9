"""The answer of `podslice status`."""

from __future__ import annotations

from podslice.agent.status import AgentStatus

__all__ = ["AgentStatus"]
