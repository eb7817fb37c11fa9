"""Reports of the agent: the log as JSON lines, metrics, and Kubernetes Events on the pods concerned."""

from __future__ import annotations

import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TextIO

import structlog

from podslice.advise.explain.codes import ELIGIBILITY
from podslice.advise.explain.trace import eligibility
from podslice.agent.api_server.explaining import event_text
from podslice.agent.contract import MoveReport, PodFailure, ResizeReport
from podslice.agent.records import ReportedRefusal
from podslice.agent.status.metrics import Metrics, rejection_label
from podslice.machine.delta import MachineConsequence
from podslice.node.node import Decision, Node
from podslice.service.apievents import LONGEST_MESSAGE
from podslice.service.identity import Identity
from podslice.status.status import Drift
from podslice.values.reasons import TOPOLOGY_AFFINITY
from podslice.version import running_version

_REMEMBERED = 1024
_REPEAT_AFTER = 300.0
_RESIZE_EVENTS = {
    "applied": "PodsliceResizeApplied",
    "deferred": "PodsliceResizeDeferred",
    "infeasible": "PodsliceResizeInfeasible",
    "failed": "PodsliceResizeFailed",
}


class RepeatFilter(logging.Filter):
    """Passes a log line once in `seconds`, with the number of equal ones that were left out."""

    def __init__(self, seconds: float = 10.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._passed: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a line to leave out."""
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


def configure_log(level: str = "info", stream: TextIO | None = None) -> None:
    """Log JSON lines to `stream`, standard error without it, one per event; repeated lines of asyncio now and then."""
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
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=True,
    )


_WARNINGS = ("only-reserved", "no-shared-cpus", "reserved-offline", "memory-overcommitted", "node-gone", "rebuilt")
_POD_EVENTS = {
    "rebuilt": ("Normal", "PodsliceCPUsReplaced"),
    "replaced": ("Warning", "PodsliceCPUsReplaced"),
    "returned": ("Normal", "PodsliceCPUsReturned"),
}
"""Events by kind of consequence; for containers that lost their CPUs it is `PodsliceCPUsLost`."""


class EventSink(Protocol):
    """Receiver of events about pods and the node."""

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None: ...
    def emit_node(self, kind: str, reason: str, message: str) -> None: ...


class NoEvents:
    """Drops events, on nodes without API server: the log has everything as well."""

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        """Do nothing."""

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        """Do nothing."""


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

    def serving(self, node: str, *, observe: bool) -> None:
        """Report that the agent of this node has started."""
        self.log.info("serving", node=node, version=running_version(), observe=observe)

    def stopping(self, signal: str) -> None:
        """Report the signal that ends the agent."""
        self.log.info("stopping", signal=signal)

    def decided(self, seconds: float) -> None:
        """Report the duration of a decision."""
        if self.metrics is not None:
            self.metrics.admission_ms.observe(int(seconds * 1000))
            if self.metrics.admission is not None:
                self.metrics.admission.observe(seconds)

    def admitted(self, identity: Identity, decision: Decision, node: Node) -> None:
        """Report an admitted pod."""
        containers = {c.name: f"{c.isolation} {c.cpus}" for c in decision.containers}
        self.log.info("admitted", pod=str(identity), uid=identity.uid, qos=decision.qos, containers=containers)
        self._eligibility(identity, decision, node)
        for event in decision.events:
            self.log.warning("event", pod=str(identity), uid=identity.uid, reason=event.reason, message=event.message)
            self.events.emit(identity, event.type, event.reason, event.message)

    def _eligibility(self, identity: Identity, decision: Decision, node: Node) -> None:
        """Log which containers own CPUs, and which rule keeps the others from it (KEP-5526, Mitigations)."""
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
        """Report a refused pod or container."""
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
        """Report whether a refused pod waits or is rejected, and what would help."""
        waits = list(refusal.waits_for)
        self.log.info("explained", pod=str(identity), uid=identity.uid, reason=refusal.reason, fix=fix, waits_for=waits)
        kind, reason = ("Normal", "PodsliceWaiting") if waits else ("Warning", refusal.reason)
        self.events.emit(identity, kind, reason, event_text(refusal, fix))

    def rejected(self, identity: Identity, refusal: ReportedRefusal) -> None:
        """Report that a pod is marked Failed."""
        if self.metrics is not None:
            self.metrics.rejected.inc()
        self.log.warning("rejected", pod=str(identity), uid=identity.uid, reason=refusal.reason)

    def failed(self, identity: Identity, failure: PodFailure) -> None:
        """Report a failure: counted each time, logged once."""
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
        """Report a requested resize that is not applied."""
        if self.metrics is not None:
            self.metrics.resizes.inc()
        self.log.warning("resize", pod=str(identity), uid=identity.uid, container=container, text=text)
        self.events.emit(identity, "Warning", "PodsliceResizeNotApplied", text)

    def resize_answered(self, identity: Identity, report: ResizeReport) -> None:
        """Report the result of a requested resize."""
        if self.metrics is not None:
            self.metrics.answered.labels(report.operation, report.result).inc()
            if report.result == "applied":
                self.metrics.resize_seconds.observe(report.seconds)
        if report.repeated:
            return
        self.log.info(
            "resize",
            pod=str(identity),
            uid=identity.uid,
            operation=report.operation,
            result=report.result,
            text=report.text,
        )
        kind = "Normal" if report.result == "applied" else "Warning"
        self.events.emit(identity, kind, _RESIZE_EVENTS[report.result], report.text)

    def moved(self, identity: Identity, report: MoveReport) -> None:
        """Report the result of a move."""
        if self.metrics is not None:
            self.metrics.moves.labels(report.result).inc()
        self.log.info(
            "move", pod=str(identity), uid=identity.uid, result=report.result, text=report.text, seconds=report.seconds
        )
        kind, reason = ("Normal", "PodsliceMoved") if report.result == "done" else ("Warning", "PodsliceNotMoved")
        self.events.emit(identity, kind, reason, report.text)

    def machine_changed(self, identity: Identity | None, consequence: MachineConsequence) -> None:
        """Report a consequence of a changed machine, for a pod or, with None, for the node."""
        kind, text = consequence.kind, consequence.text
        if self.metrics is not None:
            self.metrics.machine_changes.labels(kind).inc()
        if identity is None:
            self.log.warning("machine", kind=kind, text=text)
            self.events.emit_node("Warning" if kind in _WARNINGS else "Normal", "PodsliceMachineChanged", text)
            return
        name = consequence.container
        self.log.warning("machine", pod=str(identity), uid=identity.uid, container=name, kind=kind, text=text)
        level, reason = _POD_EVENTS.get(kind, ("Warning", "PodsliceCPUsLost"))
        self.events.emit(identity, level, reason, text)

    def stranger(self, identity: Identity, container: str, why: str) -> None:
        """Report a container that was created without the agent."""
        if self.metrics is not None:
            self.metrics.strangers.inc()
        self.log.warning("stranger", pod=str(identity), uid=identity.uid, container=container, why=why)
        self.events.emit(identity, "Warning", "PodsliceStranger", f"Container {container}: {why}")

    def trouble(self, what: str, message: str) -> None:
        """Report a trouble: counted each time, the same one logged once in five minutes."""
        if self.metrics is not None:
            self.metrics.troubles.labels(what).inc()
        now, key = self._clock(), (what, message[:LONGEST_MESSAGE])
        if now - self._troubles.get(key, -_REPEAT_AFTER) < _REPEAT_AFTER:
            return
        self._troubles[key] = now
        while len(self._troubles) > _REMEMBERED:
            self._troubles.popitem(last=False)
        self.log.error("trouble", what=what, message=message[:LONGEST_MESSAGE])

    def connected(self, runtime: str) -> None:
        """Report a registration with the runtime."""
        if self.metrics is not None:
            self.metrics.connected.set(1)
            self.metrics.connections.inc()
        self.log.info("connected", runtime=runtime)

    def disconnected(self, reason: str) -> None:
        """Report that there is no connection to the runtime; with an empty `reason` only in the metrics."""
        if self.metrics is not None:
            self.metrics.connected.set(0)
        if reason:
            self.log.warning("disconnected", reason=reason)

    def loop_restarted(self, name: str, why: str) -> None:
        """Report that a loop of the agent has failed and is started again."""
        self.trouble("loop", f"{name} is started again: {why}")

    def stream_began(self, target: str, version: str, protocol: int) -> None:
        """Report that a cluster's service follows, of this version, empty for an old one."""
        self.log.info("stream began", service=target, version=version, protocol=protocol)

    def policy_read(self, text: str) -> None:
        """Report what has changed in the policy, or that nothing has."""
        self.log.info("policy", text=text)
        self.events.emit_node("Normal", "PodslicePolicyRead", text)

    def event(self, reason: str, message: str) -> None:
        """Send a warning about the node."""
        self.events.emit_node("Warning", reason, message)

    def drift(self, drift: Drift) -> None:
        """Report a difference between a decision and a cgroup."""
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
        """Report the duration of a call of the runtime."""
        if self.metrics is not None:
            self.metrics.hooks.labels(name).observe(seconds)
