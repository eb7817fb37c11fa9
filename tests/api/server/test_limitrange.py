"""LimitRange objects (pod-level-resources 11)."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import Pod
from podslice.api.pod.demand import compute_qos
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange import ANNOTATION, LimitRange, apply_defaults, limit_range_from_dict
from podslice.api.server.limitrange_check import limit_range_refusals
from podslice.api.server.validate_limitrange import limit_range_errors
from podslice.values.errors import InputError
from tests.api.server.helpers import OURS, UPSTREAM, errors, gates, pod, resources, texts

POD_DEFAULTS = {"PodLevelResourcesLimitRange": True}


def limit_range(*items: dict[str, Any]) -> LimitRange:
    return limit_range_from_dict({"metadata": {"name": "lr"}, "spec": {"limits": list(items)}})


def container(**constraints: Any) -> dict[str, Any]:
    return {"type": "Container", **constraints}


def of_pods(**constraints: Any) -> dict[str, Any]:
    return {"type": "Pod", **constraints}


@pytest.mark.parametrize(
    ("item", "default", "default_request"),
    [
        pytest.param(container(max={"cpu": "2"}), {"cpu": "2"}, {"cpu": "2"}, id="the maximum is both"),
        pytest.param(container(min={"cpu": "1m"}), {}, {"cpu": "1m"}, id="the minimum is the request"),
        pytest.param(
            container(min={"cpu": "1"}, default={"cpu": "2"}, max={"cpu": "3"}),
            {"cpu": "2"},
            {"cpu": "2"},
            id="the default limit is the request",
        ),
        pytest.param(container(defaultRequest={"cpu": "1n"}), {}, {"cpu": "1m"}, id="rounded"),
        pytest.param(of_pods(max={"cpu": "2"}), None, None, id="nothing for pods"),
    ],
)
def test_defaults_of_an_item(item: dict[str, Any], default: Any, default_request: Any) -> None:
    """A stored LimitRange names the defaults that follow from its bounds."""
    found = limit_range(item).spec.limits[0]
    assert (texts(found.default), texts(found.default_request)) == (default, default_request)


def test_a_bad_amount_is_an_input_error() -> None:
    """A LimitRange that cannot be read is reported with its field."""
    with pytest.raises(InputError, match=r"spec\.limits\[0\]\.max\[cpu\].*not a quantity"):
        limit_range(container(max={"cpu": "x"}))


def test_containers_get_defaults_and_the_pod_an_annotation() -> None:
    """App and init containers get what they lack; later items of an object win, earlier objects win."""
    raw = default_pod(pod(resources({"memory": "1Gi"}), init=(resources(None, {"cpu": "3"}),)), gates())
    first = limit_range(
        container(default={"cpu": "1"}, defaultRequest={"cpu": "500m"}),
        container(default={"cpu": "2", "memory": "2Gi"}),
    )
    mutated = apply_defaults(raw, (first, limit_range(container(default={"cpu": "9"}))), gates())
    own, init = mutated.spec.containers[0].resources, mutated.spec.init_containers[0].resources
    assert (texts(own.requests), texts(own.limits)) == ({"memory": "1Gi", "cpu": "2"}, {"cpu": "2", "memory": "2Gi"})
    assert (texts(init.requests), texts(init.limits)) == ({"cpu": "3", "memory": "2Gi"}, {"cpu": "3", "memory": "2Gi"})
    assert (mutated.metadata.annotations or {})[ANNOTATION] == (
        "LimitRanger plugin set: cpu request for container c0; cpu, memory limit for container c0; "
        "memory request for init container i0; memory limit for init container i0"
    )


def test_container_defaults_can_contradict_the_pod_level() -> None:
    """Pod-level values were computed before, and are not computed again (KEP-2837, note)."""
    raw = default_pod(pod({}, {}, resources=resources(None, {"cpu": "1"})), gates())
    mutated = apply_defaults(raw, [limit_range(container(default={"cpu": "600m"}))], gates())
    assert errors(mutated) == [
        'spec.resources.requests[cpu]: Invalid value: "1": '
        "must be greater than or equal to aggregate container requests of 1200m"
    ]


CPU = {"cpu": "1"}
RATIO = "cpu max limit to request ratio per Container is"


@pytest.mark.parametrize(
    ("raw", "item", "refusals"),
    [
        pytest.param(
            pod({}),
            container(min=CPU),
            ["minimum cpu usage per Container is 1.  No request is specified"],
            id="min, nothing",
        ),
        pytest.param(
            pod(resources({"cpu": "500m"})),
            container(min=CPU),
            ["minimum cpu usage per Container is 1, but request is 500m"],
            id="min, request",
        ),
        pytest.param(
            pod(resources({"cpu": "2"}, {"cpu": "500m"})),
            container(min=CPU),
            ["minimum cpu usage per Container is 1, but limit is 500m"],
            id="min, limit",
        ),
        pytest.param(
            pod(resources({"cpu": "2"})),
            container(max=CPU),
            ["maximum cpu usage per Container is 1.  No limit is specified"],
            id="max, nothing",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "2"})),
            container(max=CPU),
            ["maximum cpu usage per Container is 1, but limit is 2"],
            id="max, limit",
        ),
        pytest.param(
            pod(resources({"cpu": "2"}, {"cpu": "1"})),
            container(max=CPU),
            ["maximum cpu usage per Container is 1, but request is 2"],
            id="max, request",
        ),
        pytest.param(
            pod({}),
            container(maxLimitRequestRatio={"cpu": "2"}),
            [f"{RATIO} 2, but no request is specified or request is 0"],
            id="ratio, no request",
        ),
        pytest.param(
            pod(resources(CPU)),
            container(maxLimitRequestRatio={"cpu": "2"}),
            [f"{RATIO} 2, but no limit is specified or limit is 0"],
            id="ratio, no limit",
        ),
        pytest.param(
            pod(resources(CPU, {"cpu": "3"})),
            container(maxLimitRequestRatio={"cpu": "1500m"}),
            [f"{RATIO} 1500m, but provided ratio is 3.000000"],
            id="ratio",
        ),
        pytest.param(
            pod(resources(CPU, {"cpu": "3"})), container(maxLimitRequestRatio={"cpu": "3"}), [], id="ratio kept"
        ),
        pytest.param(pod(*[resources({"cpu": "600m"})] * 2), of_pods(min=CPU), [], id="pod: the aggregate"),
        pytest.param(pod({}, resources=resources(None, CPU)), of_pods(max=CPU), [], id="pod: its own limit is enough"),
        pytest.param(
            pod({}, resources=resources(None, {"cpu": "2"})),
            of_pods(max=CPU),
            ["maximum cpu usage per Pod is 1, but limit is 2"],
            id="pod: its own limit",
        ),
        pytest.param(
            pod({}, resources=resources(CPU, {"hugepages-2Mi": "4Mi"})),
            of_pods(max={"hugepages-2Mi": "4Mi"}),
            ["maximum hugepages-2Mi usage per Pod is 4Mi.  No limit is specified"],
            id="pod: huge pages of the pod level are not seen",
        ),
        pytest.param(
            pod(resources(CPU), overhead={"cpu": "1"}),
            of_pods(min={"cpu": "1500m"}),
            ["minimum cpu usage per Pod is 1500m, but request is 1"],
            id="pod: overhead does not count",
        ),
        pytest.param(
            pod({}), {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}, [], id="volumes are not pods"
        ),
    ],
)
def test_constraints(raw: Pod, item: dict[str, Any], refusals: list[str]) -> None:
    """Each violated constraint gives upstream's text, the first failing check of it."""
    effective = gates(UPSTREAM)
    checked = default_pod(raw, effective)
    assert limit_range_refusals(checked, limit_range(item), effective) == refusals


