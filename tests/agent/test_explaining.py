"""Messages to people about a refused pod."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from podslice import explain, pod_from_dict
from podslice.advise.explain.explain import Explainer
from podslice.advise.trial.trial import Trial
from podslice.agent.api_server.explaining import Explaining, best_fix, event_text
from podslice.agent.records import ReportedRefusal
from podslice.agent.status.trialnode import copy_for_trial, fits_without
from podslice.machine.devices import Device
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.devices.plugin import PluginOptions
from podslice.node.node import Node
from podslice.service.identity import Identity
from tests import clock
from tests.agent.helpers import MACHINE, agent_config
from tests.conftest import make_pod

BIG = make_pod("big", ("app", "14"))
REFUSAL = ReportedRefusal("TopologyAffinityError", "no room", "Nothing is free.", spec=BIG, final=True)


def full_node() -> Node:
    node = Node(from_synthetic(MACHINE), agent_config(), predicates=False)
    assert node.admit(make_pod("old", ("app", "20"))).admitted
    assert not node.try_admit(BIG).admitted
    return node


def told(
    node: Node | None,
    *refusals: tuple[str, ReportedRefusal],
    run_in_thread: Callable[[Callable[[], str]], Awaitable[str]] | None = None,
) -> tuple[list[tuple[str, str]], list[str]]:
    """Pods and fixes in the order in which people hear of them, and what went wrong."""
    heard: list[tuple[str, str]] = []
    troubles: list[str] = []

    async def hear(identity: Identity, refusal: ReportedRefusal, fix: str) -> None:
        heard.append((identity.name, fix))

    async def at_once(work: Callable[[], str]) -> str:
        return work()

    async def main() -> None:
        explaining = Explaining(
            lambda: node, hear, trouble=lambda what, text: troubles.append(text), run_in_thread=run_in_thread or at_once
        )
        task = asyncio.ensure_future(explaining.run())
        for name, refusal in refusals:
            explaining.on_refusal(Identity(name, "default", name, {}), refusal)
        await clock.until(lambda: len(heard) == len({name for name, _ in refusals}))
        task.cancel()

    clock.run(main())
    return heard, troubles


def test_the_best_fix_is_the_explainers() -> None:
    """The fix is the first of `podslice explain`, for each pod that differs; the latest word about a pod counts."""
    node = full_node()
    best = explain(node, BIG).fixes[0].text
    heard, troubles = told(node, ("a", REFUSAL), ("b", REFUSAL), ("a", REFUSAL))
    assert heard == [("a", best), ("b", best)]
    assert not troubles
    assert node.pods == ("old",)


def test_who_waits_needs_no_fix() -> None:
    """Nothing is looked for where waiting helps, where the specification is not known, or without a node."""
    node = full_node()
    assert told(node, ("a", replace(REFUSAL, waits_for=("default/old",))))[0] == [("a", "")]
    assert told(node, ("a", replace(REFUSAL, spec=None)))[0] == [("a", "")]
    assert told(None, ("a", REFUSAL))[0] == [("a", "")]


def test_an_explainer_that_fails() -> None:
    """An error there costs the fix, not the event, and is counted."""

    async def fail(work: Callable[[], str]) -> str:
        raise RecursionError("too deep")

    heard, troubles = told(full_node(), ("a", REFUSAL), run_in_thread=fail)
    assert heard == [("a", "")]
    assert troubles == ["RecursionError: too deep"]


@pytest.mark.slow
def test_many_at_once() -> None:
    """Of more than 64 that wait the oldest are told of without a fix; nobody is left out."""
    heard, _ = told(full_node(), *((f"p{number}", REFUSAL) for number in range(70)))
    assert [bool(fix) for _, fix in heard] == [False] * 6 + [True] * 64


def test_text() -> None:
    """Upstream's message first, then ours, then what would help, or for whom the pod waits."""
    assert event_text(REFUSAL, "") == "no room; Nothing is free."
    assert event_text(REFUSAL, "Ask for less") == "no room; Nothing is free. What would help: Ask for less"
    waiting = replace(REFUSAL, waits_for=tuple(f"default/p{number}" for number in range(5)))
    assert event_text(waiting, "").endswith("it waits for default/p0, default/p1, default/p2 and 2 more to end")
    assert "restart the kubelet" not in best_fix(Explainer(Trial.of(full_node())), BIG)


class RealPlugin:
    """One that must not hear of a trial."""

    options = PluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def get_preferred_allocation(self, available: list[str], must_include: list[str], size: int) -> list[str] | None:
        raise AssertionError("asked")

    def allocate(self, ids: list[str]) -> None:
        raise AssertionError("asked")

    def pre_start(self, ids: list[str]) -> None:
        raise AssertionError("asked")


@pytest.mark.parametrize(("count", "fits"), [("2", True), ("3", False)])
def test_a_trial_calls_no_device_plugin(count: str, fits: bool) -> None:
    """Whether a pod would fit is tried without its device plugin, and leaves the node as it was."""
    node = full_node()
    node.register_devices("vendor.com/gpu", [Device(f"gpu{number}") for number in range(2)], RealPlugin())
    before = node.state
    limits = {"cpu": "14", "memory": "1Gi", "vendor.com/gpu": count}
    containers = [{"name": "app", "resources": {"limits": limits}}]
    pod = pod_from_dict({"metadata": {"name": "new", "uid": "new"}, "spec": {"containers": containers}})
    assert fits_without(node, pod, ["old"]) is fits
    assert not fits_without(node, pod, [])
    assert node.state == before
    assert copy_for_trial(node).pods == ("old",)
