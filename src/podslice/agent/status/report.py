"""Telling people: the log as JSON lines, metrics, and Kubernetes Events on the pods concerned."""

from __future__ import annotations

import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import structlog

from podslice.advise.explain.codes import ELIGIBILITY
from podslice.advise.explain.trace import eligibility
from podslice.agent.api_server.explaining import event_text
from podslice.agent.contract import MoveNews, PodFailure, ResizeNews
from podslice.agent.records import ReportedRefusal
from podslice.agent.status.metrics import Metrics, rejection_label
from podslice.machine.delta import MachineConsequence
from podslice.node.node import Decision, Node
from podslice.service.apievents import LONGEST_MESSAGE
from podslice.service.identity import Identity
from podslice.status.status import Drift
from podslice.values.reasons import TOPOLOGY_AFFINITY

_REMEMBERED = 1024
_REPEAT_AFTER = 300.0
_RESIZE_EVENTS = {
    "applied": "PodsliceResizeApplied",
    "deferred": "PodsliceResizeDeferred",
    "infeasible": "PodsliceResizeInfeasible",
    "failed": "PodsliceResizeFailed",
}


class RepeatFilter(logging.Filter):
    """Lets a line of a logger pass once in `seconds`, with how many like it were left out."""

    def __init__(self, seconds: float = 10.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._passed: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False for one that is left out."""
        line, now = str(record.msg).partition("\n")[0][:200], self._clock()
        if now - self._passed.get(line, -self._seconds) < self._seconds:
            self._left_out[line] = self._left_out.get(line, 0) + 1
            return False
        if len(self._passed) >= _MOST_LINES:
            self._passed.clear()
        self._passed[line] = now
        if left_out := self._left_out.pop(line, 0):
            record.msg = f"{record.msg} ({left_out} lines like this were left out)"
        return True


_MOST_LINES = 256


def configure_log(level: str = "info") -> None:
    """JSON lines on standard error, one per event. What asyncio says again and again is said once in a while."""
    asyncio_log = logging.getLogger("asyncio")
    if not any(isinstance(one, RepeatFilter) for one in asyncio_log.filters):
        asyncio_log.addFilter(RepeatFilter())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


_BAD_NEWS = ("only-reserved", "no-shared-cpus", "reserved-offline", "memory-overcommitted", "node-gone", "rebuilt")
_POD_EVENTS = {
    "rebuilt": ("Normal", "PodsliceCPUsReplaced"),
    "replaced": ("Warning", "PodsliceCPUsReplaced"),
    "returned": ("Normal", "PodsliceCPUsReturned"),
}
"""What containers without CPUs of theirs hear is `PodsliceCPUsLost`."""


class EventSink(Protocol):
    """Takes an event about a pod, or about the node."""

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None: ...
    def emit_node(self, kind: str, reason: str, message: str) -> None: ...


class NoEvents:
    """For nodes without API server: the log has everything as well."""

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        return None

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        return None


class AgentReporter:
    """Implements `contract.Reporter` and `plugin.Timer`. With `explains`, refusals of whole pods become events later,
    with what would help."""

    def __init__(
        self,
        events: EventSink | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        metrics: Metrics | None = None,
        explains: bool = False,
    ) -> None:
        self._clock = clock
        self._troubles: OrderedDict[tuple[str, str], float] = OrderedDict()
        self.metrics = metrics
        self.events: EventSink = events or NoEvents()
        self.log = structlog.get_logger()
        self._explains = explains
        self._failures: OrderedDict[tuple[str, PodFailure], None] = OrderedDict()

    def decided(self, seconds: float) -> None:
        if self.metrics is not None:
            self.metrics.admission_ms.observe(int(seconds * 1000))
            if self.metrics.admission is not None:
                self.metrics.admission.observe(seconds)

    def admitted(self, identity: Identity, decision: Decision, node: Node) -> None:
        containers = {c.name: f"{c.isolation} {c.cpus}" for c in decision.containers}
        self.log.info("admitted", pod=str(identity), uid=identity.uid, qos=decision.qos, containers=containers)
        self._eligibility(identity, decision, node)
        for event in decision.events:
            self.log.warning("event", pod=str(identity), uid=identity.uid, reason=event.reason, message=event.message)
            self.events.emit(identity, event.type, event.reason, event.message)

    def _eligibility(self, identity: Identity, decision: Decision, node: Node) -> None:
        """Who could own CPUs, what became of it, and which rule keeps the others from it (KEP-5526, Mitigations)."""
        if not self.log.is_enabled_for(logging.DEBUG):
            return
        view = node.view
        pod = view.pods.get(decision.uid)
        rules = {} if pod is None else eligibility(view, pod)
        self.log.debug(
            "eligibility",
            pod=str(identity),
            uid=identity.uid,
            qos=decision.qos,
            pod_cpus=None if decision.pod_cpus is None else str(decision.pod_cpus),
            exclusive=[one.name for one in decision.containers if one.exclusive],
            shared={one.name: one.isolation for one in decision.containers if not one.exclusive},
            why={one.name: ELIGIBILITY[rules[one.name]] for one in decision.containers if one.name in rules},
        )

    def refused(self, identity: Identity, refusal: ReportedRefusal) -> None:
        reason, message, why = refusal.reason, refusal.message, refusal.why
        if self.metrics is not None:
            self.metrics.rejections.labels(rejection_label(reason)).inc()
            pod_level = refusal.spec is not None and refusal.spec.spec.resources is not None
            if self.metrics.pod_pinning_errors is not None and pod_level and reason == TOPOLOGY_AFFINITY:
                self.metrics.pod_pinning_errors.inc()
        self.log.warning("refused", pod=str(identity), uid=identity.uid, reason=reason, message=message, why=why)
        if not (self._explains and refusal.final and refusal.of == identity.uid):
            self.events.emit(identity, "Warning", reason, event_text(refusal, ""))

    def explained(self, identity: Identity, refusal: ReportedRefusal, fix: str) -> None:
        """What became of a refused pod, and what would help."""
        waits = list(refusal.waits_for)
        self.log.info("explained", pod=str(identity), uid=identity.uid, reason=refusal.reason, fix=fix, waits_for=waits)
        kind, reason = ("Normal", "PodsliceWaiting") if waits else ("Warning", refusal.reason)
        self.events.emit(identity, kind, reason, event_text(refusal, fix))

    def rejected(self, identity: Identity, refusal: ReportedRefusal) -> None:
        """The pod is marked Failed."""
        if self.metrics is not None:
            self.metrics.rejected.inc()
        self.log.warning("rejected", pod=str(identity), uid=identity.uid, reason=refusal.reason)

    def failed(self, identity: Identity, failure: PodFailure) -> None:
        """Counted each time, said once."""
        if self.metrics is not None:
            self.metrics.failures.labels(failure.step).inc()
        key = (identity.uid, failure)
        if key in self._failures:
            return
        self._failures[key] = None
        while len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)
        self.log.error("failed", pod=str(identity), uid=identity.uid, step=failure.step, error=str(failure))
        self.events.emit(identity, "Warning", "PodsliceFailed", f"{failure.step}: {failure}")

    def resized(self, identity: Identity, container: str, text: str) -> None:
        if self.metrics is not None:
            self.metrics.resizes.inc()
        self.log.warning("resize", pod=str(identity), uid=identity.uid, container=container, text=text)
        self.events.emit(identity, "Warning", "PodsliceResizeNotApplied", text)

    def resize_answered(self, identity: Identity, news: ResizeNews) -> None:
        if self.metrics is not None:
            self.metrics.answered.labels(news.operation, news.result).inc()
            if news.result == "applied":
                self.metrics.resize_seconds.observe(news.seconds)
        if news.told:
            return
        self.log.info(
            "resize", pod=str(identity), uid=identity.uid, operation=news.operation, result=news.result, text=news.text
        )
        kind = "Normal" if news.result == "applied" else "Warning"
        self.events.emit(identity, kind, _RESIZE_EVENTS[news.result], news.text)

    def moved(self, identity: Identity, news: MoveNews) -> None:
        if self.metrics is not None:
            self.metrics.moves.labels(news.result).inc()
        self.log.info(
            "move", pod=str(identity), uid=identity.uid, result=news.result, text=news.text, seconds=news.seconds
        )
        kind, reason = ("Normal", "PodsliceMoved") if news.result == "done" else ("Warning", "PodsliceNotMoved")
        self.events.emit(identity, kind, reason, news.text)

    def machine_changed(self, identity: Identity | None, consequence: MachineConsequence) -> None:
        kind, text = consequence.kind, consequence.text
        if self.metrics is not None:
            self.metrics.machine_changes.labels(kind).inc()
        if identity is None:
            self.log.warning("machine", kind=kind, text=text)
            self.events.emit_node("Warning" if kind in _BAD_NEWS else "Normal", "PodsliceMachineChanged", text)
            return
        name = consequence.container
        self.log.warning("machine", pod=str(identity), uid=identity.uid, container=name, kind=kind, text=text)
        level, reason = _POD_EVENTS.get(kind, ("Warning", "PodsliceCPUsLost"))
        self.events.emit(identity, level, reason, text)

    def stranger(self, identity: Identity, container: str, why: str) -> None:
        if self.metrics is not None:
            self.metrics.strangers.inc()
        self.log.warning("stranger", pod=str(identity), uid=identity.uid, container=container, why=why)
        self.events.emit(identity, "Warning", "PodsliceStranger", f"Container {container}: {why}")

    def trouble(self, what: str, message: str) -> None:
        """Counted each time; the same one is logged once in five minutes."""
        if self.metrics is not None:
            self.metrics.troubles.labels(what).inc()
        now, key = self._clock(), (what, message[:LONGEST_MESSAGE])
        if now - self._troubles.get(key, -_REPEAT_AFTER) < _REPEAT_AFTER:
            return
        self._troubles[key] = now
        while len(self._troubles) > _REMEMBERED:
            self._troubles.popitem(last=False)
        self.log.error("trouble", what=what, message=message[:LONGEST_MESSAGE])

    def policy_read(self, text: str) -> None:
        """Report what has changed in the policy, or that nothing has."""
        self.log.info("policy", text=text)
        self.events.emit_node("Normal", "PodslicePolicyRead", text)

    def event(self, reason: str, message: str) -> None:
        """A warning about the node."""
        self.events.emit_node("Warning", reason, message)

    def drift(self, drift: Drift) -> None:
        if self.metrics is not None:
            self.metrics.drift.labels(drift.kind).inc()
            if drift.repaired:
                self.metrics.repaired.labels(drift.kind).inc()
        self.log.warning(
            "drift",
            pod=drift.pod,
            container=drift.container,
            kind=drift.kind,
            wanted=drift.wanted,
            found=drift.found,
            repaired=drift.repaired,
            why=drift.why,
        )

    def hook(self, name: str, seconds: float) -> None:
        if self.metrics is not None:
            self.metrics.hooks.labels(name).observe(seconds)
