"""Effective requests and limits (pod-level-resources 7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.api.pod.demand import StatusUse, aggregate, container_requests, pod_limits, pod_requests
from podslice.api.pod.spec import Pod
from podslice.values.quantity import Quantity
from tests.node.effects.helpers import pod, requirements


def milli(amounts: dict[str, Quantity], name: str = "cpu") -> int | None:
    return amounts[name].milli_value() if name in amounts else None


def cpu(requested: int) -> dict[str, Any]:
    return {"requests": {"cpu": f"{requested}m"}}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(pod(cpu(100), cpu(200)), 300, id="apps add up"),
        pytest.param(pod(cpu(100), init={"i": cpu(500), "j": cpu(400)}), 500, id="the largest init container"),
        pytest.param(pod(cpu(100), init={"s+": cpu(300), "i": cpu(50)}), 400, id="a sidecar runs beside the apps"),
        pytest.param(pod(cpu(100), init={"s+": cpu(300), "i": cpu(250)}), 550, id="and beside later init containers"),
        pytest.param(pod(cpu(100), init={"i": cpu(250), "s+": cpu(300)}), 400, id="but not beside earlier ones"),
        pytest.param(pod({}, init={"i": {}}), None, id="no requests"),
        pytest.param(pod(cpu(0)), 0, id="a zero is kept"),
    ],
)
def test_aggregate(one: Pod, expected: int | None) -> None:
    """KEP-753: what runs for long against the peak of the init phase."""
    assert milli(aggregate(one, container_requests)) == expected


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5),
)
def test_aggregate_is_the_peak_of_a_life(apps: list[int], inits: list[tuple[int, bool]]) -> None:
    """The aggregate is the most the pod's containers request at any moment of its life."""
    running, most = 0, 0
    for requested, sidecar in inits:
        most = max(most, running + requested)
        running += requested if sidecar else 0
    most = max(most, running + sum(apps))
    init = {f"i{number}{'+' if sidecar else ''}": cpu(requested) for number, (requested, sidecar) in enumerate(inits)}
    assert milli(aggregate(pod(*map(cpu, apps), init=init), container_requests)) == most


STANZA = requirements("1/-", "2/-")


def test_pod_level_replaces_what_it_names() -> None:
    """Pod-level values replace the aggregate, also by less; other resources come from the containers."""
    one = pod({"requests": {"cpu": "3", "memory": "1Gi", "example.com/gpu": "1"}}, resources=STANZA)
    assert {name: str(amount) for name, amount in pod_requests(one).items()} == {
        "cpu": "1",
        "memory": "1Gi",
        "example.com/gpu": "1",
    }
    assert milli(pod_requests(one, pod_level=False)) == 3000
    assert pod_requests(one, containers=False) == {"cpu": Quantity.parse("1"), "memory": Quantity.parse("1Gi")}
    assert milli(pod_limits(one)) == 2000


def test_overhead() -> None:
    """Overhead makes requests, but only raises limits that exist."""
    one = pod({"limits": {"cpu": "1"}}, overhead={"cpu": "250m", "memory": "64Mi"})
    assert {name: str(amount) for name, amount in pod_requests(one).items()} == {"cpu": "1250m", "memory": "64Mi"}
    assert {name: str(amount) for name, amount in pod_limits(one).items()} == {"cpu": "1250m"}
    assert milli(pod_requests(one, overhead=False)) == 1000


def test_missing_amounts() -> None:
    """A resource that a container does not name at all is replaced; an explicit zero stays."""
    one = pod(cpu(0), {}, init={"i": {}})
    scored = pod_requests(one, missing={"cpu": Quantity.parse("100m"), "memory": Quantity.parse("200Mi")})
    assert (milli(scored), str(scored["memory"])) == (100, "400Mi")


@pytest.mark.parametrize(
    ("stanza", "containers", "requested"),
    [
        pytest.param("50Gi", (10, 20, 20), "50Gi", id="c: limit only, aggregate request"),
        pytest.param("100Gi", (50, 0), "50Gi", id="d: one container without"),
    ],
)
def test_worked_cases(stanza: str, containers: tuple[int, ...], requested: str) -> None:
    """KEP-2837's worked cases: the pod's request defaults to the containers' requests."""
    apps = [{"requests": {"memory": f"{size}Gi"}} if size else {} for size in containers]
    assert str(pod_requests(pod(*apps, resources={"limits": {"memory": stanza}}))["memory"]) == requested


