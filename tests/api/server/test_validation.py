"""Refusals of the API server (pod-level-resources 5), with its texts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from podslice import Pod
from podslice.api.pod.field_error import FieldError, forbidden, invalid, not_supported, required
from podslice.api.pod.resource_names import container_name_problems, hugepage_size, name_problems
from podslice.api.pod.spec import pod_from_dict
from podslice.api.server import validate, validate_resources
from podslice.api.server.create import prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_create
from podslice.api.server.warnings import create_warnings
from tests.api.server.helpers import OURS, errors, gates, pod, resources
from tests.api.server.test_defaults import pods

HUGE = {"hugepages-2Mi": "4Mi"}
CPU = {"cpu": "1"}
P, C = "spec.resources", "spec.containers[0].resources"


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> Pod:
    """A pod with one container and nothing at pod level."""
    return pod(resources(requests, limits))


def whole(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, *own: dict[str, Any]) -> Pod:
    """A pod with a pod-level stanza."""
    return pod(*(own or ({},)), resources=resources(requests, limits))


REFUSED = [
    pytest.param(
        whole({"cpu": "1"}, {"cpu": "2"}, resources({"cpu": "1200m"}, {"cpu": "3"})),
        [
            f'{P}.containers[0][cpu].limits: Invalid value: "3": must be less than or equal to pod limits of 2',
            f'{P}.requests[cpu]: Invalid value: "1": '
            "must be greater than or equal to aggregate container requests of 1200m",
        ],
        id="5.3 worked example",
    ),
    pytest.param(
        container({"cpu": "2"}, {"cpu": "1"}),
        [f'{C}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        id="5.2.5 container request above limit",
    ),
    pytest.param(
        whole({"cpu": "2"}, {"cpu": "1"}),
        [f'{P}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
        id="5.2.5 pod request above limit",
    ),
    pytest.param(
        container({**HUGE, **CPU}, {"hugepages-2Mi": "8Mi"}),
        [f'{C}.requests: Invalid value: "4Mi": must be equal to hugepages-2Mi limit of 8Mi'],
        id="5.2.5 huge pages cannot be overcommitted",
    ),
    pytest.param(
        container({"example.com/gpu": "1"}),
        [f"{C}.limits: Required value: Limit must be set for non overcommitable resources"],
        id="5.2.6 devices need a limit",
    ),
    pytest.param(
        whole(HUGE | CPU),
        [f"{P}.limits: Required value: Limit must be set for non overcommitable resources"],
        id="5.2.6 huge pages need a limit",
    ),
    pytest.param(
        container({"memory": "-1"}),
        [f'{C}.requests[memory]: Invalid value: "-1": must be greater than or equal to 0'],
        id="5.2.2 negative",
    ),
    pytest.param(
        container(None, {"example.com/gpu": "1500m"}),
        [f'{C}.{side}[example.com/gpu]: Invalid value: "1500m": must be an integer' for side in ("limits", "requests")],
        id="5.2.3 half a device",
    ),
    pytest.param(
        container(None, {"hugepages-2Mi": "3Mi", **CPU}),
        [
            f'{C}.{side}[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
            for side in ("limits", "requests")
        ],
        id="5.2.4 half a page",
    ),
    pytest.param(
        container(None, HUGE),
        [f"{C}: Forbidden: HugePages require cpu or memory"],
        id="5.2 huge pages alone in a container",
    ),
    pytest.param(
        whole(None, HUGE, resources(CPU)),
        [],
        id="5.2 huge pages beside a defaulted request",
    ),
    pytest.param(
        whole(None, HUGE),
        [f"{P}: Forbidden: HugePages require cpu or memory"],
        id="5.2 huge pages alone at pod level",
    ),
    pytest.param(
        container({"foo": "1"}),
        [
            f'{C}.requests[foo]: Invalid value: "foo": must be a standard resource for containers',
            f'{C}.requests[foo]: Invalid value: "foo": must be a standard resource type or fully qualified',
        ],
        id="5.2.1 unknown name in a container",
    ),
    pytest.param(
        whole({"foo": "1"}),
        [f'{P}.requests[foo]: Invalid value: "foo": must be a standard resource type or fully qualified'],
        id="5.2.1 unknown name at pod level",
    ),
    pytest.param(
        whole({"ephemeral-storage": "1Gi"}),
        [
            f'{P}.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": '
            'supported values: "cpu", "hugepages-", "memory"'
        ],
        id="5.2.1 no pod level for it",
    ),
    pytest.param(
        pod({}, resources={"claims": []}),
        [f"{P}.claims: Forbidden: claims may not be set for Resources at pod-level"],
        id="5.3.3 empty claims",
    ),
    pytest.param(
        pod({}, resources={"claims": [{"name": "x"}]}),
        [
            f"{P}.claims: Forbidden: claims may not be set for Resources at pod-level",
            f'{P}.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty',
        ],
        id="5.3.3 claims",
    ),
    pytest.param(
        pod({"claims": [{"name": "x"}]}, resourceClaims=[{"name": "z"}, {"name": "y"}]),
        [f'{C}.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims: y, z'],
        id="5.2 a container's claim of another name",
    ),
    pytest.param(
        pod(
            {"claims": [{"name": "x", "request": "a"}, {"name": "x", "request": "b"}, {"name": "x", "request": "a"}]},
            resourceClaims=[{"name": "x"}],
        ),
        [f'{C}.claims[2]: Duplicate value: "x/a"'],
        id="a request taken twice",
    ),
    pytest.param(
        pod(
            {"claims": [{"name": "x", "request": "a"}, {"name": "x"}, {"name": "x", "request": "b"}]},
            resourceClaims=[{"name": "x"}],
        ),
        [f'{C}.claims[1]: Duplicate value: "x"', f'{C}.claims[2]: Duplicate value: "x"'],
        id="a claim taken as a whole and by request",
    ),
    pytest.param(
        pod(
            {"claims": [{"name": "x", "request": "a"}, {"name": "x", "request": "b"}, {"name": "x"}]},
            resourceClaims=[{"name": "x"}],
        ),
        [f'{C}.claims[2]: Duplicate value: "x"'] * 2,
        id="a claim taken by two requests and as a whole",
    ),
    pytest.param(
        pod({"claims": [{}]}, resourceClaims=[{"name": "y"}, {"name": "y"}, {}]),
        [
            f"{C}.claims[0]: Required value",
            'spec.resourceClaims[1].name: Duplicate value: "y"',
            "spec.resourceClaims[2].name: Required value",
        ],
        id="claims without names, and one named twice",
    ),
    pytest.param(
        pod({"claims": [{"name": "x"}]}, resourceClaims=[{"name": "x"}]), [], id="5.2 a container's claim of the pod"
    ),
    pytest.param(
        pod(resources({"cpu": "2"}, {"cpu": "1"}), resources={}, os={"name": "windows"}),
        [
            f'{C}.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            f"{P}: Forbidden: may not be set for a windows pod",
        ],
        id="5.3.2 windows",
    ),
    pytest.param(
        whole({**HUGE, **CPU}, {"hugepages-2Mi": "4Mi"}, resources(CPU, {"hugepages-2Mi": "8Mi"})),
        [
            f'{P}.containers[0][hugepages-2Mi].limits: Invalid value: "8Mi": '
            "must be less than or equal to pod limits of 4Mi",
            f'{P}.limits[hugepages-2Mi]: Invalid value: "4Mi": '
            "must be greater than or equal to aggregate container limits of 8Mi",
            f'{P}.requests[hugepages-2Mi]: Invalid value: "4Mi": '
            "must be greater than or equal to aggregate container requests of 8Mi",
        ],
        id="5.3.6 huge pages of the containers",
    ),
    pytest.param(
        pod({}, init=({"sidecar": True, **resources(CPU, {"cpu": "8"})},), resources=resources(None, {"cpu": "2"})),
        [],
        id="5.3.7 sidecar limits are not compared",
    ),
    pytest.param(
        whole({"cpu": "1"}, {"cpu": "2"}, *[resources({"cpu": "500m"}, {"cpu": "2"})] * 2),
        [],
        id="5.3 the sum of limits may exceed the pod's",
    ),
    pytest.param(
        pod({}, ephemeralContainers=[{"name": "e", "resources": resources(CPU)}]),
        [
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
            "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
        ],
        id="5.5 ephemeral containers",
    ),
    pytest.param(
        pod({}, ephemeralContainers=[{"name": "e", "resources": {"claims": []}}, {"name": "f", "resources": {}}]),
        [
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
            "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container",
        ],
        id="ephemeral containers with an empty list",
    ),
    pytest.param(
        pod({}, overhead={"hugepages-2Mi": "1Mi"}),
        [
            "spec.overhead: Forbidden: HugePages require cpu or memory",
            'spec.overhead.limits[hugepages-2Mi]: Invalid value: "1Mi": '
            "1Mi is not positive integer multiple of hugepages-2Mi",
        ],
        id="overhead counts as a limit",
    ),
    pytest.param(
        pod({}, activeDeadlineSeconds=0),
        ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        id="deadline",
    ),
    pytest.param(pod({}, os={"name": ""}), ["spec.os.name: Required value"], id="os without name"),
    pytest.param(
        pod({}, os={"name": "darwin"}),
        ['spec.os: Unsupported value: "darwin": supported values: "linux", "windows"'],
        id="unknown os",
    ),
    pytest.param(
        pod({}, containers=[{"name": "a"}, {"name": "a"}, {"name": ""}]),
        ['spec.containers[1].name: Duplicate value: "a"', "spec.containers[2].name: Required value"],
        id="names of containers",
    ),
]


@pytest.mark.parametrize(("raw", "expected"), REFUSED)
def test_refusals(raw: Pod, expected: list[str]) -> None:
    """Every rule is reported at its field with upstream's text, and nothing else is."""
    assert sorted(errors(raw)) == sorted(expected)


