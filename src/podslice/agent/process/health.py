"""Whether the agent serves pods as it is configured to, for `/healthz`, `/readyz` and `podslice status`."""

from __future__ import annotations

from podslice.agent.kubelet.sources import PodSource, Sources
from podslice.agent.kubelet.standin import StandIn
from podslice.agent.owner import Owner
from podslice.agent.runtime.runtime_link import RuntimeLink
from podslice.agent.statefolder import state_problem
from podslice.service.health import Check, Health, Heartbeats, liveness, readiness
from podslice.service.supervise import Supervisor


class AgentHealth:
    """The checks of one agent. `stand_in` is None where the agent does not take the kubelet's PodResources socket."""

    def __init__(
        self,
        owner: Owner,
        sources: Sources,
        link: RuntimeLink,
        supervisor: Supervisor,
        heartbeats: Heartbeats,
        stand_in: StandIn | None,
    ) -> None:
        self._owner = owner
        self._sources = sources
        self._link = link
        self._supervisor = supervisor
        self._heartbeats = heartbeats
        self._stand_in = stand_in

    def alive(self) -> Health:
        """Return the answer of `/healthz`."""
        return liveness(self._checks())

    def ready(self) -> Health:
        """Return the answer of `/readyz`."""
        return readiness(self._checks())

    def problem(self) -> str:
        """Return all that is wrong in one line, empty while nothing is."""
        return "; ".join(f"{check.name}: {check.problem}" for check in self._checks() if check.problem)

    def _checks(self) -> list[Check]:
        return [
            Check("runtime", self._runtime_problem()),
            Check("state", state_problem(self._owner.directory)),
            Check("safe mode", self._owner.safe_mode),
            *(Check(source.name, _source_problem(source)) for source in self._sources.sources),
            *([] if self._stand_in is None else [Check("podResources", self._stand_in.problem)]),
            Check("loops", self._supervisor.problem() or self._heartbeats.problem(), restart_mends=True),
        ]

    def _runtime_problem(self) -> str:
        if self._link.is_up():
            return ""
        return "not registered with the runtime" + (f": {self._link.problem}" if self._link.problem else "")


def _source_problem(source: PodSource) -> str:
    if source.ready:
        return source.cause
    return "no list of pods yet" + (f": {source.cause}" if source.cause else "")
