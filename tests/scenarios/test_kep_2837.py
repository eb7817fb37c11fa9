"""KEP-2837: its sixteen rows, the worked cases, OOM scores and QoS, by id.

The rows are the KEP's table in its own symbols, as profile podslice does them; what v1.36.2 makes of them, in numbers,
is `tests/node/effects/test_sixteen_rows.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.demand import compute_qos, pod_limits
from podslice.api.pod.spec import Pod, ResourceRequirements, pod_from_dict
from podslice.api.server.create import prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_pod
from podslice.node.effects.cgroup import pod_cgroup
from podslice.node.effects.container_cgroup import container_resources
from podslice.node.effects.cpu_weight import milli_cpu_to_quota, milli_cpu_to_shares
from podslice.node.effects.oom import oom_score_adjustments
from podslice.node.effects.settings import CgroupSettings
from podslice.scheduling.predicates import filter_requests, non_zero_requests
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quantity import Quantity
from podslice.values.quirks import KUBELET_1_36, PODSLICE, Quirks

GI = 1 << 30
SETTINGS = CgroupSettings(memory_capacity=8 * GI)
AMOUNTS = {
    "CR": {"cpu": "200m", "memory": "200Mi"},
    "CL": {"cpu": "250m", "memory": "256Mi"},
    "PR": {"cpu": "500m", "memory": "512Mi"},
    "PL": {"cpu": "1", "memory": "1Gi"},
    "f(CR)": {"cpu": "400m", "memory": "400Mi"},
    "f(CL)": {"cpu": "500m", "memory": "512Mi"},
}
"""Of the pod and of each of two equal containers; f() is what both come to."""

TABLE = """
row set         scheduler  PR    PL    CR CL  pod-min pod-max min max
1   -           -          -     -     -  -   min     max     min max
2   CL          f(CL)      -     -     CL CL  f(CL)   f(CL)   CL  CL
3   CR          f(CR)      -     -     CR -   f(CR)   max     CR  max
4   CR,CL       f(CR)      -     -     CR CL  f(CR)   f(CL)   CR  CL
5   PL          PL         PL    PL    -  -   PL      PL      min PL
6   PL,CL       f(CL)      f(CL) PL    CL CL  f(CL)   PL      CL  CL
7   PL,CR       f(CR)      f(CR) PL    CR -   f(CR)   PL      CR  PL
8   PL,CR,CL    f(CR)      f(CR) PL    CR CL  f(CR)   PL      CR  CL
9   PR          PR         PR    -     -  -   PR      max     min max
10  PR,CL       PR         PR    f(CL) CL CL  PR      f(CL)   CL  CL
11  PR,CR       PR         PR    -     CR -   PR      max     CR  max
12  PR,CR,CL    PR         PR    f(CL) CR CL  PR      f(CL)   CR  CL
13  PR,PL       PR         PR    PL    -  -   PR      PL      min PL
14  PR,PL,CL    PR         PR    PL    CL CL  PR      PL      CL  CL
15  PR,PL,CR    PR         PR    PL    CR -   PR      PL      CR  PL
16  PR,PL,CR,CL PR         PR    PL    CR CL  PR      PL      CR  CL
"""
"""What is set; what the scheduler counts; the specification after defaulting; the cgroups of pod and container, where
min and max are the kernel's own values."""
ROWS = {int(line.split()[0]): line.split()[1:] for line in TABLE.strip().splitlines()[1:]}


def gates_of(quirks: Quirks, **overrides: bool) -> FeatureGates:
    return FeatureGates.from_overrides(overrides, fixes=later_gates(quirks))


def resources(request: str, limit: str) -> dict[str, Any] | None:
    """A stanza from two symbols, `-` or nothing for what it lacks."""
    named = {"requests": AMOUNTS.get(request), "limits": AMOUNTS.get(limit)}
    return {name: amounts for name, amounts in named.items() if amounts} or None


