"""KEP-2837: the sixteen rows with numbers, the worked cases, OOM scores and QoS, by id.

The numbers: two equal containers that request 200m and 200Mi and are limited to 250m and 256Mi; the pod requests 600m
and 600Mi and is limited to 1 CPU and 1Gi; the node has 8Gi.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from podslice.core.effects.cgroup import pod_cgroup
from podslice.core.effects.container_cgroup import container_resources
from podslice.core.effects.cpu_weight import shares_to_runtime_weight, shares_to_weight
from podslice.core.effects.oom import oom_score_adjustments
from podslice.core.effects.settings import CgroupSettings
from podslice.core.pod.create import prepare_for_create
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.demand import pod_limits, pod_requests
from podslice.core.pod.qos import compute_qos
from podslice.core.pod.spec import Pod, ResourceRequirements, pod_from_dict
from podslice.core.pod.validate import validate_pod
from podslice.core.quirks import KUBELET_1_36, PODSLICE, Quirks
from podslice.core.scheduling.fit import filter_requests, non_zero_requests
from podslice.core.values.gates import FeatureGates

GI = 1 << 30
SETTINGS = CgroupSettings(memory_capacity=8 * GI)
AMOUNTS = {
    "CR": {"cpu": "200m", "memory": "200Mi"},
    "CL": {"cpu": "250m", "memory": "256Mi"},
    "PR": {"cpu": "600m", "memory": "600Mi"},
    "PL": {"cpu": "1", "memory": "1Gi"},
}


class Expected(NamedTuple):
    """What a row comes to: amounts as `cpu/memory` after defaulting, then cgroup values and the OOM score.

    `cpu.max` quotas in microseconds of 100 ms, memory in Mi; None is no limit.
    """

    requests: str | None
    limits: str | None
    container_requests: str | None
    container_limits: str | None
    effective: str | None
    qos: str
    shares: int
    quota: int | None
    memory: int | None
    container_shares: int
    container_quota: int | None
    container_memory: int | None
    oom: int


TABLE = """
row set         PR         PL    CR         CL         effective  QoS        sh   quota  mem  sh   quota  mem  oom
1   -           -          -     -          -          -          BestEffort 2    -      -    2    -      -    1000
2   CL          -          -     250m/256Mi 250m/256Mi 500m/512Mi Guaranteed 512  50000  512  256  25000  256  -997
3   CR          -          -     200m/200Mi -          400m/400Mi Burstable  409  -      -    204  -      -    976
4   CR,CL       -          -     200m/200Mi 250m/256Mi 400m/400Mi Burstable  409  50000  512  204  25000  256  976
5   PL          1/1Gi      1/1Gi -          -          1/1Gi      Guaranteed 1024 100000 1024 1024 100000 1024 -997
6   PL,CL       500m/512Mi 1/1Gi 250m/256Mi 250m/256Mi 500m/512Mi Burstable  512  100000 1024 256  25000  256  969
7   PL,CR       400m/400Mi 1/1Gi 200m/200Mi -          400m/400Mi Burstable  409  100000 1024 204  100000 1024 976
8   PL,CR,CL    400m/400Mi 1/1Gi 200m/200Mi 250m/256Mi 400m/400Mi Burstable  409  100000 1024 204  25000  256  976
9   PR          600m/600Mi -     -          -          600m/600Mi Burstable  614  -      -    2    -      -    964
10  PR,CL       600m/600Mi -     250m/256Mi 250m/256Mi 600m/600Mi Burstable  614  50000  512  256  25000  256  964
11  PR,CR       600m/600Mi -     200m/200Mi -          600m/600Mi Burstable  614  -      -    204  -      -    964
12  PR,CR,CL    600m/600Mi -     200m/200Mi 250m/256Mi 600m/600Mi Burstable  614  50000  512  204  25000  256  964
13  PR,PL       600m/600Mi 1/1Gi -          -          600m/600Mi Burstable  614  100000 1024 1024 100000 1024 964
14  PR,PL,CL    600m/600Mi 1/1Gi 250m/256Mi 250m/256Mi 600m/600Mi Burstable  614  100000 1024 256  25000  256  964
15  PR,PL,CR    600m/600Mi 1/1Gi 200m/200Mi -          600m/600Mi Burstable  614  100000 1024 204  100000 1024 964
16  PR,PL,CR,CL 600m/600Mi 1/1Gi 200m/200Mi 250m/256Mi 600m/600Mi Burstable  614  100000 1024 204  25000  256  964
"""
"""As v1.36.2 does it: pod shares, quota and memory (Mi), then a container's. What is set: requests and limits
of the pod (P) and of its containers (C); `-` is nothing."""


def number(text: str) -> int | None:
    return None if text == "-" else int(text)


def rows() -> dict[int, tuple[str, Expected]]:
    """What is set and what it comes to, by row."""
    found = {}
    for line in TABLE.strip().splitlines()[1:]:
        row, given, *cells = line.split()
        texts = [None if cell == "-" else cell for cell in cells[:5]]
        values = [number(cell) for cell in cells[6:]]
        found[int(row)] = (given, Expected(*texts, cells[5], *values))  # type: ignore[arg-type]
    return found


ROWS = rows()


def gates_of(quirks: Quirks, **overrides: bool) -> FeatureGates:
    return FeatureGates.from_overrides(overrides, fixes=quirks.fix_gates)


def stanza(level: str, given: str) -> dict[str, Any] | None:
    named = {"R": "requests", "L": "limits"}
    found = {named[one[1]]: AMOUNTS[one] for one in given.split(",") if one.startswith(level)}
    return found or None


def row_pod(row: int) -> Pod:
    containers = [{"name": name, "resources": stanza("C", ROWS[row][0])} for name in ("a", "b")]
    spec = {"containers": containers, "resources": stanza("P", ROWS[row][0])}
    return pod_from_dict({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})


def shown(resources: ResourceRequirements | None, which: str) -> str | None:
    amounts = None if resources is None else getattr(resources, which)
    return f"{amounts['cpu']}/{amounts['memory']}" if amounts else None


def mebibytes(amount: int | None) -> int | None:
    return amount // (1 << 20) if amount else None


def what_becomes_of(pod: Pod, gates: FeatureGates, quirks: Quirks) -> Expected:
    """The outcome of a defaulted pod in the shape of the table."""
    cgroup = pod_cgroup(pod, gates)
    container = pod.spec.containers[0]
    score = oom_score_adjustments(pod, gates, SETTINGS.memory_capacity)[0]
    written = container_resources(pod, container, gates, SETTINGS, quirks, oom_score_adj=score)
    effective = pod_requests(pod, pod_level=gates["PodLevelResources"])
    return Expected(
        shown(pod.spec.resources, "requests"),
        shown(pod.spec.resources, "limits"),
        shown(container.resources, "requests"),
        shown(container.resources, "limits"),
        f"{effective['cpu']}/{effective['memory']}" if effective else None,
        compute_qos(pod, gates),
        cgroup.cpu_shares,
        cgroup.cpu_quota,
        mebibytes(cgroup.memory),
        written.cpu_shares,
        written.cpu_quota or None,
        mebibytes(written.memory_limit),
        written.oom_score_adj,
    )


@pytest.mark.parametrize("row", [pytest.param(row, id=f"KEP-2837-{row}") for row in ROWS])
def test_rows_as_v1_36_does_them(row: int) -> None:
    """Defaults, effective requests, QoS, cgroups and OOM score of each row, as v1.36.2 decides."""
    gates = gates_of(KUBELET_1_36)
    pod = default_pod(row_pod(row), gates)
    assert what_becomes_of(pod, gates, KUBELET_1_36) == ROWS[row][1]
    assert validate_pod(prepare_for_create(pod, gates), gates) == []


def test_row_1_counts_a_little_where_nodes_are_compared() -> None:
    """KEP-2837-1: a pod without any resources counts with the scheduler's defaults, and fits everywhere."""
    gates = gates_of(PODSLICE)
    assert filter_requests(row_pod(1), gates) == {}
    assert non_zero_requests(row_pod(1), gates) == {"cpu": 200, "memory": 400 << 20}


