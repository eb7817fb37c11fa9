"""`/metrics` of the service (docs/cluster-scheduler.md, Metrics): names, and nothing that counts by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from itertools import product

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_PLACING = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0)


WRITES = ("bind", "nominate", "evict", "wake", "event")


class ClusterMetrics:
    """One registry. `gauges` are asked at each scrape."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.placing = Histogram(
            "podslice_cluster_placing_seconds", "From a pending pod to its node.", buckets=_PLACING, registry=registry
        )
        self.writes = Counter(
            "podslice_cluster_api_writes", "Writes to the API server, by kind and what came of them.",
            ["kind", "result"], registry=registry,
        )  # fmt: skip
        self.calls = Histogram(
            "podslice_cluster_call_seconds", "Calls of the scheduler, by verb.", ["verb"], buckets=_BUCKETS,
            registry=registry,
        )  # fmt: skip
        self.results = Counter(
            "podslice_cluster_calls", "Calls of the scheduler, by verb and what came of them.", ["verb", "result"],
            registry=registry,
        )  # fmt: skip
        self.placements = Counter(
            "podslice_cluster_placements", "What nodes said of pods that were sent to them.", ["fate"],
            registry=registry,
        )  # fmt: skip
        self.events = Counter(
            "podslice_cluster_journal_events", "Events of nodes, by what became of them.", ["outcome"],
            registry=registry,
        )  # fmt: skip
        self.evictions = Counter(
            "podslice_cluster_evictions", "Pods of lower priority that were to leave for others, by what became of it.",
            ["fate"], registry=registry,
        )  # fmt: skip
        self.troubles = Counter(
            "podslice_cluster_troubles", "Things that went wrong, by kind.", ["kind"], registry=registry
        )
        for fate in ("agreed", "honoured", "disputed", "refused", "foreign"):
            self.placements.labels(fate)
        for fate in ("evicted", "spared", "failed"):
            self.evictions.labels(fate)
        for kind, result in product(WRITES, ("done", "refused", "failed")):
            self.writes.labels(kind, result)
        for outcome in ("equal", "adopted", "mismatch", "gap", "doubled", "otherEpoch", "otherVersion"):
            self.events.labels(outcome)
        self._verbs = {verb: self.calls.labels(verb) for verb in ("filter", "prioritize", "preempt", "bind")}

    def called(self, verb: str, seconds: float, result: str) -> None:
        """A call of the scheduler was answered."""
        self._verbs[verb].observe(seconds)
        self.results.labels(verb, result).inc()

    def gauges(self, found: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Numbers that are asked at each scrape, by name, with what they mean."""
        for name, (meaning, value) in found.items():
            Gauge(f"podslice_cluster_{name}", meaning, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """The whole as Prometheus reads it."""
        return generate_latest(self.registry)

    def trouble(self, kind: str) -> None:
        """Something went wrong."""
        _kind(self.troubles, kind).inc()


@functools.lru_cache(maxsize=64)
def _kind(troubles: Counter, kind: str) -> Counter:
    return troubles.labels(kind)
