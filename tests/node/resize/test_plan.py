"""The order in which a resize reaches cgroups and runtime."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.api.pod.spec import allocation_of
from podslice.node.effects.container_cgroup import LinuxResources
from podslice.node.effects.resize_actions import Actuation, Observed
from podslice.node.effects.resize_plan import (
    ContainerResize,
    LinuxValues,
    NotifyRuntime,
    PodResize,
    RecordPodLevel,
    Resource,
    RestartContainer,
    Step,
    UpdateContainer,
    WritePodCgroup,
    plan_resize,
    tolerates,
)
from podslice.node.effects.sandbox import Sandbox
from podslice.node.effects.settings import CgroupSettings
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks
from tests.node.resize.helpers import GATES, pod, resources

GI = 1 << 30
RESOURCES: tuple[Resource, ...] = ("memory", "cpu")


def announce(values: LinuxValues) -> Sandbox:
    """A runtime's message that shows the cgroup values as they are."""
    own = LinuxResources(values.cpu_period or 0, values.cpu_quota or 0, values.cpu_shares or 0, values.memory or 0)
    return Sandbox(own, LinuxResources())


def values(shares: int | None = None, quota: int | None = None, memory: int | None = None) -> LinuxValues:
    return LinuxValues(shares, quota, None if quota is None else 100_000, memory)


def brief(step: Step) -> str:
    """Return a step in a word or two."""
    if isinstance(step, NotifyRuntime):
        return f"notify {step.resource}"
    if isinstance(step, WritePodCgroup):
        return f"{step.file} {step.content}"
    if isinstance(step, UpdateContainer):
        return f"{step.container} {step.resource}"
    return f"record {step.resource}" if isinstance(step, RecordPodLevel) else f"restart {step.container}"


def steps(resize: PodResize, quirks: Quirks = PODSLICE) -> list[str]:
    plan = plan_resize(resize, announce, quirks)
    assert not plan.error
    return [brief(step) for step in plan.steps]


def test_growing() -> None:
    """When everything grows the pod goes first, memory before CPU, limits before requests."""
    resize = PodResize(
        "p",
        values(512, 50_000, GI),
        values(1024, 100_000, 2 * GI),
        (ContainerResize("a", values(512, 50_000, GI), values(1024, 100_000, 2 * GI)),),
    )
    assert steps(resize) == [
        "notify memory", "memory.max 2147483648", "a memory", "record memory",
        "notify cpu", "cpu.max 100000 100000", "notify cpu", "cpu.weight 39", "a cpu", "record cpu",
    ]  # fmt: skip


def test_shrinking() -> None:
    """When everything shrinks the containers go first, requests before limits."""
    resize = PodResize(
        "p",
        values(1024, 100_000, 2 * GI),
        values(512, 50_000, GI),
        (ContainerResize("a", values(1024, 100_000, 2 * GI), values(512, 50_000, GI), memory_usage=0),),
        memory_usage=0,
    )
    assert steps(resize) == [
        "a memory", "notify memory", "memory.max 1073741824", "record memory",
        "a cpu", "notify cpu", "cpu.weight 20", "notify cpu", "cpu.max 50000 100000", "record cpu",
    ]  # fmt: skip


def test_containers_that_give_back_come_first() -> None:
    """Per resource, by the limit where it changes and else by the request; of those that give back the last one comes
    first."""
    resize = PodResize(
        "p",
        values(),
        values(),
        (
            ContainerResize("grows", values(2, 50_000, GI), values(2, 60_000, 2 * GI)),
            ContainerResize("shrinks", values(2, 60_000, 2 * GI), values(1024, 50_000, GI), memory_usage=0),
            ContainerResize("asks less", values(1024, 50_000, GI), values(512, 50_000, GI)),
        ),
    )
    assert steps(resize) == ["shrinks memory", "grows memory", "asks less cpu", "shrinks cpu", "grows cpu"]


def test_missing_limits_stay() -> None:
    """Without a target limit the current one is kept, and there is nothing to write or to record."""
    assert steps(PodResize("p", values(512, 50_000, GI), LinuxValues(cpu_shares=512))) == []


