"""Containers that keep others from owning CPUs: what is said, and that the advice was tried."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import KubeletConfig
from podslice.advise.lint.engine import lint_pod
from podslice.advise.lint.equalize import NONE_HELPS, equal_amounts
from podslice.advise.lint.model import Finding
from podslice.advise.lint.subject import NodeSubject, PodSubject
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.readers.synthetic import from_synthetic

QOS = frozenset({"PS101", "PS103", "PS104", "PS111"})
APP = {"limits": {"cpu": "8", "memory": "8Gi"}}
MESH = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
EXPORTER = {"requests": {"cpu": "100m", "memory": "64Mi"}}


def pod(*extra: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **metadata: Any) -> dict[str, Any]:
    """Return a pod of the application and other containers."""
    containers = [{"name": "app", "resources": APP}, *extra]
    return {"metadata": {"name": "p", **metadata}, "spec": {"containers": containers, "initContainers": [*init]}}


def named(name: str, resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources, **more}


def node(policy: str = "static", machine: str | None = None) -> NodeSubject:
    reserved = "0-1" if policy == "static" else ""
    config = KubeletConfig(cpu_manager_policy=policy, reserved_system_cpus=reserved)
    return NodeSubject(config, None if machine is None else from_synthetic(machine))


def findings(data: dict[str, Any], subject: NodeSubject | None = None) -> list[Finding]:
    return lint_pod(PodSubject(pod_from_dict(data), subject), QOS)


@pytest.mark.parametrize(
    ("data", "path", "says", "fix"),
    [
        pytest.param(
            pod(named("istio-proxy", MESH)),
            "spec.containers[1].resources",
            "container istio-proxy (added by Istio) has cpu request 100m below its limit 2 and memory request 128Mi "
            "below its limit 1Gi",
            "set limits.cpu: 100m and requests.memory: 1Gi of istio-proxy; CPU quota then throttles it at 100m",
            id="mesh",
        ),
        pytest.param(
            pod(init=(named("linkerd-proxy", {}, restartPolicy="Always"),)),
            "spec.initContainers[0].resources",
            "sidecar linkerd-proxy (added by Linkerd) has no resources",
            "config.linkerd.io/proxy-memory-limit",
            id="sidecar-without-resources",
        ),
        pytest.param(
            pod(named("exporter", EXPORTER)),
            "spec.containers[1].resources",
            "container exporter has no cpu and no memory limit",
            "set limits.cpu: 100m and limits.memory: 64Mi of exporter",
            id="requests-only",
        ),
        pytest.param(
            pod(init=(named("setup", EXPORTER),)),
            "spec.initContainers[0].resources",
            "init container setup has no cpu and no memory limit",
            "set limits.cpu: 100m and limits.memory: 64Mi of setup",
            id="init",
        ),
    ],
)
def test_the_container_that_spoils_the_pod(data: dict[str, Any], path: str, says: str, fix: str) -> None:
    """It is named with what it lacks, an injected one as such; a warning where the CPU manager is static, a note where
    that is not known, and nothing about CPUs where it is none."""
    (found,) = findings(data, node())
    assert (found.id, found.severity, found.path) == ("PS104", "warning", path)
    assert found.message.startswith(says)
    assert "(app 8 CPUs)" in found.message
    assert fix in found.fix
    assert [one.severity for one in findings(data)] == ["info"]
    assert not any("app 8 CPUs" in one.message for one in findings(data, node("none")))


def test_every_spoiling_container_is_named() -> None:
    """Two sidecars spoil the pod; the advice for one says that it takes the other too."""
    first, second = findings(pod(named("istio-proxy", MESH), named("exporter", EXPORTER)), node())
    assert first.fix.endswith("together with exporter")
    assert second.fix.endswith("together with istio-proxy")


def test_own_memory_and_a_sidecar() -> None:
    """Memory of the application itself and a sidecar are two findings, and each names the other."""
    data = pod(named("exporter", EXPORTER))
    data["spec"]["containers"][0]["resources"] = {"limits": {**APP["limits"], "memory": "9Gi"},
                                                  "requests": {"cpu": "8", "memory": "8Gi"}}  # fmt: skip
    ids = {found.id: found.fix for found in findings(data, node())}
    assert set(ids) == {"PS103", "PS104"}
    assert ids["PS103"] == "set requests.memory: 9Gi of app; together with exporter"


def test_a_single_field_says_what_it_costs() -> None:
    """PS101 reports a lone field, with the CPUs that the application does not own."""
    sidecar = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    (found,) = findings(pod(named("exporter", sidecar)), node())
    assert (found.id, found.severity) == ("PS101", "warning")
    assert "no container owns CPUs (app 8 CPUs)" in found.message


@pytest.mark.parametrize(
    "data",
    [
        pod(named("exporter", {"limits": {"cpu": "100m", "memory": "64Mi"}})),
        pod(named("exporter", {**EXPORTER, "claims": [{"name": "gpu"}]})),
        {"metadata": {"name": "p"}, "spec": {"containers": [named("a", EXPORTER), named("b", MESH)]}},
    ],
    ids=["equal", "claims", "no-whole-cpus"],
)
def test_quiet_pods(data: dict[str, Any]) -> None:
    """Nothing is said where no CPUs are lost, or a driver may give them."""
    assert findings(data, node()) == []


def test_advice_was_tried_on_the_node() -> None:
    """The equal amounts make the pod own its CPUs on the empty node; where none do, no advice is given."""
    subject = PodSubject(
        pod_from_dict(pod(named("istio-proxy", MESH))), node("static", "pack:2 numa:1(memory=64GiB) core:8 pu:2")
    )
    changes = equal_amounts(subject)
    assert changes is not None
    assert {key: str(value) for key, value in changes["istio-proxy"].items()} == {"cpu": "100m", "memory": "1Gi"}
    (found,) = findings(pod(named("istio-proxy", MESH)), node("static", "pack:1 numa:1(memory=64GiB) core:4 pu:2"))
    assert found.fix == NONE_HELPS


def test_a_sidecar_with_whole_cpus() -> None:
    """A sidecar that requests whole CPUs owns them once its limit is equal."""
    (found,) = findings(pod(named("side", {"requests": {"cpu": "1", "memory": "1Gi"}})), node())
    assert found.fix == "set limits.cpu: 1 and limits.memory: 1Gi of side; it then owns 1 CPU itself"


def test_a_container_that_is_added_later() -> None:
    """A pod that asks for a mesh is told before it is created; equal annotations, or a container that is already there,
    say nothing."""
    label = {"labels": {"sidecar.istio.io/inject": "true"}}
    (found,) = findings(pod(**label), node())
    assert (found.id, found.severity, found.path) == ("PS111", "warning", "metadata.labels[sidecar.istio.io/inject]")
    assert "sidecar.istio.io/proxyCPULimit" in found.fix
    amounts = {"proxyCPU": "100m", "proxyCPULimit": "100m", "proxyMemory": "1Gi", "proxyMemoryLimit": "1Gi"}
    equal = {f"sidecar.istio.io/{key}": value for key, value in amounts.items()}
    assert findings(pod(**label, annotations=equal), node()) == []
    assert findings(pod(**label), node("none")) == []
    there = pod(named("istio-proxy", {"limits": {"cpu": "100m", "memory": "1Gi"}}), **label)
    assert findings(there, node()) == []