def test_nothing_at_pod_level_is_checked_without_the_gate() -> None:
    """With PodLevelResources off the stanza is dropped before validation."""
    raw = whole({"cpu": "2"}, {"cpu": "1"})
    assert errors(raw, PodLevelResources=False, InPlacePodLevelResourcesVerticalScaling=False) == []


def test_a_mirror_pod_names_its_node() -> None:
    """The annotation of mirror pods is refused on a pod without a node."""
    raw = pod_from_dict(
        {
            "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"containers": [{"name": "c"}]},
        }
    )
    assert errors(raw) == [
        'metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": '
        "must set spec.nodeName if mirror pod annotation is set"
    ]


def test_an_update_may_keep_odd_huge_page_amounts() -> None:
    """A pod that already has part of a huge page stays updatable."""
    effective = gates()
    raw = default_pod(container(None, {"hugepages-2Mi": "3Mi", **CPU}), effective)
    assert validate.validate_pod(raw, effective, whole_pages=False) == []


@given(raw=pods())
def test_the_short_way_finds_what_the_rules_find(raw: Pod) -> None:
    """Stanzas waved through at a glance break no rule, so leaving that glance out changes nothing."""
    effective = gates(OURS)
    created = prepare_for_create(default_pod(raw, effective), effective)
    short = validate_create(created, effective)
    with pytest.MonkeyPatch.context() as patch:
        for module in (validate, validate_resources):
            patch.setattr(module, "is_plain", lambda _: False)
        assert validate_create(created, effective) == short


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(invalid("a.b", 5, "too small"), "a.b: Invalid value: 5: too small", id="invalid number"),
        pytest.param(invalid("a.b", "x", "too odd"), 'a.b: Invalid value: "x": too odd', id="invalid text"),
        pytest.param(required("a", "say it"), "a: Required value: say it", id="required"),
        pytest.param(required("a"), "a: Required value", id="required, no detail"),
        pytest.param(forbidden("", "not now"), "[]: Forbidden: not now", id="the whole object"),
        pytest.param(
            not_supported("a", "x", ("y", "z")),
            'a: Unsupported value: "x": supported values: "y", "z"',
            id="unsupported",
        ),
    ],
)
def test_errors_print_as_the_api_server_prints_them(error: FieldError, text: str) -> None:
    """Field, kind of error, value where one is shown, detail."""
    assert str(error) == text


