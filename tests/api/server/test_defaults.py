"""Defaults of the API server (pod-level-resources 3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice import Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.api.server.create import as_stored, prepare_for_create
from podslice.api.server.defaults import default_pod
from tests.api.server.helpers import OURS, UPSTREAM, errors, gates, pod, resources, texts

HUGE = {"hugepages-2Mi": "4Mi"}


def pod_level(raw: Pod, profile_name: str = UPSTREAM, **overrides: bool) -> tuple[Any, Any]:
    """Requests and limits of the pod after defaulting."""
    stanza = default_pod(raw, gates(profile_name, **overrides)).spec.resources
    assert stanza is not None
    return texts(stanza.requests), texts(stanza.limits)


@pytest.mark.parametrize(
    ("raw", "requests", "limits"),
    [
        pytest.param(
            pod({}, resources=resources(None, {"cpu": "1"})), {"cpu": "1"}, {"cpu": "1"}, id="limit becomes request"
        ),
        pytest.param(
            pod(resources({"cpu": "200m", "memory": "100Mi"}), resources=resources(None, {"cpu": "1"})),
            {"cpu": "200m", "memory": "100Mi"},
            {"cpu": "1"},
            id="container requests count, also for memory without pod limit",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "2"}), resources=resources(None, {"cpu": "1", "memory": "1Gi"})),
            {"cpu": "2", "memory": "1Gi"},
            {"cpu": "1", "memory": "1Gi"},
            id="container limits become requests first",
        ),
        pytest.param(
            pod(resources(None, {**HUGE, "memory": "100Mi"}), resources=resources({"cpu": "1"})),
            {"cpu": "1", "memory": "100Mi", **HUGE},
            HUGE,
            id="huge page limits of containers open the way for requests",
        ),
        pytest.param(pod({}, resources=resources(HUGE)), HUGE, None, id="a huge page request gets no limit"),
        pytest.param(
            pod(resources(None, HUGE), resources=resources({**HUGE, "cpu": "1"})),
            {**HUGE, "cpu": "1"},
            None,
            id="a huge page request keeps the containers' limit away",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "1", "memory": "1Gi"}), resources=resources({"cpu": "2"})),
            {"cpu": "2"},
            None,
            id="cpu and memory limits are never defaulted",
        ),
        pytest.param(
            pod(resources({"cpu": "0"}), resources=resources(None, {"cpu": "1"})),
            {"cpu": "0"},
            {"cpu": "1"},
            id="an aggregate of zero counts",
        ),
        pytest.param(
            pod(
                resources({"cpu": "1"}),
                init=(resources({"cpu": "3"}), {"sidecar": True, **resources({"cpu": "500m"})}),
                resources=resources(None, {"cpu": "4"}),
            ),
            {"cpu": "3"},
            {"cpu": "4"},
            id="init containers count by the KEP-753 formula",
        ),
        pytest.param(
            pod({}, resources=resources(None, {"ephemeral-storage": "1Gi"})),
            None,
            {"ephemeral-storage": "1Gi"},
            id="unsupported resources are left alone",
        ),
        pytest.param(pod(resources(None, HUGE), resources={}), None, None, id="an empty stanza stays empty"),
        pytest.param(
            pod(resources({"cpu": "400u"}), resources({"cpu": "400u"}), resources=resources(None, {"cpu": "1"})),
            {"cpu": "1m"},
            {"cpu": "1"},
            id="rounding comes after the sum",
        ),
    ],
)
def test_pod_level_defaults(raw: Pod, requests: Any, limits: Any) -> None:
    """Pod-level requests and huge page limits are filled in as v1.36.2 does."""
    assert pod_level(raw) == (requests, limits)


def test_nothing_at_pod_level_without_the_gate() -> None:
    """With PodLevelResources off the stanza is not touched, while containers are defaulted as ever."""
    raw = pod(resources(None, {"cpu": "1"}), resources=resources(None, {"cpu": "2"}))
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    assert pod_level(raw, UPSTREAM, **off) == (None, {"cpu": "2"})
    assert texts(default_pod(raw, gates(UPSTREAM, **off)).spec.containers[0].resources.requests) == {"cpu": "1"}


@pytest.mark.parametrize(
    ("raw", "limits"),
    [
        pytest.param(
            pod(*[resources(None, {"cpu": "1", "memory": "1Gi"})] * 2, resources=resources({"cpu": "2"})),
            {"cpu": "2", "memory": "2Gi"},
            id="every resource that all containers limit",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "1"}), {}, resources=resources({"cpu": "2"})),
            None,
            id="not if one has no limit",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "1"}), resources(None, {"cpu": "0"}), resources=resources({"cpu": "2"})),
            None,
            id="a limit of zero is none",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "1"}), init=({},), resources=resources({"cpu": "2"})),
            None,
            id="init containers count",
        ),
        pytest.param(
            pod(resources(None, {"cpu": "1"}), resources=resources(None, {"cpu": "3"})),
            {"cpu": "3"},
            id="never overwrites",
        ),
        pytest.param(pod(resources(None, {"cpu": "1"}), resources={}), None, id="only pods that use the pod level"),
        pytest.param(
            pod(resources(None, {**HUGE, "cpu": "1"}), resources=resources({**HUGE, "cpu": "1"})),
            {**HUGE, "cpu": "1"},
            id="huge pages",
        ),
        pytest.param(
            pod(resources(None, {"example.com/gpu": "1"}), resources=resources({"cpu": "1"})),
            None,
            id="not for resources without a pod level",
        ),
    ],
)
def test_limits_of_the_kep(raw: Pod, limits: Any) -> None:
    """With PodLevelResourcesFixDefaulting a resource that all containers limit is limited for the pod."""
    assert pod_level(raw, OURS)[1] == limits


def test_the_fix_can_be_switched_off() -> None:
    """With the gate off profile podslice defaults as v1.36.2 does."""
    raw = pod(resources(None, {"cpu": "1"}), resources=resources({"cpu": "2"}))
    assert pod_level(raw, OURS, PodLevelResourcesFixDefaulting=False) == ({"cpu": "2"}, None)


@pytest.mark.parametrize(
    ("given", "requests"),
    [
        pytest.param(resources(None, {"cpu": "1"}), {"cpu": "1"}, id="no requests"),
        pytest.param(resources({}, {"cpu": "1"}), {"cpu": "1"}, id="empty requests"),
        pytest.param(resources(None, {}), {}, id="empty limits make empty requests"),
        pytest.param(
            resources({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}), {"cpu": "1", "memory": "1Gi"}, id="per key"
        ),
        pytest.param(resources({"cpu": "1"}), {"cpu": "1"}, id="no limits"),
        pytest.param({}, None, id="nothing"),
        pytest.param(resources(None, {"cpu": "100u"}), {"cpu": "1m"}, id="rounded up to a thousandth"),
    ],
)
def test_container_requests(given: dict[str, Any], requests: Any) -> None:
    """App and init containers request what they limit; a missing and an empty map are kept apart."""
    defaulted = default_pod(pod(given, init=(given,)), gates()).spec
    assert texts(defaulted.containers[0].resources.requests) == requests
    assert texts(defaulted.init_containers[0].resources.requests) == requests


def test_ephemeral_containers_are_only_rounded() -> None:
    """Ephemeral containers get no requests; their amounts and the overhead are rounded like all others."""
    raw = pod(
        {}, ephemeralContainers=[{"name": "e", "resources": resources(None, {"cpu": "1u"})}], overhead={"cpu": "1n"}
    )
    spec = default_pod(raw, gates()).spec
    assert spec.ephemeral_containers[0].resources.requests is None
    assert texts(spec.ephemeral_containers[0].resources.limits) == {"cpu": "1m"}
    assert texts(spec.overhead) == {"cpu": "1m"}


def test_a_complete_pod_is_not_copied() -> None:
    """Defaulting returns the very same pod where there is nothing to fill in."""
    own = resources({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})
    raw = pod(own, init=(own,), resources=resources({"cpu": "2", "memory": "2Gi"}, {"cpu": "2", "memory": "2Gi"}))
    assert default_pod(raw, gates(OURS)) is raw


_AMOUNT = st.sampled_from(["0", "1", "500m", "2", "1500u", "1Gi", "1.5Gi", "3n", "4Mi"])
_NAME = st.sampled_from(["cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/gpu"])
_LIST = st.none() | st.dictionaries(_NAME, _AMOUNT, max_size=3)
_STANZA = st.builds(resources, _LIST, _LIST)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods with any mixture of stanzas, valid or not."""
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["resources"] = draw(_STANZA)
    if draw(st.booleans()):
        spec["overhead"] = draw(st.dictionaries(_NAME, _AMOUNT, max_size=2))
    inits = draw(st.lists(_STANZA, max_size=2))
    sidecars = [{**one, "sidecar": True} if draw(st.booleans()) else one for one in inits]
    return pod(*draw(st.lists(_STANZA, min_size=1, max_size=3)), init=tuple(sidecars), **spec)


