"""The metrics of the service (docs/cluster-scheduler.md, Metrics)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from itertools import product
from typing import get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from podslice.cluster.journal.confirmations import CAUSES, Confirmations
from podslice.cluster.journal.sources import ReplicaSource, Unproven
from podslice.cluster.nominate.nominator import Nominator
from podslice.cluster.nominate.requeuer import Requeuer
from podslice.cluster.placements import NodeReport, Placements
from podslice.replica.events import Stamped
from podslice.replica.replica import ApplyResult, Outcome
from podslice.service.clusterobjects import ScheduledPod

_PLACING = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0)


WRITES = ("bind", "nominate", "evict", "wake", "event")


class ClusterMetrics:
    """The metrics, in a registry of their own."""

    def __init__(self) -> None:
        # Else every counter has a second series with the time of its creation.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.placing = Histogram(
            "podslice_cluster_placing_seconds", "From a pending pod to its node.", buckets=_PLACING, registry=registry
        )
        self.writes = Counter(
            "podslice_cluster_api_writes", "Writes to the API server, by kind and result.",
            ["kind", "result"], registry=registry,
        )  # fmt: skip
        self.calls = Histogram(
            "podslice_cluster_call_seconds", "Calls of the scheduler, by verb.", ["verb"], buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.results = Counter(
            "podslice_cluster_calls", "Calls of the scheduler, by verb and result.", ["verb", "result"],
            registry=registry,
        )  # fmt: skip
        self.placements = Counter(
            "podslice_cluster_placements", "Outcomes of pods that were sent to nodes.", ["fate"],
            registry=registry,
        )  # fmt: skip
        self.events = Counter(
            "podslice_cluster_journal_events", "Events of nodes, by outcome.", ["outcome"],
            registry=registry,
        )  # fmt: skip
        self.evictions = Counter(
            "podslice_cluster_evictions", "Victims of evictions, by outcome.",
            ["fate"], registry=registry,
        )  # fmt: skip
        self.troubles = Counter(
            "podslice_cluster_troubles", "Failures, by where they were.", ["kind"], registry=registry
        )
        for fate in ("agreed", "honoured", "disputed", "refused", "foreign"):
            self.placements.labels(fate)
        for fate in ("evicted", "spared", "failed"):
            self.evictions.labels(fate)
        for kind, result in product(WRITES, ("done", "refused", "failed")):
            self.writes.labels(kind, result)
        for outcome in get_args(Outcome):
            self.events.labels(outcome)
        self._verbs = {verb: self.calls.labels(verb) for verb in ("filter", "prioritize", "preempt", "bind")}

    def record_call(self, verb: str, seconds: float, result: str) -> None:
        """Count a call of the scheduler, with its duration in seconds."""
        self._verbs[verb].observe(seconds)
        self.results.labels(verb, result).inc()

    def count_write(self, kind: str, result: str) -> None:
        """Count a write to the API server."""
        self.writes.labels(kind, result).inc()

    def count_event(self, node: str, stamped: Stamped, applied: ApplyResult) -> None:
        """Count an event of a node."""
        self.events.labels(applied.outcome).inc()

    def count_binding_outcome(self, report: NodeReport) -> None:
        """Count what became of a pod that was sent to a node."""
        self.placements.labels(report.outcome.kind).inc()

    def count_victim_outcome(self, outcome: str, victim: ScheduledPod, pod: ScheduledPod) -> None:
        """Count what became of a pod that was to leave for another."""
        self.evictions.labels(outcome).inc()

    def add_gauges(self, found: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Add gauges, read at each scrape: by name, the help text and a function."""
        for name, (meaning, value) in found.items():
            Gauge(f"podslice_cluster_{name}", meaning, registry=self.registry).set_function(value)

    def add_gauge(self, name: str, meaning: str, label: str, values: Mapping[str, Callable[[], float]]) -> None:
        """Add a gauge with one label, read at each scrape: by the label's value, a function."""
        gauge = Gauge(f"podslice_cluster_{name}", meaning, [label], registry=self.registry)
        for value, read in values.items():
            gauge.labels(value).set_function(read)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def count_trouble(self, kind: str) -> None:
        """Count a failure, by where it was."""
        _kind(self.troubles, kind).inc()


@functools.lru_cache(maxsize=64)
def _kind(troubles: Counter, kind: str) -> Counter:
    return troubles.labels(kind)


class PlacingTimes:
    """Measures how long each pod of these schedulers was pending."""

    def __init__(self, metrics: ClusterMetrics, schedulers: frozenset[str], clock: Callable[[], float]) -> None:
        self._metrics, self._schedulers, self._clock = metrics, schedulers, clock
        self._came: dict[str, float] = {}

    def measure(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        """Begin with a pod that is seen pending, end with one that has a node or is gone."""
        pod = new or old
        if pod is None or pod.scheduler not in self._schedulers:
            return
        if new is not None and not (new.node or new.gated or new.ended):
            self._came.setdefault(new.uid, self._clock())
        else:
            came = self._came.pop(pod.uid, None)
            if came is not None and new is not None and new.node:
                self._metrics.placing.observe(self._clock() - came)


def unproven_gauge(confirmations: Confirmations) -> tuple[str, str, str, dict[str, Callable[[], float]]]:
    """Return the gauge of nodes that are not proven, by cause: name, help, label, and how to read each value."""
    values: dict[str, Callable[[], float]] = {
        cause: functools.partial(_count, confirmations, cause) for cause in CAUSES
    }
    return "nodes_unproven", "Nodes that have or had an agent and are not proven, by cause.", "cause", values


def _count(confirmations: Confirmations, cause: Unproven) -> float:
    return confirmations.counts[cause]


def service_gauges(
    placing: Placements,
    nominator: Nominator,
    requeuer: Requeuer,
    journals: ReplicaSource,
    confirmations: Confirmations,
    clock: Callable[[], float],
) -> dict[str, tuple[str, Callable[[], float]]]:
    """Return the gauges of a service by name, with their help and how to read them."""
    model = placing.model

    def oldest_hold() -> float:
        now = clock()
        # A hold that has just begun may be younger than `now`.
        return max(0.0, now - min((hold.since for hold in model.holds()), default=now))

    return {
        "nodes": ("Nodes of the cluster.", lambda: len(placing.places.nodes)),
        "nodes_with_agent": ("Nodes that have or had an agent.", lambda: confirmations.with_agent),
        "nodes_proven": (
            "Nodes whose agent has a stream that is not silent, and whose model has the digests of the node.",
            lambda: confirmations.counts[""],
        ),
        "holds": ("Pods on their way to a node.", lambda: len(model.holds())),
        "oldest_hold_seconds": ("Age of the oldest hold.", oldest_hold),
        "journal_silence_seconds": (
            "Longest silence of a node with a stream.",
            journals.silence,
        ),
        "pods_waiting": ("Pods that wait to be nominated.", lambda: nominator.waiting),
        "pods_refused": (
            "Pods that no node takes and that are not nominated ahead; they are requeued once one does.",
            lambda: requeuer.waiting,
        ),
        "pods_nominated": ("Pods that are nominated and not bound yet.", lambda: len(nominator.ahead)),
    }