def test_restarts_are_no_updates() -> None:
    """A container that must restart is stopped first and not updated."""
    one = ContainerResize("a", values(memory=GI), values(memory=2 * GI), restart=True)
    plan = plan_resize(PodResize("p", values(memory=GI), values(memory=2 * GI), (one,)), announce)
    assert [brief(step) for step in plan.steps] == [
        "restart a", "notify memory", "memory.max 2147483648", "record memory",
    ]  # fmt: skip
    first = plan.steps[0]
    assert isinstance(first, RestartContainer)
    assert first.message == "Container a resize requires restart"


def test_a_failed_write_is_taken_back() -> None:
    """The runtime, notified before a write, gets the old values when the write fails; its refusal ends the resize."""
    plan = plan_resize(PodResize("p", values(memory=GI), values(memory=2 * GI)), announce)
    notify, write = plan.steps[0], plan.steps[1]
    assert isinstance(notify, NotifyRuntime)
    assert notify.sandbox.resources.memory_limit == 2 * GI
    (undo,) = plan.rollback(plan.steps.index(write))
    assert undo.sandbox.resources.memory_limit == GI
    assert plan.rollback(0) == ()
    assert notify.failure("boom") == (
        "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: boom"
    )


@pytest.mark.parametrize(
    ("code", "text", "tolerated"),
    [("Unimplemented", "", True), ("Unknown", "method not implemented", True), ("Unknown", "broken", False),
     ("Internal", "not implemented", False)],
)  # fmt: skip
def test_runtimes_without_the_call(code: str, text: str, tolerated: bool) -> None:
    """A runtime that does not know UpdatePodSandboxResources does not keep pods from being resized."""
    assert tolerates(code, text) is tolerated


# Memory in use


def shrink(pod_usage: int | None, usage: int | None, *, containers: bool = True) -> PodResize:
    one = ContainerResize("a", values(memory=2 * GI), values(memory=GI), memory_usage=usage)
    return PodResize("p", values(memory=2 * GI), values(memory=GI), (one,) if containers else (), pod_usage)


def error(resize: PodResize, quirks: Quirks) -> str:
    plan = plan_resize(resize, announce, quirks)
    assert not (plan.error and plan.steps)
    return plan.error.removeprefix("cannot decrease memory limits: ")


POD_TOO_LOW = f"attempting to set pod memory limit ({GI}) below current usage ({GI + 5})"


@pytest.mark.parametrize("quirks", [PODSLICE, KUBELET_1_36])
@pytest.mark.parametrize(
    ("resize", "expected"),
    [
        pytest.param(shrink(GI - 1, 0), "", id="room"),
        pytest.param(shrink(GI + 5, 0), POD_TOO_LOW, id="pod"),
        pytest.param(shrink(None, 0), "missing pod memory usage", id="pod unknown"),
        pytest.param(shrink(0, None), 'missing container "a" memory usage', id="container unknown"),
        pytest.param(
            shrink(None, None), '[missing pod memory usage, missing container "a" memory usage]', id="both unknown"
        ),
    ],
)
def test_memory_in_use(resize: PodResize, expected: str, quirks: Quirks) -> None:
    """A memory limit does not fall to what is in use; the message names what stands in the way."""
    assert error(resize, quirks) == expected


def test_gaps_of_the_memory_check() -> None:
    """v1.36.2 names the pod's usage for a container, and does not look where only the pod's limit shrinks."""
    text = f'attempting to set container "a" memory limit ({GI}) below current usage ({{}})'
    assert error(shrink(7, GI + 3), PODSLICE) == text.format(GI + 3)
    assert error(shrink(7, GI + 3), KUBELET_1_36) == text.format(7)
    assert error(shrink(GI + 5, None, containers=False), PODSLICE) == POD_TOO_LOW
    assert error(shrink(GI + 5, None, containers=False), KUBELET_1_36) == ""


def test_a_first_limit() -> None:
    """A limit where there was none shrinks what the pod may use; v1.36.2 takes −1 for less than everything."""
    container = ContainerResize("a", values(memory=-1), values(memory=GI), memory_usage=0)
    resize = PodResize("p", values(memory=-1), values(memory=GI), (container,), memory_usage=0)
    assert steps(resize) == ["a memory", "notify memory", "memory.max 1073741824", "record memory"]
    assert steps(resize, KUBELET_1_36) == ["notify memory", "memory.max 1073741824", "a memory", "record memory"]