def test_myide() -> None:
    """KEP-2837's example `myide`: three sidecars share what the pod has beyond the editor's request."""
    one = pod(
        requirements("0.5/128Mi", "1/256Mi"),
        init={"shell+": {}, "logs+": {}, "proxy+": {}},
        resources=requirements(limits="4/1024Mi"),
    )
    assert {name: str(amount) for name, amount in pod_requests(one).items()} == {"cpu": "500m", "memory": "128Mi"}


# With status


def running(*statuses: dict[str, Any], **more: Any) -> Pod:
    """One app container requesting 200m with limit 300m in a pod of 400m to 600m, and its status."""
    named = [{"name": "c0", **status} for status in statuses]
    return pod(
        requirements("200m/-", "300m/-"),
        resources=more.pop("stanza", None),
        status={"containerStatuses": named, **more},
    )


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
GREW = {"resources": requirements("500m/-", "700m/-"), "allocatedResources": {"cpu": "400m"}}
SHRANK = {"resources": requirements("100m/-", "100m/-"), "allocatedResources": {"cpu": "150m"}}


@pytest.mark.parametrize(
    ("one", "requested", "limit"),
    [
        pytest.param(running(GREW), 500, 700, id="what is in force is more"),
        pytest.param(running(SHRANK), 200, 300, id="what is asked for is more"),
        pytest.param(running(SHRANK, **INFEASIBLE), 150, 100, id="an infeasible resize does not count"),
        pytest.param(running({"allocatedResources": {"cpu": "5"}}), 200, 300, id="no resources in the status"),
        pytest.param(running(), 200, 300, id="no status of the container"),
    ],
)
def test_container_status(one: Pod, requested: int, limit: int) -> None:
    """The resources of a running container count where they exceed its requests."""
    assert milli(pod_requests(one, status=StatusUse.CONTAINERS)) == requested
    assert milli(pod_limits(one, status=StatusUse.CONTAINERS)) == limit
    assert milli(pod_requests(one)) == 200


def test_sidecar_status_counts_and_init_status_does_not() -> None:
    """Of init containers only those that keep running are measured by their status."""
    named = [{"name": name, "resources": requirements("900m/-")} for name in ("s", "i")]
    one = pod(cpu(100), init={"s+": cpu(10), "i": cpu(20)}, status={"initContainerStatuses": named})
    assert milli(pod_requests(one, status=StatusUse.CONTAINERS)) == 1000


@pytest.mark.parametrize(
    ("status", "use", "requested", "limit"),
    [
        pytest.param(requirements("900m/-", "950m/-"), StatusUse.POD_LEVEL, 900, 950, id="more is in force"),
        pytest.param(requirements("900m/-", "950m/-"), StatusUse.CONTAINERS, 400, 600, id="asked without pod level"),
        pytest.param(requirements("100m/-", "100m/-"), StatusUse.POD_LEVEL, 400, 600, id="less is in force"),
        pytest.param(None, StatusUse.POD_LEVEL, 400, 600, id="no pod-level status"),
    ],
)
def test_pod_level_status(status: dict[str, Any] | None, use: StatusUse, requested: int, limit: int) -> None:
    """The pod level's own status counts only with that option."""
    more = {} if status is None else {"resources": status}
    one = running(stanza=requirements("400m/-", "600m/-"), **more)
    assert milli(pod_requests(one, status=use)) == requested
    assert milli(pod_limits(one, status=use)) == limit


def test_pod_level_status_without_a_value() -> None:
    """After an infeasible resize a pod-level key that the status lacks counts as 0."""
    one = running(stanza=requirements("400m/-", "600m/-"), resources={"requests": {}}, **INFEASIBLE)
    assert milli(pod_requests(one, status=StatusUse.POD_LEVEL)) == 0


def test_overhead_is_added_to_limits_that_exist() -> None:
    """The sandbox' overhead raises a limit; a resource without a limit, or with one of zero, stays without."""
    limited = pod(
        {"limits": {"cpu": "1", "memory": "0"}}, overhead={"cpu": "250m", "memory": "64Mi", "example.com/x": "1"}
    )
    limits = pod_limits(limited)
    assert {name: str(amount) for name, amount in limits.items()} == {"cpu": "1250m", "memory": "0"}
    assert str(pod_limits(limited, overhead=False)["cpu"]) == "1"
