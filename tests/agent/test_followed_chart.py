"""Agents that are followed, in the chart: token, authority, settings, rights and kind come with `cluster.enabled`."""

from __future__ import annotations

from typing import Any

import yaml

from podslice.agent.settings import settings_from_dict
from tests.agent.chart import CHART, Renderer, documents, render
from tests.agent.test_cluster_chart import DIGEST, ON

PLAIN = CHART.parents[1] / "manifests" / "nodestate.yaml"


def named(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] == kind]


def test_off_by_default() -> None:
    """Without `cluster.enabled` an agent has no other token, tells nobody, and may write no object."""
    found = documents(image=DIGEST)
    text = yaml.safe_dump_all(found)
    assert "podslice-cluster" not in text
    assert "nodestates" not in text


def test_the_agent_tells_the_service() -> None:
    """Its configuration is read as it is, and the files it names are mounted: the token for the service's audience,
    and the authority without the service's key."""
    config = yaml.safe_load(render("configmap", "other", **ON)["data"]["agent.yaml"])
    cluster = settings_from_dict(config).agent.cluster
    assert cluster is not None
    assert cluster.services == ("podslice-cluster.other.svc:9097",)
    assert cluster.plan == "compare"
    pod = render("daemonset", "other", **ON)["spec"]["template"]["spec"]
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert cluster.token_file == f"{mounts['cluster-token']}/token"
    assert cluster.ca_file == f"{mounts['cluster-ca']}/ca.crt"
    volumes = {one["name"]: one for one in pod["volumes"]}
    (source,) = volumes["cluster-token"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "podslice-cluster"
    assert volumes["cluster-ca"]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_kind_and_rights_are_those_of_the_plain_manifests() -> None:
    """`deploy/manifests/nodestate.yaml` is the kind of the chart and what the chart makes of its rights."""
    kind, *rights = yaml.safe_load_all(PLAIN.read_text())
    assert yaml.safe_load((CHART / "crds" / "nodestates.yaml").read_text()) == kind
    assert list(yaml.safe_load_all(Renderer("podslice", ON).text("nodestate.yaml"))) == rights
    other = Renderer("other", ON).text("nodestate.yaml")
    assert "system:serviceaccount:other:podslice-agent" in other
    assert "namespace: podslice" not in other


def test_plans_can_be_honoured() -> None:
    """The value `cluster.plan` is the agents' policy for plans."""
    values = {**ON, "cluster": {**ON["cluster"], "plan": "honour"}}
    config = yaml.safe_load(render("configmap", **values)["data"]["agent.yaml"])
    assert config["cluster"]["plan"] == "honour"