# Whatever the numbers

limits = st.integers(min_value=1, max_value=64)


@st.composite
def pod_resizes(draw: st.DrawFn) -> PodResize:
    """Pods whose limit covers their containers' before and after, and whose memory is idle."""

    def one() -> LinuxValues:
        return LinuxValues(draw(limits) * 2, draw(limits) * 1000, 100_000, draw(limits) * 4096)

    containers = tuple(
        ContainerResize(f"c{index}", one(), one(), memory_usage=0) for index in range(draw(st.integers(0, 4)))
    )

    def cover(parts: list[LinuxValues]) -> LinuxValues:
        slack = draw(limits)
        return LinuxValues(
            sum(part.cpu_shares or 0 for part in parts) + slack,
            sum(part.cpu_quota or 0 for part in parts) + slack,
            100_000,
            sum(part.memory or 0 for part in parts) + slack,
        )

    current, target = cover([c.current for c in containers]), cover([c.target for c in containers])
    return PodResize("p", current, target, containers, memory_usage=0)


def amount(of: LinuxValues, field: str) -> int:
    return int(getattr(of, field) or 0)


@given(pod_resizes(), st.sampled_from([PODSLICE, KUBELET_1_36]))
def test_the_pod_always_covers_its_containers(resize: PodResize, quirks: Quirks) -> None:
    """After every step the containers' limits fit into the pod's, and at the end all targets are reached."""
    state: dict[str, Any] = {"": resize.current, **{one.name: one.current for one in resize.containers}}
    announced = announce(resize.current)
    for step in plan_resize(resize, announce, quirks).steps:
        if isinstance(step, NotifyRuntime):
            announced = step.sandbox
        elif isinstance(step, WritePodCgroup):
            state[""] = _merged(state[""], step.values)
            assert announced == announce(state[""])
        elif isinstance(step, UpdateContainer):
            state[step.container] = _merged(state[step.container], step.values)
        for field in ("cpu_quota", "memory"):
            inside = sum(amount(one, field) for name, one in state.items() if name)
            assert inside <= amount(state[""], field)
    assert state == {"": resize.target, **{one.name: one.target for one in resize.containers}}


def _merged(old: LinuxValues, new: LinuxValues) -> LinuxValues:
    return LinuxValues(*(b if b is not None else a for a, b in zip(_fields(old), _fields(new), strict=True)))


def _fields(one: LinuxValues) -> tuple[int | None, ...]:
    return one.cpu_shares, one.cpu_quota, one.cpu_period, one.memory


@given(pod_resizes())
def test_every_write_is_announced(resize: PodResize) -> None:
    """The runtime hears of a write right before it, and each resource that changed is recorded once, after its last
    step."""
    plan = plan_resize(resize, announce)
    for index, step in enumerate(plan.steps):
        if isinstance(step, WritePodCgroup):
            before = plan.steps[index - 1]
            assert isinstance(before, NotifyRuntime)
            assert before.resource == step.resource
    for resource in RESOURCES:
        own = [step for step in plan.steps if getattr(step, "resource", None) == resource]
        written = [step for step in own if isinstance(step, WritePodCgroup)]
        recorded = [step for step in own if isinstance(step, RecordPodLevel)]
        assert len(recorded) == bool(written)
        assert not recorded or own[-1] is recorded[0]


# From pods to plans

SETTINGS = CgroupSettings(memory_capacity=16 * GI)


def actuation(quirks: Quirks = PODSLICE, **changes: Any) -> Actuation:
    """A pod limited to 1 CPU whose stanza was raised to 2 CPUs; container a has no limits, b has its own."""
    own = {"resources": resources({"cpu": "100m", "memory": "64Mi"}, {"cpu": "500m", "memory": "64Mi"}), "name": "b"}
    free = {"resources": resources({"memory": "64Mi"}), "name": "a", **changes.pop("a", {})}
    overhead = {"cpu": "250m", "memory": "16Mi"}

    def sized(cpu: str) -> Any:
        return pod(free, own, pod_level=resources({"cpu": cpu}, {"cpu": cpu}), overhead=overhead)

    cgroup = LinuxValues(1280, 125_000, 100_000, -1)
    observed = Observed(cgroup, running={"a", "b"})
    return Actuation(sized("2"), allocation_of(sized("1"), GATES), observed, GATES, SETTINGS, quirks=quirks, **changes)


