"""What is deployed fits the agent: the configurations load, and the permissions are the least."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.agent.settings import AgentSettings, settings_from_dict
from podslice.k8s.kubeletconfig import load_config_data
from tests.agent.chart import CHART, render

DEPLOY = Path(__file__).parents[2] / "deploy"


def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "manifests" / "podslice.yaml").read_text())
    return {document["kind"]: document for document in documents}


def test_configurations_load() -> None:
    """The shipped configurations are good ones, and all say the same."""
    config_map = manifests()["ConfigMap"]["data"]["agent.yaml"]
    values = yaml.safe_load((DEPLOY / "helm" / "podslice" / "values.yaml").read_text())["agent"]
    kind = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}
    loaded = [
        settings_from_dict(load_config_data(str(DEPLOY / "agent.yaml"))),
        settings_from_dict(yaml.safe_load(config_map)),
        settings_from_dict({**kind, **values}),
    ]
    assert loaded[0].config == loaded[1].config == loaded[2].config
    assert all(one.agent.sources.api_server for one in loaded)


def test_least_privilege() -> None:
    """Reading pods and creating events, a read-only root, no privilege."""
    found = manifests()
    assert [(rule["resources"], rule["verbs"]) for rule in found["ClusterRole"]["rules"]] == [
        (["pods"], ["list", "watch"]),
        (["events"], ["create"]),
    ]
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    assert not pod.get("hostPID")
    assert not pod.get("hostIPC")
    context = pod["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["privileged"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("name", ["serviceaccount", "clusterrole", "clusterrolebinding", "configmap", "daemonset"])
def test_chart_renders_to_the_manifests(name: str) -> None:
    """With its default values the chart is the plain manifests; what only a chart needs is named here."""
    plain = next(document for kind, document in manifests().items() if kind.lower() == name)
    rendered = render(name)
    if name == "configmap":
        texts = [yaml.safe_load(document["data"].pop("agent.yaml")) for document in (plain, rendered)]
        assert texts[1].pop("metricsAddress") == AgentSettings().metrics_address
        assert texts[0] == texts[1]
    if name == "daemonset":
        pod = rendered["spec"]["template"]
        assert len(pod["metadata"]["annotations"].pop("checksum/config")) == 64
        assert pod["spec"]["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    assert rendered == plain


def test_chart_values_arrive() -> None:
    """Every value of the chart changes what is rendered, and a changed configuration restarts the agent."""
    values = {
        "image": {"repository": "registry.example/podslice", "tag": "9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "secret"}],
        "agent": {"profile": "kubelet-1.36", "resources": {}},
        "observe": True,
        "metricsPort": 9999,
        "hostPaths": [{"name": "manifests", "path": "/etc/kubernetes/manifests"}],
        "nodeSelector": {"pool": "fast"},
        "tolerations": [],
        "podResources": {"limits": {"memory": "1Gi"}},
    }
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(defaults)
    template = render("daemonset", "other", **values)["spec"]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert container["image"] == "registry.example/podslice:9"
    assert (container["imagePullPolicy"], pod["imagePullSecrets"]) == ("Always", [{"name": "secret"}])
    assert container["args"][-1] == "--observe"
    assert container["livenessProbe"]["httpGet"]["port"] == container["readinessProbe"]["httpGet"]["port"] == 9999
    assert (pod["nodeSelector"], pod.get("tolerations")) == ({"pool": "fast"}, None)
    assert container["volumeMounts"][-1] == {"name": "manifests", "mountPath": "/etc/kubernetes/manifests"}
    host_path = {"path": "/etc/kubernetes/manifests", "type": "Directory"}
    assert pod["volumes"][-1] == {"name": "manifests", "hostPath": host_path}
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    configured = yaml.safe_load(render("configmap", "other", **values)["data"]["agent.yaml"])
    assert settings_from_dict(configured).agent.profile == "kubelet-1.36"
    assert settings_from_dict(configured).agent.address() == ("127.0.0.1", 9999)
    checksum = "checksum/config"
    before = render("daemonset", "other")["spec"]["template"]["metadata"]["annotations"][checksum]
    assert template["metadata"]["annotations"][checksum] != before


def test_release_namespace_is_used() -> None:
    """The chart goes where it is installed, its cluster-wide parts included."""
    assert render("clusterrolebinding", "other")["subjects"][0]["namespace"] == "other"
    for name in ("serviceaccount", "configmap", "daemonset"):
        assert render(name, "other")["metadata"]["namespace"] == "other"
