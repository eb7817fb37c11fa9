"""Events on pods that a node refused or took otherwise than expected: what they say, and that there is no storm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from podslice.cluster.model.model import BindingOutcome, OutcomeKind
from podslice.cluster.placements import NodeReport
from podslice.cluster.pod_events import BURST, PodEvents
from podslice.node.answers import PodHolding
from podslice.service.clusterobjects import ScheduledPod
from tests.cluster.bench import pod_object, scheduled_pod

Sent = list[dict[str, Any]]


class Taker:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.events: Sent = []

    async def create_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def sent(emit: Callable[[PodEvents], None], wanted: int, *pods: ScheduledPod) -> tuple[Sent, int]:
    """The events that `emit` brings about, once there are so many, and how many were dropped."""

    async def main() -> tuple[Sent, int]:
        taker = Taker()
        events = PodEvents(taker, {pod.uid: pod for pod in pods}, clock=lambda: 0.0)
        loop = asyncio.ensure_future(events.run())
        emit(events)
        while len(taker.events) < wanted:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop
        return taker.events, events.dropped

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("fate", "reason", "message"),
    [
        ("refused", "PodsliceRefused", "n1 refused the pod, which its model would have taken"),
        ("disputed", "PodsliceDisputed", "n1 gave the pod CPUs 4-7, its model would have given CPUs 0-3"),
    ],
)
def test_a_dispute_is_an_event(fate: OutcomeKind, reason: str, message: str) -> None:
    """One Warning on the pod that names the node, what it gave and what was expected."""
    told = BindingOutcome(fate, PodHolding(0b1111, (), ()), PodHolding(0b1111 << 4, (), ()))
    pod = scheduled_pod(pod_object("a"))
    events, dropped = sent(lambda to: to.emit_dispute(NodeReport("n1", pod.uid, told)), 1, pod)
    (event,) = events
    assert (event["type"], event["reason"], event["message"], dropped) == ("Warning", reason, message, 0)
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == ("a", pod.uid)


@pytest.mark.parametrize("fate", ["agreed", "honoured", "foreign"])
def test_an_expected_outcome_is_no_event(fate: OutcomeKind) -> None:
    """A pod that has what it was to have gets no event."""
    pod = scheduled_pod(pod_object("a"))
    assert sent(lambda to: to.emit_dispute(NodeReport("n1", pod.uid, BindingOutcome(fate))), 0, pod) == ([], 0)


def test_a_storm_is_cut() -> None:
    """Of very many disputes at once only the first become Events; the rest is counted."""

    pods = [scheduled_pod(pod_object(f"p{number}")) for number in range(100)]

    def emit(to: PodEvents) -> None:
        for pod in pods:
            to.emit_dispute(NodeReport("n1", pod.uid, BindingOutcome("refused")))

    events, dropped = sent(emit, int(BURST), *pods)
    assert (len(events), dropped) == (BURST, 100 - BURST)
