"""The sixteen rows of KEP-2837: what the specification becomes, the QoS class, and whether the pod is accepted."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from podslice import Pod
from podslice.api.pod.demand import compute_qos, pod_limits, pod_requests
from podslice.api.pod.spec import ResourceRequirements
from podslice.api.server.defaults import default_pod
from tests.api.server.helpers import OURS, UPSTREAM, errors, gates, pod, resources, texts

PR = {"cpu": "600m", "memory": "600Mi"}
PL = {"cpu": "1", "memory": "1Gi"}
CR = {"cpu": "200m", "memory": "200Mi"}
CL = {"cpu": "250m", "memory": "256Mi"}
TWO_CR = {"cpu": "400m", "memory": "400Mi"}
TWO_CL = {"cpu": "500m", "memory": "512Mi"}
Amounts = dict[str, str] | None


class Row(NamedTuple):
    """A given pod, and the expected results; `fixed_limit` is the pod limit with KEP-2837's fix of the defaults."""

    number: int
    given: str
    requests: Amounts
    limits: Amounts
    container_requests: Amounts
    container_limits: Amounts
    effective_requests: Amounts
    effective_limits: Amounts
    qos: str
    fixed_limit: Amounts = None


ROWS = (
    Row(1, "", None, None, None, None, {}, {}, "BestEffort"),
    Row(2, "CL", None, None, CL, CL, TWO_CL, TWO_CL, "Guaranteed"),
    Row(3, "CR", None, None, CR, None, TWO_CR, {}, "Burstable"),
    Row(4, "CR CL", None, None, CR, CL, TWO_CR, TWO_CL, "Burstable"),
    Row(5, "PL", PL, PL, None, None, PL, PL, "Guaranteed"),
    Row(6, "PL CL", TWO_CL, PL, CL, CL, TWO_CL, PL, "Burstable"),
    Row(7, "PL CR", TWO_CR, PL, CR, None, TWO_CR, PL, "Burstable"),
    Row(8, "PL CR CL", TWO_CR, PL, CR, CL, TWO_CR, PL, "Burstable"),
    Row(9, "PR", PR, None, None, None, PR, {}, "Burstable"),
    Row(10, "PR CL", PR, None, CL, CL, PR, TWO_CL, "Burstable", TWO_CL),
    Row(11, "PR CR", PR, None, CR, None, PR, {}, "Burstable"),
    Row(12, "PR CR CL", PR, None, CR, CL, PR, TWO_CL, "Burstable", TWO_CL),
    Row(13, "PR PL", PR, PL, None, None, PR, PL, "Burstable"),
    Row(14, "PR PL CL", PR, PL, CL, CL, PR, PL, "Burstable"),
    Row(15, "PR PL CR", PR, PL, CR, None, PR, PL, "Burstable"),
    Row(16, "PR PL CR CL", PR, PL, CR, CL, PR, PL, "Burstable"),
)
each_row = pytest.mark.parametrize("row", ROWS, ids=[f"row {row.number}: {row.given or 'nothing'}" for row in ROWS])


def written(row: Row) -> Pod:
    given = row.given.split()
    stanza = resources(PR if "PR" in given else None, PL if "PL" in given else None)
    own: dict[str, Any] = resources(CR if "CR" in given else None, CL if "CL" in given else None)
    return pod(own, own, **({"resources": stanza} if stanza else {}))


def shown(stanza: ResourceRequirements | None) -> tuple[Amounts, Amounts]:
    return (None, None) if stanza is None else (texts(stanza.requests), texts(stanza.limits))


@each_row
def test_defaults_of_the_release(row: Row) -> None:
    """v1.36.2 fills in requests of containers and pods, and no pod limits."""
    spec = default_pod(written(row), gates(UPSTREAM)).spec
    assert shown(spec.resources) == (row.requests, row.limits)
    assert [shown(one.resources) for one in spec.containers] == [(row.container_requests, row.container_limits)] * 2


@each_row
def test_defaults_of_the_kep(row: Row) -> None:
    """With the KEP's fix the containers' limits become the pod's in rows 10 and 12; all else stays."""
    spec = default_pod(written(row), gates(OURS)).spec
    assert shown(spec.resources) == (row.requests, row.fixed_limit or row.limits)
    assert [shown(one.resources) for one in spec.containers] == [(row.container_requests, row.container_limits)] * 2


@each_row
@pytest.mark.parametrize("profile_name", [UPSTREAM, OURS])
def test_quality_of_service_and_effective_amounts(row: Row, profile_name: str) -> None:
    """The QoS class and what scheduler and cgroups count follow from the defaulted pod, with and without the fix."""
    effective = gates(profile_name)
    defaulted = default_pod(written(row), effective)
    assert compute_qos(defaulted, effective) == row.qos
    assert texts(pod_requests(defaulted)) == row.effective_requests
    assert texts(pod_limits(defaulted)) == row.effective_limits


@each_row
def test_all_rows_are_accepted_by_the_release(row: Row) -> None:
    """v1.36.2 takes every row of the example, also rows 10 and 12 whose cgroup limits the pod below its request."""
    assert errors(written(row), UPSTREAM) == []


@each_row
def test_a_request_above_the_containers_limits_is_refused_by_the_kep(row: Row) -> None:
    """With the fix the numbers of rows 10 and 12 contradict themselves, and only these."""
    refused = errors(written(row), OURS)
    assert refused == (
        [
            'spec.resources.requests: Invalid value: "600m": must be less than or equal to cpu limit of 500m',
            'spec.resources.requests: Invalid value: "600Mi": must be less than or equal to memory limit of 512Mi',
        ]
        if row.fixed_limit
        else []
    )


@pytest.mark.parametrize(
    ("profile_name", "qos"), [pytest.param(UPSTREAM, "Burstable"), pytest.param(OURS, "Guaranteed")]
)
def test_row_10_can_be_guaranteed_with_the_fix(profile_name: str, qos: str) -> None:
    """A pod that requests exactly what its containers may use is Guaranteed once its limit is defaulted."""
    effective = gates(profile_name)
    own = resources(None, CL)
    assert compute_qos(default_pod(pod(own, own, resources=resources(TWO_CL)), effective), effective) == qos
