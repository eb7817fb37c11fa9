"""Kubernetes' end-to-end tests about resizing pods with pod-level resources (checklist X11)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from podslice.api.pod.spec import Pod, allocation_of
from podslice.node.effects.resize_actions import Actuation, Observed
from podslice.node.effects.resize_plan import (
    LinuxValues,
    RestartContainer,
    UpdateContainer,
    WritePodCgroup,
)
from podslice.node.effects.settings import CgroupSettings
from tests.node.resize.helpers import GATES, pod, resources
from tests.node.resize.test_node import node

SETTINGS = CgroupSettings(memory_capacity=64 << 30)
SMALL, LARGE = {"cpu": "200m", "memory": "128Mi"}, {"cpu": "400m", "memory": "256Mi"}
POLICIES = ("NotRequired", "RestartContainer")


def sized(
    container: dict[str, str],
    budget: dict[str, str],
    policy: str = "NotRequired",
    *,
    init: dict[str, str] | None = None,
) -> Pod:
    """A Guaranteed pod; `container` and `budget` are requests and limits of its container and of all of it."""
    one = {
        "resources": resources(container, container),
        "resizePolicy": [{"resourceName": name, "restartPolicy": policy} for name in ("cpu", "memory")],
    }
    plain = [{"name": "i", "image": "busybox", "resources": resources(init, init)}] if init else None
    return pod(one, init=plain, pod_level=resources(budget, budget))


def actuation(old: Pod, new: Pod, memory_usage: int = 0, running: tuple[str, ...] = ("c0",)) -> Actuation:
    """A pod whose cgroup carries its old values, and that was granted new ones."""
    record = allocation_of(old, GATES)
    before = Actuation(old, record, Observed(LinuxValues()), GATES, SETTINGS).resize().target
    observed = Observed(before, memory_usage, dict.fromkeys(running, memory_usage), running)
    return Actuation(new, record, observed, GATES, SETTINGS)


CASES = [
    pytest.param(level, direction, policy, id=f"{level} {direction} {policy}")
    for level, direction, policy in product(("container", "pod", "both"), ("grows", "shrinks"), POLICIES)
]


@pytest.mark.parametrize(("level", "direction", "policy"), CASES)
def test_resize(level: str, direction: str, policy: str) -> None:
    """Container and pod, up and down, with and without restart: the granted values are the written ones."""
    first, last = (SMALL, LARGE) if direction == "grows" else (LARGE, SMALL)
    budgets = {"container": (LARGE, LARGE), "pod": (first, last), "both": (first, last)}[level]
    containers = {"container": (first, last), "pod": (SMALL, SMALL), "both": (first, last)}[level]
    old, new = (sized(*amounts, policy) for amounts in zip(containers, budgets, strict=True))
    here = node(cpu_manager_policy="none", topology_manager_policy="none")
    admitted = here.admit(old)
    assert admitted.admitted
    assert admitted.events == ()
    decision = here.resize(new)
    assert decision.outcome == "Allocated"
    assert [event.reason for event in decision.events] == ["ResizeStarted"]
    work = actuation(old, new)
    plan = work.plan()
    assert not plan.error
    written = {step.file for step in plan.steps if isinstance(step, WritePodCgroup)}
    assert written == (set() if level == "container" else {"memory.max", "cpu.max", "cpu.weight"})
    touched = {type(step) for step in plan.steps if isinstance(step, RestartContainer | UpdateContainer)}
    expected: set[Any] = {RestartContainer if policy == "RestartContainer" else UpdateContainer}
    assert touched == (set() if level == "pod" else expected)


def test_init_containers() -> None:
    """A plain init container that has ended is resized in the ledgers, and nothing is written for it."""
    old, new = (sized(SMALL, LARGE, init=amounts) for amounts in (SMALL, LARGE))
    here = node(cpu_manager_policy="none", topology_manager_policy="none")
    here.admit(old)
    assert here.resize(new).outcome == "Allocated"
    assert actuation(old, new).plan().steps == ()
    (running,) = actuation(old, new, running=("i",)).plan().steps[:1]
    assert isinstance(running, UpdateContainer)
    assert running.container == "i"


def test_shifting_between_containers() -> None:
    """One container's resources go to another: first the one that shrinks; the pod's cgroup stays untouched."""

    def pair(one: dict[str, str], other: dict[str, str]) -> Pod:
        budget = {"cpu": "600m", "memory": "384Mi"}
        return pod(
            {"resources": resources(one, one)},
            {"resources": resources(other, other)},
            pod_level=resources(budget, budget),
        )

    plan = actuation(pair(SMALL, LARGE), pair(LARGE, SMALL), running=("c0", "c1")).plan()
    updates = [(step.resource, step.container) for step in plan.steps if isinstance(step, UpdateContainer)]
    assert updates == [("memory", "c1"), ("memory", "c0"), ("cpu", "c1"), ("cpu", "c0")]
    assert len(plan.steps) == len(updates)


def test_memory_in_use() -> None:
    """A pod whose memory limit would fall below its usage is not touched, and stays in progress with an error."""
    plan = actuation(sized(SMALL, LARGE), sized(SMALL, SMALL), memory_usage=200 << 20).plan()
    assert plan.steps == ()
    assert plan.error == (
        "cannot decrease memory limits: attempting to set pod memory limit (134217728) below current usage (209715200)"
    )
