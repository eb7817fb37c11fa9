"""The sixteen rows of KEP-2837 with numbers, from the stanza to the kernel (pod-level-resources 4)."""

from __future__ import annotations

import msgspec
import pytest

from podslice.api.pod.demand import compute_qos, container_limits, container_requests, pod_limits, pod_requests
from podslice.api.pod.spec import Pod, ResourceList
from podslice.node.effects.cpu_weight import shares_to_weight
from podslice.node.effects.settings import TIERED
from podslice.values.quantity import Quantity
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.effects.helpers import MI, amounts, effects, gates, node, pod, requirements

PR, PL, CR, CL = "600m/600Mi", "1/1Gi", "200m/200Mi", "250m/256Mi"
TABLE = """
 1 |             |            |            |            |            | BestEffort | 2 1     | max max      | 2 1 1       | max max      | 1000
 2 | CL          |            | 250m/256Mi | 500m/512Mi | 500m/512Mi | Guaranteed | 512 20  | 50000 512Mi  | 256 10 35   | 25000 256Mi  | -997
 3 | CR          |            | 200m/200Mi | 400m/400Mi |            | Burstable  | 409 16  | max max      | 204 8 29    | max max      | 976
 4 | CR CL       |            | 200m/200Mi | 400m/400Mi | 500m/512Mi | Burstable  | 409 16  | 50000 512Mi  | 204 8 29    | 25000 256Mi  | 976
 5 | PL          | 1/1Gi      |            | 1/1Gi      | 1/1Gi      | Guaranteed | 1024 39 | 100000 1Gi   | 1024 39 100 | 100000 1Gi   | -997
 6 | PL CL       | 500m/512Mi | 250m/256Mi | 500m/512Mi | 1/1Gi      | Burstable  | 512 20  | 100000 1Gi   | 256 10 35   | 25000 256Mi  | 969
 7 | PL CR       | 400m/400Mi | 200m/200Mi | 400m/400Mi | 1/1Gi      | Burstable  | 409 16  | 100000 1Gi   | 204 8 29    | 100000 1Gi   | 976
 8 | PL CR CL    | 400m/400Mi | 200m/200Mi | 400m/400Mi | 1/1Gi      | Burstable  | 409 16  | 100000 1Gi   | 204 8 29    | 25000 256Mi  | 976
 9 | PR          | 600m/600Mi |            | 600m/600Mi |            | Burstable  | 614 24  | max max      | 2 1 1       | max max      | 964
10 | PR CL       | 600m/600Mi | 250m/256Mi | 600m/600Mi | 500m/512Mi | Burstable  | 614 24  | 50000 512Mi  | 256 10 35   | 25000 256Mi  | 964
11 | PR CR       | 600m/600Mi | 200m/200Mi | 600m/600Mi |            | Burstable  | 614 24  | max max      | 204 8 29    | max max      | 964
12 | PR CR CL    | 600m/600Mi | 200m/200Mi | 600m/600Mi | 500m/512Mi | Burstable  | 614 24  | 50000 512Mi  | 204 8 29    | 25000 256Mi  | 964
13 | PR PL       | 600m/600Mi |            | 600m/600Mi | 1/1Gi      | Burstable  | 614 24  | 100000 1Gi   | 1024 39 100 | 100000 1Gi   | 964
14 | PR PL CL    | 600m/600Mi | 250m/256Mi | 600m/600Mi | 1/1Gi      | Burstable  | 614 24  | 100000 1Gi   | 256 10 35   | 25000 256Mi  | 964
15 | PR PL CR    | 600m/600Mi | 200m/200Mi | 600m/600Mi | 1/1Gi      | Burstable  | 614 24  | 100000 1Gi   | 204 8 29    | 100000 1Gi   | 964
16 | PR PL CR CL | 600m/600Mi | 200m/200Mi | 600m/600Mi | 1/1Gi      | Burstable  | 614 24  | 100000 1Gi   | 204 8 29    | 25000 256Mi  | 964
"""  # noqa: E501
ROWS = {
    int(cells[0]): cells[1:] for cells in ([c.strip() for c in line.split("|")] for line in TABLE.split("\n") if line)
}


def row_pod(number: int) -> Pod:
    """Two equal app containers as the row writes them."""
    written = ROWS[number][0].split()
    own = requirements(CR if "CR" in written else "", CL if "CL" in written else "")
    stanza = requirements(PR if "PR" in written else "", PL if "PL" in written else "")
    return pod(own, own, resources=stanza or None)


def listed(resources: ResourceList | None) -> dict[str, Quantity]:
    return dict(resources or {})


def quantities(text: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(value) for name, value in amounts(text).items()} if text else {}


def maxima(text: str) -> tuple[str, str]:
    """cpu.max and memory.max of a cell."""
    quota, memory = text.split()
    return f"{quota} 100000", memory if memory == "max" else str(Quantity.parse(memory).value())