def test_pod_level_does_not_count_without_the_gate() -> None:
    """With PodLevelResources off items of type Pod see the containers only."""
    effective = gates(PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False)
    raw = pod(resources(CPU), resources=resources({"cpu": "4"}))
    assert limit_range_refusals(raw, limit_range(of_pods(max={"cpu": "2"}, min=CPU)), effective) == [
        "maximum cpu usage per Pod is 2.  No limit is specified"
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(container(min=CPU, max={"cpu": "2"}), [], id="fine"),
        pytest.param(
            of_pods(default=CPU, defaultRequest=CPU),
            [
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                "spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
            ],
            id="defaults for pods",
        ),
        pytest.param(
            container(maxLimitRequestRatio={"cpu": "500m"}),
            ['spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
            id="ratio below 1",
        ),
        pytest.param(
            container(min=CPU, max={"cpu": "3"}, maxLimitRequestRatio={"cpu": "10"}),
            [
                'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "10": '
                "ratio 10 is greater than max/min = 3.000000"
            ],
            id="ratio above the bounds",
        ),
        pytest.param(
            container(min=CPU, max={"cpu": "3"}, maxLimitRequestRatio={"cpu": "3"}), [], id="the ratio of the bounds"
        ),
        pytest.param(
            {"type": "PersistentVolumeClaim", "max": {"cpu": "1"}},
            [
                "spec.limits[0].limits: Required value: "
                "either minimum or maximum storage value is required, but neither was provided"
            ],
            id="volumes without storage",
        ),
        pytest.param(
            of_pods(min={"memory": "2Gi"}, max={"memory": "1Gi"}),
            ['spec.limits[0].min[memory]: Invalid value: "2Gi": min value 2Gi is greater than max value 1Gi'],
            id="min over max",
        ),
        pytest.param(
            container(min={"cpu": "400m"}, default={"cpu": "200m"}),
            [
                'spec.limits[0].defaultRequest[cpu]: Invalid value: "200m": '
                "min value 400m is greater than default request value 200m",
                'spec.limits[0].default[cpu]: Invalid value: "400m": min value 400m is greater than default value 200m',
            ],
            id="min over defaults",
        ),
        pytest.param(
            container(max={"cpu": "200m"}, default={"cpu": "400m"}, defaultRequest={"cpu": "400m"}),
            [
                'spec.limits[0].defaultRequest[cpu]: Invalid value: "400m": '
                "default request value 400m is greater than max value 200m",
                'spec.limits[0].default[cpu]: Invalid value: "200m": default value 400m is greater than max value 200m',
            ],
            id="defaults over max",
        ),
        pytest.param(
            container(default={"cpu": "200m"}, defaultRequest={"cpu": "400m"}),
            [
                'spec.limits[0].defaultRequest[cpu]: Invalid value: "400m": '
                "default request value 400m is greater than default limit value 200m",
            ],
            id="default request over default",
        ),
        pytest.param(
            container(default={"hugepages-2Mi": "4Mi"}, defaultRequest={"hugepages-2Mi": "2Mi"}),
            [
                'spec.limits[0].defaultRequest[hugepages-2Mi]: Invalid value: "2Mi": '
                "default value 4Mi must equal to defaultRequest value 2Mi in hugepages-2Mi",
            ],
            id="two amounts of what cannot be overcommitted",
        ),
        pytest.param(
            of_pods(min={"storage": "1Gi"}),
            ['spec.limits[0].min[storage]: Invalid value: "storage": must be a standard resource for containers'],
            id="a resource that pods do not have",
        ),
        pytest.param(
            {"type": "Deployment", "max": {"storage": "1Gi"}},
            ['spec.limits[0].type: Invalid value: "Deployment": must be a standard limit type or fully qualified'],
            id="an unknown type",
        ),
        pytest.param({"type": "example.com/Type", "max": {"storage": "1Gi"}}, [], id="somebody's own type"),
    ],
)
def test_validation(item: dict[str, Any], expected: list[str]) -> None:
    """A LimitRange itself can be refused."""
    assert [str(error) for error in sorted(limit_range_errors(limit_range(item), gates()))] == expected


