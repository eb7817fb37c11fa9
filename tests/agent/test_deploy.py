"""What is deployed fits the agent: the configurations load, and the permissions are the least."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.agent.settings import settings_from_dict
from podslice.k8s.kubeletconfig import load_config_data

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
    context = pod["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["privileged"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("name", ["serviceaccount", "clusterrole", "clusterrolebinding", "configmap", "daemonset"])
def test_chart_matches_the_manifests(name: str) -> None:
    """The chart's templates are the plain manifests with values in them."""
    text = (DEPLOY / "helm" / "podslice" / "templates" / f"{name}.yaml").read_text()
    kinds = {kind.lower(): kind for kind in manifests()}
    assert f"kind: {kinds[name]}" in text
    assert text.count("{{") == text.count("}}")
    assert "namespace: podslice\n" not in text
