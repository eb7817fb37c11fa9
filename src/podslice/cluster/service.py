"""The service: watches, model, nominations and the extender's listener, started and stopped together.

Everything is one event loop; what ends by itself is started again. It keeps nothing: after a restart the watches, the
nodes' journals and the scheduler's next calls say everything again.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from podslice.cluster.apiclient import ClusterApi
from podslice.cluster.extender.extender import Extender
from podslice.cluster.extender.messages import LARGEST_REQUEST
from podslice.cluster.journal.sources import ReplicaSource
from podslice.cluster.metrics import ClusterMetrics
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.cluster.nominate.evicting import Evictor
from podslice.cluster.nominate.nominating import NominationLimits, Nominator
from podslice.cluster.nominate.requeuing import Waker
from podslice.cluster.placing import NodeWord, Placements
from podslice.cluster.podevents import PodEvents
from podslice.cluster.watching import node_table, pod_table
from podslice.cluster.writes import CountedApi
from podslice.replica.events import Stamped
from podslice.replica.replica import Applied
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod
from podslice.service.health import Check, alive, ready
from podslice.service.http.get_server import WebServer, metrics_routes
from podslice.service.http.post_server import PostServer
from podslice.service.supervise import Supervisor

_LOOK_SECONDS = 0.5
_LOOKED_AT = 8
"""Nodes on which victims are sought for one pod: the loop waits meanwhile."""
HOLD_SECONDS = 30.0
"""What a scheduler may take from a nomination or a filter to its bind, on a busy machine too."""


class ServiceSettings(NamedTuple):
    """What `podslice cluster` is told. `advise`: a filter names several nodes, among which the scheduler decides;
    without, it names one, which leaves nothing to chance. `evict`: pods of lower priority leave for one that only
    topology keeps out. `wake`: refused pods are tried again once only journals show room. `hold`: seconds that a pod
    is held for which nobody came back."""

    schedulers: frozenset[str] = frozenset({"podslice"})
    policy: PlanPolicy = "compare"
    advise: bool = False
    nominate: bool = True
    ahead: int = NominationLimits().ahead
    evict: bool = False
    wake: bool = True
    hold: float = HOLD_SECONDS


class Listening(NamedTuple):
    """Where the extender is asked, and where metrics are read, each over TLS where it has a context; port 0 leaves it
    to the system."""

    host: str = "127.0.0.1"
    port: int = 9098
    tls: ssl.SSLContext | None = None
    metrics: tuple[str, int] | None = None
    metrics_tls: ssl.SSLContext | None = None


class ClusterService:
    """`trouble` hears of failures, `disputed` of nodes that answered otherwise than expected."""

    def __init__(
        self,
        api: ClusterApi,
        journals: ReplicaSource,
        settings: ServiceSettings | None = None,
        *,
        trouble: Callable[[str, str], None] = lambda where, what: None,
        disputed: Callable[[NodeWord], None] = lambda word: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or ServiceSettings()
        self.metrics = ClusterMetrics()
        self._trouble, self._told_of_dispute, self._clock = trouble, disputed, clock
        self._came: dict[str, float] = {}
        api = CountedApi(api, lambda kind, result: self.metrics.writes.labels(kind, result).inc())
        best = ModelLimits().best if self.settings.advise else 1
        self.placing = Placements(
            ClusterModel(ModelLimits(best=best, hold=self.settings.hold, evictions=_LOOKED_AT)),
            schedulers=self.settings.schedulers,
            clock=clock,
            told=self._told,
            policy=self.settings.policy,
            advise=self.settings.advise,
        )
        self.nominator = Nominator(
            api,
            choose=self.placing.choose,
            release=self.placing.model.unbind,
            kind_of=self.placing.kind_of,
            failed=lambda what: self._failed("nominate", what),
            limits=NominationLimits(ahead=self.settings.ahead),
        )
        self.events = PodEvents(api)
        self.evictor = Evictor(
            self.placing,
            self.nominator,
            api,
            told=self._left,
            failed=lambda what: self._failed("evict", what),
            clock=clock,
        )
        self.waker = Waker(
            self.placing,
            api,
            others=lambda: self.nominator.waiting,
            failed=lambda what: self._failed("wake", what),
            clock=clock,
        )
        self.placing.refused = self._refused
        self.placing.settled = self.nominator.drop
        self.placing.awaited = lambda pod: self.nominator.reserve(pod, pod.nominated)
        self.placing.pending, self.placing.room = self._pending, self.nominator.room
        self.extender = Extender(
            self.placing,
            api,
            held=lambda uid: self.nominator.ahead.get(uid, ""),
            bound=self.nominator.drop,
            send=journals.plan,
            watch=self.metrics.called,
        )
        self.pods = pod_table(
            api, self._pod_news, self._failed, objects=self.placing.pods, listed=self.placing.listed, clock=clock
        )
        self.nodes = node_table(api, self._node_news, self._failed)
        self._journals = journals
        journals.on_applied, journals.on_heard = self._applied, self._heard
        self._posts = PostServer(self.extender.handlers(), largest=LARGEST_REQUEST, failed=self._broken)
        self._web = WebServer(
            metrics_routes(self.metrics.text, lambda: alive(self._checks()), lambda: ready(self._checks()))
        )
        self._loops = Supervisor(lambda name, why: self._failed(name, why))
        self.metrics.gauges(self._gauges())
        self.port = self.metrics_port = 0

    # Life

    async def start(self, listening: Listening) -> None:
        """Raises `OSError` where it cannot listen."""
        self.port = await self._posts.start(listening.host, listening.port, listening.tls)
        if listening.metrics is not None:
            self.metrics_port = await self._web.start(*listening.metrics, listening.metrics_tls)
        self._loops.start("nodes", self.nodes.run)
        self._loops.start("pods", self.pods.run)
        self._loops.start("looks", self._look)
        self._loops.start("events", self.events.run)
        if self.settings.nominate:
            self._loops.start("nominations", self.nominator.run)
        if self.settings.evict:
            self._loops.start("evictions", self.evictor.run)
        if self.settings.wake:
            self._loops.start("waking", self.waker.run)

    async def stop(self) -> None:
        """Nothing of it runs any more."""
        await self._posts.close()
        await self._web.close()
        await self._loops.stop()
        await self.nominator.close()

    async def _look(self) -> None:
        """What time brings: holds that fall, and nodes that are silent."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for uid in self.placing.expire():
                self.nominator.drop(uid)
                pod = self.placing.pods.get(uid)
                if pod is not None and not pod.node:
                    self._pending(pod)
            await self.placing.confirm_all(self._journals.fresh)

    # News

    def _applied(self, name: str, stamped: Stamped, applied: Applied) -> None:
        self.metrics.events.labels(applied.outcome).inc()
        self.placing.journal(name, stamped, applied, self._journals.nodes[name].replica)
        self._heard(name)

    def _heard(self, name: str) -> None:
        self.placing.confirm(name, confirmed=self._journals.fresh(name))

    def _pod_news(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        self._time(old, new)
        self.placing.pod_news(old, new)
        pod = new or old
        if pod is not None and (new is None or new.ended or not self.placing.waits(new)):
            self.waker.drop(pod.uid, placed=new is not None and bool(new.node))

    def _time(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        """How long a pod of ours was pending."""
        pod = new or old
        if pod is None or pod.scheduler not in self.settings.schedulers:
            return
        if new is not None and not (new.node or new.gated or new.ended):
            self._came.setdefault(new.uid, self._clock())
        else:
            came = self._came.pop(pod.uid, None)
            if came is not None and new is not None and new.node:
                self.metrics.placing.observe(self._clock() - came)

    def _node_news(self, old: ScheduledNode | None, new: ScheduledNode | None) -> None:
        self.placing.node_news(old, new)
        if new is None and old is not None:
            self._journals.forget(old.name)

    def _pending(self, pod: ScheduledPod) -> None:
        if self.settings.nominate and self.placing.nominable(pod):
            self.nominator.add(pod)
        if self.settings.evict:
            self.evictor.consider(pod)
        if self.nominator.has(pod.uid):
            self.waker.drop(pod.uid)
        elif self.settings.wake and pod.refused and not self.pods.ready:
            self.waker.found(pod)

    def _refused(self, pod: ScheduledPod, names: Sequence[str]) -> None:
        if self.settings.wake and self.placing.waits(pod) and not self.nominator.has(pod.uid):
            self.waker.refused(pod, names)

    def _told(self, word: NodeWord) -> None:
        fate = word.told.fate
        self.metrics.placements.labels(fate).inc()
        if fate in ("disputed", "refused"):
            self._told_of_dispute(word)
            pod = self.placing.pods.get(word.uid)
            if pod is not None:
                self.events.disputed(word, pod)

    def _left(self, fate: str, victim: ScheduledPod, pod: ScheduledPod) -> None:
        self.metrics.evictions.labels(fate).inc()
        if fate == "evicted":
            self.events.preempted(victim, pod)

    def _failed(self, where: str, what: str) -> None:
        self.metrics.trouble(where)
        self._trouble(where, what)

    def _broken(self, path: str, error: Exception) -> None:
        self._failed("extender", f"{path}: {type(error).__name__}: {str(error)[:300]}")

    # What people ask

    def _checks(self) -> tuple[Check, ...]:
        return (
            Check("nodes", "" if self.nodes.ready else "the API server has not told yet"),
            Check("pods", "" if self.pods.ready else "the API server has not told yet"),
            Check("loops", self._loops.problem()),
        )

    def _oldest(self) -> float:
        """When the oldest hold began; now where nothing is held."""
        return min((hold.since for hold in self.placing.model.held()), default=self._clock())

    def _gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        placing, model = self.placing, self.placing.model
        return {
            "nodes": ("Nodes of the cluster.", lambda: len(placing.places.nodes)),
            "nodes_proven": (
                "Nodes whose model has the digests of the node.",
                lambda: sum(one.proven for one in placing.replicas.values()),
            ),
            "holds": ("Pods on their way to a node.", lambda: len(model.held())),
            "oldest_hold_seconds": ("Age of the oldest hold.", lambda: self._clock() - self._oldest()),
            "journal_silence_seconds": (
                "Since the node with a stream that has said nothing longest said something.",
                self._journals.silence,
            ),
            "pods_waiting": ("Pods that no node takes, or whose turn has not come.", lambda: self.nominator.waiting),
            "pods_refused": (
                "Pods that no node takes and that are not nominated ahead; they are woken once one does.",
                lambda: self.waker.waiting,
            ),
            "pods_nominated": ("Pods that are nominated and not bound yet.", lambda: len(self.nominator.ahead)),
        }