def test_a_pod_limit_reaches_containers_without_one() -> None:
    """Raising the pod's CPU limit updates the container that has none of its own, and only that."""
    plan = actuation().plan()
    assert [brief(step) for step in plan.steps] == [
        "notify cpu", "cpu.max 225000 100000", "notify cpu", "cpu.weight 88", "a cpu", "record cpu",
    ]  # fmt: skip
    update = next(step for step in plan.steps if isinstance(step, UpdateContainer))
    assert update.values == LinuxValues(2, 200_000, 100_000)


def test_the_runtime_gets_values_without_overhead() -> None:
    """The announcement has the pod's own part of its cgroup."""
    messages = [step.sandbox for step in actuation().plan().steps if isinstance(step, NotifyRuntime)]
    assert messages[-1].resources.cpu_quota == 200_000
    assert messages[-1].resources.cpu_shares == 2048
    assert messages[-1].overhead.cpu_quota == 25_000


def test_no_limit_is_announced_as_such() -> None:
    """Without CFS quota the runtime hears −1; v1.36.2 subtracts the overhead from it."""
    cgroup = LinuxValues(1280, -1, 100_000, -1)
    assert actuation().announce(cgroup).resources.cpu_quota == -1
    assert actuation(KUBELET_1_36).announce(cgroup).resources.cpu_quota == -25_001


def test_updates_and_weights() -> None:
    """A container without CPU request has the least weight from its first update on, which alone is not an update."""
    for quirks in (PODSLICE, KUBELET_1_36):
        (one,) = actuation(quirks).resize().containers
        assert (one.current.cpu_shares, one.target.cpu_shares) == (2, 2)


def test_resize_policy_restarts() -> None:
    """A container whose policy wants a restart for CPU is restarted, although only the pod's limit changed."""
    policy = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}
    assert brief(actuation(a=policy).plan().steps[0]) == "restart a"
    policy["resizePolicy"][0]["resourceName"] = "memory"
    assert "a cpu" in [brief(step) for step in actuation(a=policy).plan().steps]


def test_a_request_of_memory_alone_is_told() -> None:
    """A container whose memory request changes is updated, though no value of its cgroup does: its OOM score does;
    one whose CPU limit changes where no quota is enforced is updated as well. A limit of zero is none."""

    def sized(memory: str, cpu: str) -> Any:
        return pod({"resources": resources({"cpu": "1", "memory": memory}, {"cpu": cpu}), "name": "a"})

    def steps_of(old: Any, new: Any, settings: CgroupSettings = SETTINGS) -> list[str]:
        observed = Observed(LinuxValues(1024, 200_000, 100_000, -1), running={"a"})
        written = allocation_of(old, GATES)
        return [brief(one) for one in Actuation(new, written, observed, GATES, settings).plan().steps]

    assert steps_of(sized("64Mi", "2"), sized("65Mi", "2")) == ["a memory"]
    unlimited = CgroupSettings(memory_capacity=GI, cfs_quota=False)
    assert "a cpu" in steps_of(sized("64Mi", "2"), sized("64Mi", "3"), unlimited)
    recorded = pod({"resources": resources({"cpu": "1", "memory": "64Mi"}, {"cpu": "2", "memory": "0"}), "name": "a"})
    assert steps_of(recorded, sized("64Mi", "2")) == []


def test_zeros_that_a_kubelet_records_change_nothing() -> None:
    """A container without requests that was updated once is recorded with zeros: that is no change, and no reason to
    restart it."""
    restarts = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}], "name": "a"}
    level = resources({"cpu": "2"}, {"cpu": "2"})
    zeros = resources({"cpu": "0", "memory": "0"}, {"cpu": "0", "memory": "0"})
    old, new = (pod({**restarts, "resources": own}, pod_level=level) for own in (zeros, {}))
    record = msgspec.structs.replace(allocation_of(old, GATES), pod_level=allocation_of(new, GATES).pod_level)
    observed = Observed(LinuxValues(2048, 200_000, 100_000, -1), running={"a"})
    assert Actuation(new, record, observed, GATES, SETTINGS).plan().steps == ()
