"""The parts of the service, and the events that connect them.

API server ──> tables of nodes, pods and NodeState objects ──┐
agents ──────> journals ─────────────────────────────────────┤
                                                             v
kube-scheduler <──> extender <──────────────────────> placements and model
                                                             │ PlacementEvents
                      API server <── nominator, evictor, requeuer <──┘
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import inf

from podslice.cluster.apiclient import ClusterApi
from podslice.cluster.certificate_watch import CertificateWatch, WatchedCertificate
from podslice.cluster.counted_api import CountedApi
from podslice.cluster.extender.extender import Extender
from podslice.cluster.extender.messages import LARGEST_REQUEST
from podslice.cluster.journal.confirmations import Confirmations
from podslice.cluster.journal.feed import JournalFeed, Upkeep
from podslice.cluster.journal.journals import Journals
from podslice.cluster.journal.node_states import GoneStates, node_states
from podslice.cluster.journal.sources import ReplicaSource
from podslice.cluster.log_lines import Log, NoLog
from podslice.cluster.metrics import ClusterMetrics, PlacingTimes, service_gauges, unproven_gauge
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.cluster.nominate.evictor import Evictor
from podslice.cluster.nominate.nominator import NominationLimits, Nominator
from podslice.cluster.nominate.queues import PendingQueues
from podslice.cluster.nominate.requeuer import Requeuer
from podslice.cluster.object_table import Trouble, node_table, pod_table
from podslice.cluster.placements import NodeReport, PlacementEvents, Placements
from podslice.cluster.pod_events import PodEvents
from podslice.cluster.service import ClusterService, ServiceHealth, ServiceSettings
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod
from podslice.service.http.get_server import WebServer, metrics_routes
from podslice.service.http.post_server import PostServer
from podslice.service.listeners import Listeners
from podslice.service.supervise import Supervisor

_PATIENCE = 0.1
"""Seconds for which a new pod is left to kube-scheduler: one that it reaches sooner would be nominated too late."""
_LOOKED_AT = 8
"""Nodes on which victims are sought for one pod: the loop waits meanwhile."""


def wire(
    api: ClusterApi,
    journals: ReplicaSource,
    settings: ServiceSettings,
    *,
    trouble: Trouble,
    disputed: Callable[[NodeReport], object],
    seeded: Journals | None = None,
    log: Log | None = None,
    certificate: WatchedCertificate | None = None,
    metrics: ClusterMetrics | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ClusterService:
    """Make the whole service. `trouble` is called with failures, `disputed` with binding outcomes other than expected;
    `seeded` are the same journals where NodeState objects are to be read into them; `log` gets what else happens;
    `certificate` is the listeners', where there is one."""
    log = log or NoLog()
    metrics = metrics or ClusterMetrics()
    written = CountedApi(api, metrics.count_write)

    def report_failure(where: str, what: str) -> None:
        metrics.count_trouble(where)
        trouble(where, what)

    def report_failed_request(path: str, error: Exception) -> None:
        report_failure("extender", f"{path}: {type(error).__name__}: {str(error)[:300]}")

    def report_dispute(report: NodeReport) -> None:
        if report.is_dispute:
            disputed(report)

    # The model and its inputs
    events = PlacementEvents()
    # Without `advise` a filter names one node, the held one: the scheduler has nothing left to choose.
    best = ModelLimits().best if settings.advise else 1
    placing = Placements(
        ClusterModel(ModelLimits(best=best, hold=settings.hold, evictions=_LOOKED_AT)), events,
        schedulers=settings.schedulers, clock=clock, policy=settings.policy, advise=settings.advise,
    )  # fmt: skip
    confirmations = Confirmations(journals, placing.places.nodes, log)
    feed, upkeep = JournalFeed(placing, journals, confirmations), Upkeep(placing, journals, confirmations)
    times = PlacingTimes(metrics, settings.schedulers, clock)

    # Tables of the API server's objects
    node_changes = Listeners[ScheduledNode | None, ScheduledNode | None]()
    pod_changes = Listeners[ScheduledPod | None, ScheduledPod | None]()
    nodes = node_table(api, node_changes, report_failure, log=log)
    states = None if seeded is None else node_states(api, seeded, trouble=trouble, after=(nodes,), log=log)
    # Pods come last: one that its node has already can rest at once, and never takes the memory of its specification.
    pods = pod_table(
        api, pod_changes, report_failure, objects=placing.pods, after=(nodes,) if states is None else (nodes, states),
        listed=placing.drop_missed, clock=clock, log=log,
    )  # fmt: skip

    # Queues that write to the API server
    pod_events = PodEvents(written, placing.pods)
    victim_outcome = Listeners[str, ScheduledPod, ScheduledPod]()
    nominator = Nominator(
        written, choose=placing.choose, release=placing.model.unbind, kind_of=placing.kind_of,
        failed=partial(report_failure, "nominate"), limits=NominationLimits(ahead=settings.ahead),
        patience=lambda: _PATIENCE if len(placing.places.nodes) >= settings.nominating_nodes else inf,
    )  # fmt: skip
    evictor = Evictor(
        placing, nominator, written, on_victim=victim_outcome, failed=partial(report_failure, "evict"), clock=clock
    )
    requeuer = Requeuer(placing, nominator, written, failed=partial(report_failure, "wake"), clock=clock)
    queues = PendingQueues(
        placing, nominator, evictor, requeuer, pods,
        nominate=settings.nominate, evict=settings.evict, requeue=settings.wake,
    )  # fmt: skip

    # Subscriptions; listeners of one event are called in this order
    pod_changes.add(times.measure, placing.pod_changed, queues.drop_settled)
    node_changes.add(placing.node_changed, feed.forget_gone)
    journals.events.applied.add(metrics.count_event, feed.apply)
    journals.events.stream_changed.add(feed.confirm)
    events.pending.add(queues.add)
    events.refused.add(queues.add_refused)
    events.room_reserved.add(nominator.reserve)
    events.settled.add(nominator.drop)
    events.room_freed.add(nominator.unblock)
    events.binding_outcome.add(metrics.count_binding_outcome, report_dispute, pod_events.emit_dispute)
    victim_outcome.add(metrics.count_victim_outcome, pod_events.emit_preemption)

    # The scheduler's calls, metrics and loops
    extender = Extender(placing, written, ahead=nominator.ahead, send=journals.send_plan, watch=metrics.record_call)
    metrics.add_gauges(service_gauges(placing, nominator, requeuer, journals, confirmations, clock))
    metrics.add_gauge(*unproven_gauge(confirmations))
    watch = None if certificate is None else CertificateWatch(certificate, log, trouble=report_failure)
    if certificate is not None and watch is not None:
        metrics.add_gauges({"certificate_reload_successful": (
            "1 while the files of the certificate are what is served, 0 while they cannot be used.", watch.is_served
        )})  # fmt: skip
        metrics.add_gauge(
            "certificate_expiry_timestamp_seconds", "When what is served expires, as Unix time.", "certificate",
            {name: partial(watch.expiry, name) for name in certificate.expiries},
        )  # fmt: skip
    supervisor = Supervisor(report_failure)
    health = ServiceHealth(nodes, pods, supervisor)
    loops = {"nodes": nodes.run, "pods": pods.run, "looks": upkeep.run, "events": pod_events.run}
    if states is not None:
        gone = GoneStates(states, nodes, remove=api.remove_node_state, trouble=trouble)
        loops |= {"node states": states.run, "gone node states": gone.run}
    if watch is not None:
        loops["certificate"] = watch.run
    if settings.nominate:
        loops["nominations"] = nominator.run
    if settings.evict:
        loops["evictions"] = evictor.run
    if settings.wake:
        loops["requeues"] = requeuer.run
    return ClusterService(
        settings=settings, metrics=metrics, placing=placing, nodes=nodes, pods=pods, states=states,
        nominator=nominator, evictor=evictor, requeuer=requeuer, upkeep=upkeep, extender=extender, loops=loops,
        posts=PostServer(extender.handlers(), largest=LARGEST_REQUEST, failed=report_failed_request),
        web=WebServer(metrics_routes(metrics.text, health.alive, health.ready)), supervisor=supervisor,
    )  # fmt: skip
