"""What the chart gives Prometheus and Grafana."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.deploy.rendering import DEPLOY, ON, Object, by_kind_and_name, needs_helm, render

pytestmark = needs_helm
MONITORING = DEPLOY / "monitoring"


@pytest.mark.parametrize("scheduler", [False, True])
def test_rules_and_dashboards_are_those_of_the_folder(scheduler: bool) -> None:
    """A PrometheusRule and a dashboard for the agents, and with the scheduler one more of each."""
    values: dict[str, Any] = {"monitoring": {"prometheusRule": True, "dashboard": True}, **(ON if scheduler else {})}
    found = by_kind_and_name(render(**values))
    rules = {name: one["spec"] for (kind, name), one in found.items() if kind == "PrometheusRule"}
    expected = {"podslice-agent": yaml.safe_load((MONITORING / "rules.yaml").read_text())}
    if scheduler:
        expected["podslice-cluster"] = yaml.safe_load((MONITORING / "cluster-rules.yaml").read_text())
    assert rules == expected
    shown = found["ConfigMap", "podslice-dashboard"]
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = {"podslice.json": "dashboard.json", "podslice-cluster.json": "cluster-dashboard.json"}
    assert {files[name]: json.loads(text) for name, text in shown["data"].items()} == {
        name: json.loads((MONITORING / name).read_text()) for name in list(files.values())[: 1 + scheduler]
    }


@pytest.mark.parametrize(
    ("value", "kind", "endpoints"),
    [("podMonitor", "PodMonitor", "podMetricsEndpoints"), ("serviceMonitor", "ServiceMonitor", "endpoints")],
)
@pytest.mark.parametrize(
    ("name", "workload", "jobs"),
    [
        ("podslice-agent", "DaemonSet", {"metrics": "podslice"}),
        ("podslice-cluster", "StatefulSet", {"metrics": "podslice-cluster", "scheduler": "podslice-scheduler"}),
    ],
)
def test_everything_is_scraped(
    value: str, kind: str, endpoints: str, name: str, workload: str, jobs: dict[str, str]
) -> None:
    """Either monitor selects the ports of every agent, service and scheduler, ready or not, and gives the job and node
    that rules and dashboards ask for; service and scheduler are known by the service's authority. With neither there is
    none."""
    values: dict[str, Any] = {**ON, "metricsPort": 9999}
    objects = render(**values, monitoring={value: True, "labels": {"release": "x"}})
    named = by_kind_and_name(objects)
    monitor, pod = named[kind, name], named[workload, name]["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "x"
    selected = monitor["spec"]["selector"]["matchLabels"]
    ports = {one["name"]: one["containerPort"] for part in pod["spec"]["containers"] for one in part.get("ports", ())}
    if kind == "ServiceMonitor":
        (service,) = (
            one for one in objects
            if one["kind"] == "Service" and selected.items() <= one["metadata"]["labels"].items()
        )  # fmt: skip
        assert service["spec"]["publishNotReadyAddresses"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert {one["name"]: one["port"] for one in service["spec"]["ports"]} == {port: ports[port] for port in jobs}
    else:
        assert selected.items() <= pod["metadata"]["labels"].items()
    found = {one["port"]: one for one in monitor["spec"][endpoints]}
    assert {port: job_of(one) for port, one in found.items()} == jobs
    for one in found.values():
        if workload == "DaemonSet":
            assert one["relabelings"][1] == {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
        else:
            assert (one["scheme"], one["tlsConfig"]) == (
                "https",
                {
                    "ca": {"configMap": {"name": "podslice-cluster-ca", "key": "ca.crt"}},
                    "serverName": "podslice-cluster.podslice.svc",
                },
            )
    assert {one["kind"] for one in render(**values)} & {"PodMonitor", "ServiceMonitor"} == set()


def job_of(endpoint: Object) -> str:
    (job,) = (one["replacement"] for one in endpoint["relabelings"] if one["targetLabel"] == "job")
    return str(job)


def test_a_monitor_finds_its_authority() -> None:
    """The ConfigMap that it names is in its own namespace."""
    values = {**ON, "cluster": {**ON["cluster"], "namespace": "placing"}}
    objects = render(**values, monitoring={"podMonitor": True})
    (monitor,) = (
        one for one in objects if one["metadata"]["name"] == "podslice-cluster" and one["kind"] == "PodMonitor"
    )
    assert monitor["metadata"]["namespace"] == "placing"
    maps = {
        one["metadata"]["namespace"]
        for one in objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "podslice-cluster-ca"
    }
    assert maps == {"podslice", "placing"}