def test_a_type_comes_once() -> None:
    """A LimitRange has one item for each type."""
    errors = limit_range_errors(limit_range(container(), container(max=CPU)), gates())
    assert [str(error) for error in errors] == ['spec.limits[1].type: Duplicate value: "Container"']


PER_POD = limit_range(of_pods(default={"cpu": "2", "memory": "2Gi"}, defaultRequest={"cpu": "500m", "memory": "512Mi"}))


@pytest.mark.parametrize(
    ("raw", "requests", "limits"),
    [
        pytest.param(pod({}), {"cpu": "500m", "memory": "512Mi"}, {"cpu": "2", "memory": "2Gi"}, id="nothing given"),
        pytest.param(
            pod(resources({"cpu": "1"})),
            {"cpu": "1", "memory": "512Mi"},
            {"cpu": "2", "memory": "2Gi"},
            id="a container's request stands",
        ),
        pytest.param(
            pod(resources({"cpu": "3"}, {"cpu": "4"}), {}),
            {"cpu": "3", "memory": "512Mi"},
            {"cpu": "4", "memory": "2Gi"},
            id="the limit is raised to what the pod needs",
        ),
        pytest.param(
            pod({}, resources=resources({"cpu": "1"}, {"cpu": "1"})),
            {"cpu": "1", "memory": "512Mi"},
            {"cpu": "1", "memory": "2Gi"},
            id="what the pod says stands",
        ),
    ],
)
def test_defaults_for_whole_pods(raw: Pod, requests: Any, limits: Any) -> None:
    """Behind its gate a LimitRange fills in the pod level, and the result is a valid pod."""
    effective = gates(OURS, **POD_DEFAULTS)
    assert limit_range_errors(PER_POD, effective) == []
    mutated = apply_defaults(default_pod(raw, effective), [PER_POD], effective)
    stanza = mutated.spec.resources
    assert stanza is not None
    assert (texts(stanza.requests), texts(stanza.limits)) == (requests, limits)
    assert "for pod" in (mutated.metadata.annotations or {})[ANNOTATION]
    assert errors(mutated, OURS, **POD_DEFAULTS) == []