@pytest.mark.parametrize("row", [pytest.param(row, id=f"KEP-2837-{row}") for row in ROWS])
def test_rows_as_the_kep_has_them(row: int) -> None:
    """Profile podslice follows the KEP's table: containers without request get the least weight, and limits of all
    containers become the pod's (rows 10 and 12, refused with these numbers: the pod requests more)."""
    gates = gates_of(PODSLICE)
    expected = ROWS[row][1]
    if row in (5, 13):
        expected = expected._replace(container_shares=2)
    pod = default_pod(row_pod(row), gates)
    errors = [error.field for error in validate_pod(prepare_for_create(pod, gates), gates)]
    if row in (10, 12):
        expected = expected._replace(limits="500m/512Mi")
        assert errors == ["spec.resources.requests", "spec.resources.requests"]
    else:
        assert errors == []
    assert what_becomes_of(pod, gates, PODSLICE) == expected


def test_limits_of_all_containers_become_the_pods() -> None:
    """KEP-2837-10: with the fix gate a pod that requests what its containers may use at most is Guaranteed."""
    limits = {"limits": {"cpu": "250m", "memory": "256Mi"}}
    pod = pod_of(limits, limits, requests={"cpu": "500m", "memory": "512Mi"})
    assert compute_qos(default_pod(pod, gates_of(PODSLICE)), gates_of(PODSLICE)) == "Guaranteed"
    assert compute_qos(default_pod(pod, gates_of(KUBELET_1_36)), gates_of(KUBELET_1_36)) == "Burstable"


