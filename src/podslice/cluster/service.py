"""The service as `wiring.wire` makes it: its parts, and their life. Everything is one event loop; a loop that ends by
itself is started again. It keeps nothing: after a restart the watches, the nodes' journals and the scheduler's next
calls bring everything again.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from podslice.cluster.extender.extender import Extender
from podslice.cluster.journal.feed import Upkeep
from podslice.cluster.metrics import ClusterMetrics
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.nominate.evictor import Evictor
from podslice.cluster.nominate.nominator import NominationLimits, Nominator
from podslice.cluster.nominate.requeuer import Requeuer
from podslice.cluster.object_table import ObjectTable
from podslice.cluster.placements import Placements
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod
from podslice.service.health import Check, Health, liveness, readiness
from podslice.service.http.access import listening_error
from podslice.service.http.get_server import WebServer
from podslice.service.http.post_server import PostServer
from podslice.service.supervise import Supervisor

if TYPE_CHECKING:
    from podslice.cluster.journal.node_states import SeenState

NOMINATING_NODES = 1000
"""Nodes from which on a nomination costs less than a filter of all nodes (docs/development/cluster-service.md)."""
HOLD_SECONDS = 30.0
"""Seconds from a nomination or a filter to its bind, also on a busy machine."""


class ServiceSettings(NamedTuple):
    """Settings of `podslice cluster`.

    - `schedulers`: schedulerName of the pods to nominate. `policy`: what agents do with plans. `ahead`: see
      `NominationLimits`.
    - `nominating_nodes`: in a cluster of fewer nodes only pods that were refused are nominated.
    - `advise`: a filter names several nodes, among which the scheduler decides; otherwise it names the one that is
      held.
    - `evict`: evict pods of lower priority for one that only topology keeps out.
    - `wake`: have refused pods tried again when only journals show room.
    - `hold`: seconds until the hold of an unbound pod expires.
    """

    schedulers: frozenset[str] = frozenset({"podslice"})
    policy: PlanPolicy = "compare"
    advise: bool = False
    nominate: bool = True
    nominating_nodes: int = NOMINATING_NODES
    ahead: int = NominationLimits().ahead
    evict: bool = False
    wake: bool = True
    hold: float = HOLD_SECONDS


class Listening(NamedTuple):
    """Addresses of the extender and of the metrics, each with TLS where it has a context. Port 0 leaves the choice to
    the system."""

    host: str = "127.0.0.1"
    port: int = 9098
    tls: ssl.SSLContext | None = None
    metrics: tuple[str, int] | None = None
    metrics_tls: ssl.SSLContext | None = None


class ServiceHealth:
    """Whether the service has listed what it decides by, and its loops run."""

    def __init__(
        self, nodes: ObjectTable[ScheduledNode], pods: ObjectTable[ScheduledPod], supervisor: Supervisor
    ) -> None:
        self._nodes, self._pods, self._supervisor = nodes, pods, supervisor

    def alive(self) -> Health:
        """Return the answer of `/healthz`."""
        return liveness(self._checks())

    def ready(self) -> Health:
        """Return the answer of `/readyz`."""
        return readiness(self._checks())

    def _checks(self) -> tuple[Check, ...]:
        return (
            Check("nodes", "" if self._nodes.ready else "not listed yet"),
            Check("pods", "" if self._pods.ready else "not listed yet"),
            Check("loops", self._supervisor.problem()),
        )


@dataclass(kw_only=True, eq=False)
class ClusterService:
    """`loops` run by name from `start` to `stop`; `states` is None where no NodeState objects are read. Ports are those
    on which it listens, 0 before."""

    settings: ServiceSettings
    metrics: ClusterMetrics
    placing: Placements
    nodes: ObjectTable[ScheduledNode]
    pods: ObjectTable[ScheduledPod]
    states: ObjectTable[SeenState] | None
    nominator: Nominator
    evictor: Evictor
    requeuer: Requeuer
    upkeep: Upkeep
    extender: Extender
    loops: Mapping[str, Callable[[], Awaitable[None]]]
    posts: PostServer
    web: WebServer
    supervisor: Supervisor
    port: int = 0
    metrics_port: int = 0

    async def start(self, listening: Listening) -> None:
        """Listen, and start the loops. Raises `InputError` where it cannot listen."""
        where = listening.host, listening.port
        self.port = await _listen("--address", where, self.posts.start(*where, listening.tls))
        if listening.metrics is not None:
            start = self.web.start(*listening.metrics, listening.metrics_tls)
            self.metrics_port = await _listen("--metrics-address", listening.metrics, start)
        for name, loop in self.loops.items():
            self.supervisor.start(name, loop)

    async def stop(self) -> None:
        """Close the listeners, then end the loops and the calls that are under way."""
        await self.posts.close()
        await self.web.close()
        await self.supervisor.stop()
        await self.nominator.close()


async def _listen(option: str, where: tuple[str, int], start: Awaitable[int]) -> int:
    """Return the port of a listener. Raises `InputError` that names the option and the address."""
    try:
        return await start
    except OSError as error:
        raise listening_error(error, *where, option) from None