def given(row: int) -> Pod:
    """The pod as the row writes it."""
    symbols = ROWS[row][0].split(",")
    request, limit, own_request, own_limit = (
        symbol if symbol in symbols else "-" for symbol in ("PR", "PL", "CR", "CL")
    )
    own = resources(own_request, own_limit)
    return pod_of(own, own, **resources(request, limit) or {})


def symbolic(stanza: ResourceRequirements | None) -> dict[str, Any] | None:
    """Requests and limits as texts, None for a stanza without any."""
    lists = {} if stanza is None else {"requests": stanza.requests, "limits": stanza.limits}
    return {
        name: {resource: str(amount) for resource, amount in amounts.items()}
        for name, amounts in lists.items()
        if amounts
    } or None


def counted(symbol: str) -> dict[str, int]:
    """Return a symbol's amount in milli CPUs and bytes."""
    return {
        name: Quantity.parse(text).milli_value() if name == "cpu" else Quantity.parse(text).value()
        for name, text in AMOUNTS.get(symbol, {}).items()
    }


def shares(symbol: str) -> int:
    return milli_cpu_to_shares(counted(symbol).get("cpu", 0))


def maxima(symbol: str) -> tuple[int, int]:
    """CFS quota in microseconds and memory limit in bytes; 0 for none."""
    amounts = counted(symbol)
    return milli_cpu_to_quota(amounts.get("cpu", 0)), amounts.get("memory", 0)


@pytest.mark.parametrize("row", [pytest.param(row, id=f"KEP-2837-{row}") for row in ROWS])
def test_rows(row: int) -> None:
    """Defaults, the scheduler's request and the cgroups of each row are the KEP's, and the pod is valid."""
    gates = gates_of(PODSLICE)
    pod = default_pod(given(row), gates)
    assert validate_pod(prepare_for_create(pod, gates), gates) == []
    _, request, *stanza, pod_min, pod_max, own_min, own_max = ROWS[row]
    assert filter_requests(pod, gates) == counted(request)
    assert symbolic(pod.spec.resources) == resources(*stanza[:2])
    container = pod.spec.containers[1]
    assert symbolic(container.resources) == resources(*stanza[2:])
    cgroup = pod_cgroup(pod, gates)
    assert cgroup.cpu_shares == shares(pod_min)
    assert (cgroup.cpu_quota or 0, cgroup.memory or 0) == maxima(pod_max)
    written = container_resources(pod, container, gates, SETTINGS, PODSLICE, oom_score_adj=0)
    assert written.cpu_shares == shares(own_min)
    assert (written.cpu_quota, written.memory_limit) == maxima(own_max)


def test_row_1_counts_a_little_where_nodes_are_compared() -> None:
    """KEP-2837-1: the scheduler spreads pods without requests as if each container asked for 100m and 200Mi."""
    assert non_zero_requests(given(1), gates_of(PODSLICE)) == {"cpu": 200, "memory": 400 << 20}


def test_limits_of_all_containers_become_the_pods() -> None:
    """KEP-2837-10: with the fix gate a pod that requests what its containers may use at most is Guaranteed."""
    limits = {"limits": {"cpu": "250m", "memory": "256Mi"}}
    pod = pod_of(limits, limits, requests={"cpu": "500m", "memory": "512Mi"})
    assert compute_qos(default_pod(pod, gates_of(PODSLICE)), gates_of(PODSLICE)) == "Guaranteed"
    assert compute_qos(default_pod(pod, gates_of(KUBELET_1_36)), gates_of(KUBELET_1_36)) == "Burstable"


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
    stanza = symbolic(pod.spec.resources)
    assert stanza is not None
    assert stanza["requests"] == {"cpu": "500m", "memory": "128Mi"}
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
    gates = gates_of(quirks, PodLevelResourcesFixDefaulting=False)
    pod = default_pod(pod_of({"requests": FULL, "limits": FULL}, **resources), gates)
    assert compute_qos(pod, gates) == qos