@pytest.mark.parametrize("number", ROWS, ids=lambda number: f"row {number}")
def test_row_spec(number: int) -> None:
    """Defaulting, QoS and effective amounts of a row are the table's."""
    one = row_pod(number)
    _, pod_request, container_request, request, limit, qos, *_ = ROWS[number]
    stanza = one.spec.resources
    assert listed(stanza.requests if stanza else None) == quantities(pod_request)
    assert [dict(container_requests(c)) for c in one.spec.containers] == [quantities(container_request)] * 2
    assert pod_requests(one) == quantities(request)
    assert pod_limits(one) == quantities(limit)
    assert compute_qos(one, gates()) == qos


@pytest.mark.parametrize("number", ROWS, ids=lambda number: f"row {number}")
def test_row_cgroups(number: int) -> None:
    """Weights, cpu.max, memory.max and OOM scores of a row are the table's."""
    *_, pod_shares, pod_max, container_shares, container_max, oom = ROWS[number]
    seen = effects(row_pod(number))
    shares, weight = pod_shares.split()
    assert (str(seen.cgroup.cpu_shares), seen.files["cpu.weight"]) == (shares, weight)
    assert (seen.files["cpu.max"], seen.files["memory.max"]) == maxima(pod_max)
    shares, linear, quadratic = container_shares.split()
    for container in seen.containers:
        assert str(container.resources.cpu_shares) == shares
        assert str(shares_to_weight(container.resources.cpu_shares)) == linear
        assert container.files["cpu.weight"] == quadratic
        assert (container.files["cpu.max"], container.files["memory.max"]) == maxima(container_max)
        assert container.oom_score_adj == int(oom)


def test_a_row_on_an_older_runtime() -> None:
    """Runtimes before opencontainers/cgroups 0.0.6 give containers the linear weight."""
    seen = effects(row_pod(2), node(linear_runtime_weight=True))
    assert [container.files["cpu.weight"] for container in seen.containers] == ["10", "10"]


@pytest.mark.parametrize("number", [5, 13], ids=lambda number: f"row {number}")
def test_rows_with_an_implied_limit(number: int) -> None:
    """Profile podslice gives containers without any CPU value the least weight, as the KEP says."""
    ours, upstream = (effects(row_pod(number), quirks=quirks) for quirks in (PODSLICE, KUBELET_1_36))
    assert [container.files["cpu.weight"] for container in ours.containers] == ["1", "1"]
    assert ours.containers[0].files["cpu.max"] == "100000 100000"
    for one, other in zip(ours.containers, upstream.containers, strict=True):
        assert msgspec.structs.replace(one.resources, cpu_shares=1024) == other.resources


@pytest.mark.parametrize("number", set(ROWS) - {5, 13}, ids=lambda number: f"row {number}")
def test_other_rows_agree(number: int) -> None:
    """The profiles agree on every row's cgroups but 5 and 13, once the pod is defaulted."""
    one = row_pod(number)
    assert effects(one, quirks=PODSLICE) == effects(one, quirks=KUBELET_1_36)


QOS_PROTECTION = {"Guaranteed": "memory.min", "Burstable": "memory.low"}


@pytest.mark.parametrize("number", ROWS, ids=lambda number: f"row {number}")
def test_row_with_memory_qos(number: int) -> None:
    """With MemoryQoS and TieredReservation the pod's request and each container's own are protected."""
    one = row_pod(number)
    seen = effects(one, node(reservation_policy=TIERED), MemoryQoS=True)
    _, _, container_request, request, _, qos, *_ = ROWS[number]
    protected = {"memory.min": "0", "memory.low": "0"}
    assert {name: seen.files[name] for name in protected} == {**protected, **_protection(qos, request)}
    for container in seen.containers:
        shown = {name: container.files[name] for name in protected}
        assert shown == {**protected, **_protection(qos, container_request)}


def _protection(qos: str, request: str) -> dict[str, str]:
    return {QOS_PROTECTION[qos]: str(quantities(request)["memory"].value())} if request else {}


@pytest.mark.parametrize(
    ("rows", "high"),
    [
        pytest.param((4, 8, 12, 16), "262561792", id="request below limit"),
        pytest.param((3, 7, 11, 15), "6785544192", id="no limit of its own: the node's allocatable memory"),
        pytest.param((2, 6, 10, 14), "max", id="request equals limit"),
        pytest.param((1, 5, 9, 13), "max", id="neither"),
    ],
)
def test_memory_high(rows: tuple[int, ...], high: str) -> None:
    """memory.high lies between a container's request and its own limit; the pod's limit never enters."""
    for number in rows:
        seen = effects(row_pod(number), MemoryQoS=True)
        assert [container.files["memory.high"] for container in seen.containers] == [high, high], number
        assert seen.files["memory.high"] == "max"


def test_memory_is_not_protected_without_a_policy() -> None:
    """MemoryQoS alone reserves nothing."""
    seen = effects(row_pod(16), MemoryQoS=True)
    assert [seen.files[name] for name in ("memory.min", "memory.low")] == ["0", "0"]
    assert [container.files["memory.low"] for container in seen.containers] == ["0", "0"]


def test_limits_below_the_request_are_kept() -> None:
    """Rows 10 and 12 of v1.36.2: the pod's cgroup holds less than the pod requests."""
    one = row_pod(12)
    assert pod_requests(one)["memory"] > pod_limits(one)["memory"]
    assert effects(one).files["memory.max"] == str(512 * MI)
    assert all("memory" in container_limits(container) for container in one.spec.containers)
