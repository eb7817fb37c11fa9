"""Memory of pods with pod-level resources (KEP-5526; memory-device 1.11)."""

from __future__ import annotations

import pytest

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import pod_from_dict
from podslice.values.errors import AdmissionError
from podslice.values.gates import FeatureGates
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from podslice.values.reasons import EMPTY_POD_SHARED_POOL
from tests.node.memory.helpers import (
    ANYWHERE,
    HUGE,
    POD_LEVEL,
    GiB,
    admit,
    check_ledger,
    counted,
    machine,
    manager,
    memory,
    near,
    pod,
    remove,
    restarted,
    sizes,
    start,
    used,
)

BOTH = pytest.mark.parametrize("quirks", [PODSLICE, KUBELET_1_36], ids=["podslice", "kubelet"])
BUDGET = {"cpu": "4", "memory": "8Gi"}
NO_INIT_MEMORY = "pod rejected, pod has shared init containers but no memory available for them"
NO_SHARED_MEMORY = (
    "pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared "
    "containers"
)


def slices(*app, budget=BUDGET, **more):
    """A pod with pod-level resources."""
    return pod("u", *app, budget=budget, gates=POD_LEVEL, **more)


def worked_example() -> AdmissionPod:
    """The pod of the worked example (memory-device 1.11.1): i0 shared, s1 sidecar 1Gi, i2 3Gi, i3 shared, a 2Gi, b and
    c shared."""

    def container(name, amount=None, **more):
        own = {"cpu": "1", "memory": amount} if amount else {}
        return {"name": name, "resources": {"requests": own, "limits": own}, **more}

    spec = {
        "resources": {"requests": BUDGET, "limits": BUDGET},
        "initContainers": [
            container("i0"),
            container("s1", "1Gi", restartPolicy="Always"),
            container("i2", "3Gi"),
            container("i3"),
        ],
        "containers": [container("a", "2Gi"), container("b"), container("c")],
    }
    described = pod_from_dict({"metadata": {"name": "u", "uid": "u"}, "spec": spec})
    return AdmissionPod.of(described, FeatureGates.from_overrides(POD_LEVEL))


@BOTH
def test_worked_example(quirks):
    """The pod of the specification is divided as written there, booked once, and counted as the profile says."""
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    assert admit(memory_manager, worked_example(), near(0)) == ""
    assert {name: own["memory"] for name, own in sizes(memory_manager, "u").items()} == {
        "i0": 8, "s1": 1, "i2": 3, "i3": 7, "a": 2, "b": 5, "c": 5,
    }  # fmt: skip
    assert [block.size for block in memory_manager.pod_blocks("u")] == [8 * GiB]
    assert used(memory_manager) == [8, 0]
    assert memory_manager.machine_state[0].number_of_assignments == 1
    check_ledger(memory_manager)
    assert counted(memory_manager) == {
        "memory_manager_pinning_requests_total": 6,
        "resource_manager_allocations_total{resource_name=memory,source=pod}": 7
        if quirks.assignment_metrics_drift
        else 3,
        "resource_manager_container_assignments{assignment_type=pod_exclusive,resource_name=memory}": 3,
        "resource_manager_container_assignments{assignment_type=pod_shared,resource_name=memory}": 4,
    }


@BOTH
def test_pod_is_freed_with_its_last_container(quirks):
    """Ended init containers free nothing; the pod's memory goes back as a whole."""
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    described = worked_example()
    assert admit(memory_manager, described, near(1)) == ""
    start(memory_manager, described, "a")
    assert set(sizes(memory_manager, "u")) == {"s1", "a", "b", "c"}
    assert used(memory_manager) == [0, 8]
    remove(memory_manager, "u")
    assert used(memory_manager) == [0, 0]
    assert memory_manager.pod_assignments == {}


EMPTY = [
    ("apps", slices(memory("8Gi"), {}), NO_SHARED_MEMORY),
    ("sidecar", slices({}, sidecars=(memory("8Gi"),)), NO_SHARED_MEMORY),
    ("init", slices(memory("1Gi"), sidecars=(memory("8Gi"),), init=({},)), NO_INIT_MEMORY),
]


@BOTH
@pytest.mark.parametrize(("described", "expected"), [e[1:] for e in EMPTY], ids=[e[0] for e in EMPTY])
def test_empty_shared_pool(quirks, described, expected):
    """Exclusive containers must leave something for the others."""
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    before = memory_manager.encode()
    memory_manager.context.activate(described)
    with pytest.raises(AdmissionError) as refusal:
        memory_manager.allocate_pod(described, ANYWHERE)
    assert (refusal.value.message, refusal.value.reason) == (expected, EMPTY_POD_SHARED_POOL)
    assert memory_manager.encode() == before
    assert counted(memory_manager) == {
        "memory_manager_pinning_requests_total": 1,
        "memory_manager_pinning_errors_total": 1,
        "resource_manager_allocation_errors_total{resource_name=memory,source=pod}": 1,
    }