@given(raw=pods(), profile_name=st.sampled_from([UPSTREAM, OURS]))
def test_defaulting_twice_changes_nothing_more(raw: Pod, profile_name: str) -> None:
    """The kubelet may default a pod that the API server has defaulted already."""
    effective = gates(profile_name)
    once = default_pod(raw, effective)
    assert default_pod(once, effective) == once


@given(raw=pods(), profile_name=st.sampled_from([UPSTREAM, OURS]))
def test_storage_changes_no_amount(raw: Pod, profile_name: str) -> None:
    """A created pod read back from storage has the same amounts, and is stored as it was read."""
    effective = gates(profile_name)
    created = prepare_for_create(default_pod(raw, effective), effective)
    read = default_pod(as_stored(created), effective)
    assert errors(read, profile_name) == errors(created, profile_name)
    assert default_pod(as_stored(read), effective) == read


def test_storage_forgets_empty_maps_but_not_an_empty_stanza() -> None:
    """Protobuf has no empty maps; an empty `spec.resources` is an object and stays."""
    raw = pod_from_dict(
        {"metadata": {"annotations": {}, "labels": {}}, "spec": {"containers": [], "resources": resources({}, {})}}
    )
    read = as_stored(raw)
    assert read.metadata.annotations is None
    assert read.metadata.labels is None
    assert read.spec.resources is not None
    assert (read.spec.resources.requests, read.spec.resources.limits) == (None, None)


def test_storage_makes_quantities_canonical() -> None:
    """A reader parses the canonical text, so odd spellings become plain integers."""
    read = as_stored(pod(resources({"memory": "1.5Gi", "cpu": "1.0"})))
    amounts = read.spec.containers[0].resources.requests
    assert texts(amounts) == {"memory": "1536Mi", "cpu": "1"}
    assert amounts is not None
    assert amounts["memory"].as_int64() == 1536 << 20