def test_guaranteed_pods_stay_guaranteed() -> None:
    """A pod whose containers say everything gets nothing, so its QoS class stays."""
    effective = gates(OURS, **POD_DEFAULTS)
    amounts = {"cpu": "1", "memory": "1Gi"}
    raw = default_pod(pod(resources(None, amounts)), effective)
    mutated = apply_defaults(raw, [PER_POD], effective)
    assert mutated == raw
    assert compute_qos(mutated, effective) == "Guaranteed"


@pytest.mark.parametrize(
    ("raw", "profile_name", "overrides"),
    [
        pytest.param(pod({}), OURS, {}, id="gate off"),
        pytest.param(pod({}), UPSTREAM, POD_DEFAULTS, id="a release that does not know it"),
        pytest.param(pod({}, os={"name": "windows"}), OURS, POD_DEFAULTS, id="windows"),
        pytest.param(
            pod({}),
            OURS,
            {**POD_DEFAULTS, "PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False},
            id="no pod level",
        ),
    ],
)
def test_no_defaults_for_whole_pods(raw: Pod, profile_name: str, overrides: dict[str, bool]) -> None:
    """Without the gate, or where pods have no level of their own, nothing is filled in."""
    effective = gates(profile_name, **overrides)
    mutated = apply_defaults(default_pod(raw, effective), [PER_POD], effective)
    assert mutated.spec.resources is None
    assert mutated.metadata.annotations is None