def test_exhausted_huge_pages():
    """The check looks at every resource, and names it (memory-device 4.14)."""
    memory_manager = manager(machine(10, 9, huge={0: 2, 1: 0}), gates=POD_LEVEL)
    described = slices(memory("1Gi", huge="2Gi"), {}, budget={**BUDGET, HUGE: "2Gi"})
    assert admit(memory_manager, described, ANYWHERE).startswith(
        f"pod rejected, sum of exclusive container {HUGE} requests equals pod budget"
    )


@pytest.mark.parametrize(
    ("quirks", "expected"), [(PODSLICE, [4, 0]), (KUBELET_1_36, [8, 0])], ids=["podslice", "kubelet"]
)
def test_admitting_again(quirks, expected):
    """A running pod keeps what it has; upstream ledgers it twice (memory-device 4.3)."""
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    described = slices(memory("1Gi"), {}, budget={"cpu": "4", "memory": "4Gi"})
    assert admit(memory_manager, described, near(0)) == ""
    fresh = restarted(memory_manager)
    assert admit(fresh, described, near(0)) == ""
    assert used(fresh) == expected
    if quirks is PODSLICE:
        assert fresh.encode() == memory_manager.encode()


def test_pod_admitted_container_by_container_keeps_its_memory():
    """A pod that was admitted in container scope is not booked again when the scope becomes `pod`."""
    memory_manager = manager(machine(10, 9), gates=POD_LEVEL)
    described = slices(memory("1Gi"), {})
    memory_manager.context.activate(described)
    for container in described.containers:
        memory_manager.allocate(described, container, near(1))
    fresh = restarted(memory_manager)
    fresh.allocate_pod(described, near(1))
    assert fresh.encode() == memory_manager.encode()
    check_ledger(fresh)


OVER = [
    ("apps", slices(memory("5Gi"), memory("5Gi")), "memory"),
    ("init", slices(memory("1Gi"), init=(memory("9Gi"),)), "memory"),
    ("sidecar and init", slices(memory("1Gi"), sidecars=(memory("4Gi"),), init=(memory("5Gi"),)), "memory"),
    ("not in the budget", slices(memory("1Gi", huge="1Gi")), HUGE),
]


@pytest.mark.parametrize(("described", "resource"), [o[1:] for o in OVER], ids=[o[0] for o in OVER])
def test_more_than_the_budget(described, resource):
    """Containers that ask for more at a time than their pod has are refused; upstream wraps around
    (memory-device 4.9)."""
    memory_manager = manager(machine(10, 9, huge={0: 1, 1: 1}), gates=POD_LEVEL)
    assert admit(memory_manager, described, near(0)) == (
        f"[memorymanager] the containers of the pod request more {resource} than the pod itself"
    )
    upstream = manager(machine(10, 9, huge={0: 1, 1: 1}), gates=POD_LEVEL, quirks=KUBELET_1_36)
    assert admit(upstream, described, near(0)) == ""


def test_init_and_apps_share_the_budget_in_time():
    """Plain init containers run before the apps, so both may use the whole budget."""
    memory_manager = manager(machine(10, 9), gates=POD_LEVEL)
    assert admit(memory_manager, slices(memory("8Gi"), init=(memory("8Gi"),)), near(0)) == ""
    check_ledger(memory_manager)


@pytest.mark.parametrize(("quirks", "refused"), [(PODSLICE, True), (KUBELET_1_36, False)], ids=["podslice", "kubelet"])
def test_budget_that_is_no_number_of_bytes(quirks, refused):
    """A fractional budget is refused; upstream admits the pod without booking its memory (memory-device 4.8)."""
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    message = admit(memory_manager, slices({}, budget={"cpu": "1", "memory": "1500m"}), near(0))
    assert message == ("[memorymanager] failed to represent quantity as int64" if refused else "")
    assert memory_manager.assignments == {}


@BOTH
@pytest.mark.parametrize("place", ["app", "sidecar", "init"])
def test_the_check_for_an_empty_pool_names_its_reason_whatever_it_fails_on(quirks, place):
    """An amount that is not a number of bytes in any container fails the check, and the pod has the check's reason."""
    half = {"cpu": "1", "memory": "1073741824500m"}
    described = {
        "app": slices(memory("1Gi"), half),
        "sidecar": slices(memory("1Gi"), sidecars=(half,)),
        "init": slices(memory("1Gi"), init=(half,)),
    }[place]
    memory_manager = manager(machine(10, 9), quirks=quirks, gates=POD_LEVEL)
    with pytest.raises(AdmissionError) as caught:
        memory_manager.allocate_pod(described, near(0))
    assert caught.value.reason == EMPTY_POD_SHARED_POOL
    assert caught.value.message == "[memorymanager] failed to represent quantity as int64"
    assert memory_manager.assignments == {}
