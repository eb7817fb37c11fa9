"""The agent's status as `podslice status` shows it, read from the parts that know it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from podslice.agent.api_server.refusals import Refusals
from podslice.agent.kubelet.kubelet_release import KubeletRelease
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.owner import Owner
from podslice.agent.process.health import AgentHealth
from podslice.agent.runtime.runtime_link import RuntimeLink
from podslice.agent.status.local import status_of
from podslice.agent.upkeep import Upkeep
from podslice.status.status import AgentStatus


@dataclass(frozen=True, eq=False)
class AgentStatusSource:
    """Reads the status. `started_at`: Unix time. `refusals` is None where pods are not marked Failed. `observed`:
    the kubelet that decides, where the agent reports what it did."""

    node_name: str
    owner: Owner
    upkeep: Upkeep
    link: RuntimeLink
    refusals: Refusals | None
    health: AgentHealth
    release: KubeletRelease
    observe: bool = field(kw_only=True)
    observed: ObservedKubelet | None = field(kw_only=True)
    started_at: float = field(default_factory=time.time)

    def read(self) -> AgentStatus:
        """Return the status of this moment."""
        release = self.release.now
        return status_of(
            self.owner,
            self.upkeep.drifts,
            kubelet=release.version,
            conditions=(f"kubeletRelease: {release.problem}",) if release.problem else (),
            observed=None if self.observed is None else self.observed.node,
            node=self.node_name,
            machine=self.owner.machine.name,
            runtime=self.link.plugin.runtime,
            warnings=tuple(self.link.plugin.warnings),
            connected=self.link.is_up(),
            observe=self.observe,
            started_at=self.started_at,
            rejected=() if self.refusals is None else tuple(self.refusals.rejected),
            ready=self.health.problem(),
        )
