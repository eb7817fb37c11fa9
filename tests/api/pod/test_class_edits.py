"""Who keeps a pod from being Guaranteed, and the edit that ends it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import Node
from podslice.advise.explain.explain import explain
from podslice.api.pod.class_edits import find_spoiled, spoiled_sentences
from podslice.api.pod.demand import GUARANTEED, compute_qos
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.values.gates import FeatureGates
from tests.conftest import make_node

GATES = FeatureGates.from_overrides({})
WHOLE = {"cpu": "4", "memory": "2Gi"}


def container(name: str, requests: dict[str, str], limits: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests, "limits": limits}, **more}


def pod(*containers: dict[str, Any], sidecars: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    inits = [{**one, "restartPolicy": "Always"} for one in sidecars]
    data = {"metadata": {"name": "p", "namespace": "x", "uid": "u"},
            "spec": {"containers": list(containers), "initContainers": inits, **spec}}  # fmt: skip
    return default_pod(pod_from_dict(data), GATES)


MAIN = container("main", WHOLE, WHOLE)
PROXY = container("istio-proxy", {"cpu": "100m", "memory": "128Mi"}, {"cpu": "2", "memory": "1Gi"})


def sentences(asked: Pod) -> str:
    found = find_spoiled(asked, GATES)
    assert found is not None
    assert compute_qos(found.edited, GATES) == GUARANTEED
    return " ".join(spoiled_sentences(found))


def test_an_injected_sidecar() -> None:
    """A sidecar of a mesh is named with the mesh, its fields, and the annotations by which the mesh takes others."""
    text = sentences(pod(MAIN, sidecars=(PROXY,)))
    assert text.startswith(
        "No container owns CPUs, because sidecar istio-proxy (added by Istio) has cpu request 100m below its limit 2 "
        "and memory request 128Mi below its limit 1Gi: the pod is Burstable. Smallest edit: set limits.cpu: 100m and "
        "requests.memory: 1Gi of istio-proxy, by the pod's annotations sidecar.istio.io/proxyCPU and "
    )
    assert text.endswith("Then main can own 4 CPUs.")


@pytest.mark.parametrize("name", ["linkerd-proxy", "vault-agent", "daprd", "consul-dataplane", "gke-gcsfuse-sidecar"])
def test_other_injectors(name: str) -> None:
    """The other known injectors are recognised by the names of their containers."""
    assert "(added by " in sentences(pod(MAIN, container(name, {"cpu": "10m"}, {})))


@pytest.mark.parametrize(
    ("one", "why", "edit"),
    [
        (container("app", WHOLE, {"cpu": "4"}), "container app has no memory limit", "limits.memory: 2Gi of app"),
        (
            container("app", {"memory": "1Gi", "cpu": "4"}, WHOLE),
            "container app has memory request 1Gi below its limit 2Gi",
            "requests.memory: 2Gi of app",
        ),
    ],
)
def test_a_field_of_its_own(one: dict[str, Any], why: str, edit: str) -> None:
    """The container's own field is named, and the one change that ends it."""
    text = sentences(pod(one))
    assert why in text
    assert f"Smallest edit: set {edit}. Then app can own 4 CPUs." in text


def test_many_spoilers() -> None:
    """Two are named and the others counted; the edit covers all of them."""
    others = [container(f"c{at}", {"cpu": "10m"}, {}) for at in range(4)]
    text = sentences(pod(MAIN, *others))
    assert "container c1 has no cpu and no memory limit, and 2 more like that" in text
    assert text.count("limits.cpu: 10m") == 4


@pytest.mark.parametrize(
    "asked",
    [
        pod(MAIN),
        pod(container("web", {"cpu": "500m"}, {"cpu": "2"})),
        pod(container("web", {}, {})),
        pod(container("half", {"cpu": "1500m", "memory": "1Gi"}, {"cpu": "1500m", "memory": "1Gi"})),
    ],
)
def test_pods_that_miss_nothing(asked: Pod) -> None:
    """A pod that owns CPUs, or asks for no whole ones, has nothing to explain."""
    assert find_spoiled(asked, GATES) is None


def story(node: Node, asked: Pod) -> tuple[str, ...]:
    return explain(node, asked).story


def test_explain_says_it_first() -> None:
    """The second and third sentence of an admitted pod say why and what to set; the edit is tried on the node."""
    asked = pod(MAIN, sidecars=(PROXY,))
    sentences = story(make_node(), asked)
    assert "sidecar istio-proxy (added by Istio)" in sentences[1]
    assert sentences[2].endswith("Then main owns 4 CPUs.")
    narrow = make_node("pack:2 numa:1(memory=8GB) core:3 pu:1", topology_manager_policy="single-numa-node")
    assert story(narrow, asked)[2].endswith("Then the node as it is would refuse the pod.")
    assert not any("No container owns" in one for one in story(make_node(cpu_manager_policy="none"), asked))


AMOUNTS = st.fixed_dictionaries(
    {}, optional={"cpu": st.sampled_from(["1", "2", "1500m", "100m"]), "memory": st.sampled_from(["64Mi", "1Gi"])}
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), min_size=1, max_size=4))
def test_what_is_promised_is_what_the_node_gives(drawn: list[tuple[dict[str, str], dict[str, str], bool]]) -> None:
    """On a node with room the edited pod is admitted, and its containers own exactly the CPUs that the sentence names;
    the pod as it is owns none."""
    made = [container(f"c{at}", requests, limits) for at, (requests, limits, _) in enumerate(drawn)]
    sidecars = tuple(one for one, (_, _, sidecar) in zip(made, drawn, strict=True) if sidecar)
    apps = [one for one in made if one not in sidecars] or [container("app", {}, {})]
    asked = pod(*apps, sidecars=sidecars)
    found = find_spoiled(asked, GATES)
    if found is None:
        return
    machine = "pack:1 numa:1(memory=64GB) core:16 pu:2"
    assert not any(one.exclusive for one in make_node(machine).admit(asked).containers)
    decision = make_node(machine).admit(found.edited)
    assert decision.admitted
    assert {one.name: len(one.exclusive_cpus) for one in decision.containers if one.exclusive} == found.owners
    assert "Then " in spoiled_sentences(found, admits=True)[1]