def test_weights_of_a_row() -> None:
    """KEP-2837-5: the kubelet converts linearly, the runtime along its own curve."""
    assert (shares_to_weight(1024), shares_to_runtime_weight(1024)) == (39, 100)


def pod_of(*containers: dict[str, Any] | None, init: tuple[str, ...] = (), **resources: Any) -> Pod:
    """A pod with containers of these resources and sidecars without; keywords are the pod's own resources."""
    spec = {
        "containers": [{"name": f"c{i}", "resources": own} for i, own in enumerate(containers)],
        "initContainers": [{"name": name, "restartPolicy": "Always"} for name in init],
        "resources": resources or None,
    }
    return pod_from_dict({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})


def memory(which: str, amount: str) -> dict[str, dict[str, str]]:
    return {which: {"memory": amount}}


BOTH = [pytest.param(KUBELET_1_36, id="kubelet-1.36"), pytest.param(PODSLICE, id="podslice")]
TOO_MUCH = "must be greater than or equal to aggregate container requests of 120Gi"


@pytest.mark.parametrize("quirks", BOTH)
def test_containers_above_the_pod_limit(quirks: Quirks) -> None:
    """KEP-2837-a: limits of 60Gi twice in a pod limited to 100Gi: requests follow the limits and exceed the pod's."""
    gates = gates_of(quirks)
    pod = default_pod(pod_of(memory("limits", "60Gi"), memory("limits", "60Gi"), **memory("limits", "100Gi")), gates)
    assert shown_memory(pod.spec.containers[0].resources, "requests") == "60Gi"
    (error,) = validate_pod(pod, gates)
    assert (error.field, error.detail) == (
        "spec.resources.requests", "must be less than or equal to memory limit of 100Gi",
    )  # fmt: skip


@pytest.mark.parametrize("quirks", BOTH)
def test_containers_above_the_pod_request(quirks: Quirks) -> None:
    """KEP-2837-b: limits of 60Gi twice in a pod that requests 100Gi."""
    gates = gates_of(quirks)
    pod = default_pod(pod_of(memory("limits", "60Gi"), memory("limits", "60Gi"), **memory("requests", "100Gi")), gates)
    errors = [(error.field, error.detail) for error in validate_pod(pod, gates)]
    assert ("spec.resources.requests[memory]", TOO_MUCH) in errors


def shown_memory(resources: ResourceRequirements | None, which: str) -> str | None:
    amounts = None if resources is None else getattr(resources, which)
    return str(amounts["memory"]) if amounts and "memory" in amounts else None


@pytest.mark.parametrize("quirks", BOTH)
def test_requests_add_up(quirks: Quirks) -> None:
    """KEP-2837-c: containers requesting 10, 20 and 20Gi in a pod with a limit make a pod request of 50Gi."""
    gates = gates_of(quirks)
    requests = [memory("requests", amount) for amount in ("10Gi", "20Gi", "20Gi")]
    pod = default_pod(pod_of(*requests, **memory("limits", "100Gi")), gates)
    assert shown_memory(pod.spec.resources, "requests") == "50Gi"