_NAME_RULE = "must consist of alphanumeric characters"


@pytest.mark.parametrize(
    ("name", "anywhere", "in_containers"),
    [
        pytest.param("cpu", [], [], id="cpu"),
        pytest.param("hugepages-1Gi", [], [], id="huge pages"),
        pytest.param("example.com/gpu", [], [], id="device"),
        pytest.param("kubernetes.io/foo", [], [], id="native with a domain"),
        pytest.param("pods", [], ["must be a standard resource for containers"], id="quota only"),
        pytest.param(
            "requests.example.com/gpu", [], ["doesn't follow extended resource name standard"], id="quota of a device"
        ),
        pytest.param(
            "CPU",
            ["must be a standard resource type or fully qualified"],
            ["must be a standard resource for containers"],
            id="upper case",
        ),
        pytest.param(
            "/gpu",
            ["prefix part must be non-empty"],
            ["doesn't follow extended resource name standard"],
            id="no domain",
        ),
        pytest.param(
            "a/b/c",
            [f"a valid label key {_NAME_RULE}"],
            ["doesn't follow extended resource name standard"],
            id="two slashes",
        ),
        pytest.param(
            "example.com/",
            ["name part must be non-empty", f"name part {_NAME_RULE}"],
            ["doesn't follow extended resource name standard"],
            id="no name",
        ),
        pytest.param(
            "Example.com/gpu",
            ["prefix part a lowercase RFC 1123 subdomain must consist of"],
            ["doesn't follow extended resource name standard"],
            id="bad domain",
        ),
        pytest.param(
            f"example.com/{'x' * 64}",
            ["name part must be no more than 63 bytes"],
            ["doesn't follow extended resource name standard"],
            id="long name",
        ),
        pytest.param(
            f"{'x' * 254}/gpu",
            ["prefix part must be no more than 253 bytes"],
            ["doesn't follow extended resource name standard"],
            id="long domain",
        ),
    ],
)
def test_resource_names(name: str, anywhere: list[str], in_containers: list[str]) -> None:
    """A name is judged as such, and as a container's."""
    for found, expected in (
        (name_problems(name), anywhere),
        (container_name_problems(name), anywhere + in_containers),
    ):
        assert len(found) == len(expected)
        assert all(problem.startswith(start) for problem, start in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param("hugepages-2Mi", 2 << 20, id="2Mi"),
        pytest.param("hugepages-1073741824", 1 << 30, id="plain bytes"),
        pytest.param("hugepages-", None, id="no size"),
        pytest.param("hugepages-0", None, id="zero"),
        pytest.param("hugepages-1500m", None, id="not whole"),
        pytest.param("hugepages-foo", None, id="no quantity"),
    ],
)
def test_huge_page_sizes(name: str, size: int | None) -> None:
    """The page size is in the name, if it is a positive whole number of bytes."""
    assert hugepage_size(name) == size


def test_fractions_of_bytes_are_warned_about() -> None:
    """Containers and overhead are looked at, the pod level is not; 1Ei overflows into a fraction as upstream."""
    raw = pod(
        resources({"memory": "1500m", "cpu": "1500m"}, {"memory": "1Ei"}),
        init=(resources({"memory": "1Gi"}),),
        overhead={"memory": "100m"},
        resources=resources({"memory": "1500m"}),
    )
    assert create_warnings(raw) == [
        'spec.containers[0].resources.limits[memory]: fractional byte value "1Ei" is invalid, must be an integer',
        'spec.containers[0].resources.requests[memory]: fractional byte value "1500m" is invalid, must be an integer',
        'spec.overhead[memory]: fractional byte value "100m" is invalid, must be an integer',
    ]