@pytest.mark.parametrize("quirks", BOTH)
def test_implied_limit(quirks: Quirks) -> None:
    """KEP-2837-d: a container without anything is limited like its pod, in the cgroup and not in the spec."""
    gates = gates_of(quirks)
    first = {"requests": {"memory": "50Gi"}, "limits": {"memory": "60Gi"}}
    pod = default_pod(pod_of(first, None, **memory("limits", "100Gi")), gates)
    assert shown_memory(pod.spec.resources, "requests") == "50Gi"
    second = pod.spec.containers[1]
    assert second.resources.limits is None
    written = container_resources(pod, second, gates, SETTINGS, PODSLICE, oom_score_adj=0)
    assert written.memory_limit == 100 * GI


@pytest.mark.parametrize("quirks", BOTH)
def test_one_container_without_limit(quirks: Quirks) -> None:
    """KEP-2837-e: a pod request and a limit on one of two containers leave the pod without limit."""
    gates = gates_of(quirks)
    pod = default_pod(pod_of(memory("limits", "1Gi"), None, **memory("requests", "2Gi")), gates)
    assert shown_memory(pod.spec.resources, "limits") is None
    assert pod_cgroup(pod, gates).memory is None


@pytest.mark.parametrize("quirks", BOTH)
def test_myide(quirks: Quirks) -> None:
    """KEP-2837-f: the pod `myide` is Burstable and requests what its one container with requests does."""
    gates = gates_of(quirks)
    ide = {"requests": {"memory": "128Mi", "cpu": "0.5"}, "limits": {"memory": "256Mi", "cpu": "1"}}
    pod = default_pod(pod_of(ide, init=("shell", "tool1", "tool2"), limits={"memory": "1024Mi", "cpu": "4"}), gates)
    assert shown(pod.spec.resources, "requests") == "500m/128Mi"
    assert compute_qos(pod, gates) == "Burstable"
    assert str(pod_limits(pod)["cpu"]) == "4"
    assert validate_pod(pod, gates) == []


@pytest.mark.parametrize(
    ("containers", "resources", "scores"),
    [
        pytest.param((None, None, None), memory("requests", "180Gi"), [940, 940, 940], id="KEP-2837-OOM-shared"),
        pytest.param(("50Gi", "100Gi", None), memory("requests", "180Gi"), [940, 890, 990], id="KEP-2837-OOM-mixed"),
        pytest.param(("50Gi", "100Gi", None), {}, [950, 900, 999], id="KEP-2837-OOM-containers"),
        pytest.param((None, None, None), {}, [1000, 1000, 1000], id="KEP-2837-OOM-BestEffort"),
        pytest.param((None,), {"limits": {"cpu": "1", "memory": "1Gi"}}, [-997], id="KEP-2837-OOM-Guaranteed"),
    ],
)  # fmt: skip
def test_oom_scores(containers: tuple[str | None, ...], resources: dict[str, Any], scores: list[int]) -> None:
    """On a node of 1000Gi: what the pod requests beyond its containers is spread over them."""
    gates = gates_of(PODSLICE)
    requests = [memory("requests", amount) if amount else None for amount in containers]
    pod = default_pod(pod_of(*requests, **resources), gates)
    assert oom_score_adjustments(pod, gates, 1000 * GI) == scores


FULL = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        pytest.param({"requests": FULL, "limits": FULL}, "Guaranteed", id="KEP-2837-QOS-equal"),
        pytest.param({"requests": FULL}, "Burstable", id="KEP-2837-QOS-no-limits"),
        pytest.param({"requests": FULL, "limits": {"cpu": "1"}}, "Burstable", id="KEP-2837-QOS-limit-missing"),
        pytest.param({"limits": {"cpu": "2", "memory": "2Gi"}}, "Burstable", id="KEP-2837-QOS-unequal"),
    ],
)
@pytest.mark.parametrize("quirks", BOTH)
def test_pod_level_decides_about_qos(resources: dict[str, Any], qos: str, quirks: Quirks) -> None:
    """Containers that would make the pod Guaranteed do not count once the pod level says something."""
    gates = gates_of(quirks, PodLevelResourcesFixUpdateDefaulting=False)
    pod = default_pod(pod_of({"requests": FULL, "limits": FULL}, **resources), gates)
    assert compute_qos(pod, gates) == qos
