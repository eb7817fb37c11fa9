"""What alerts ask for is what the service counts."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from podslice.cluster.service import ClusterService
from podslice.k8s.clusterobjects import read_node
from tests.agent.chart import documents
from tests.agent.test_cluster_chart import ON
from tests.agent.test_monitoring import needs_promtool
from tests.clusterservice.bench import Bench, node_object, pod_object, seen
from tests.clusterservice.fake_api import FakeClusterApi

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES, TESTS = MONITORING / "cluster-rules.yaml", MONITORING / "cluster-rules_test.yaml"


def test_alerts_ask_for_what_is_there() -> None:
    """Every metric of an alert is one that the service has from its start, and every label value too."""
    bench = Bench("a")
    service = ClusterService(FakeClusterApi(), bench.journals)
    service.metrics.called("filter", 0.001, "one")
    families = text_string_to_metric_families(service.metrics.text().decode())
    samples = [sample for family in families for sample in family.samples]
    names = {sample.name for sample in samples}
    labels = {value for sample in samples for value in sample.labels.values()}
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]:
        asked = set(re.findall(r"podslice_cluster_[a-z_]+", rule["expr"]))
        assert asked <= names, rule["alert"]
        for values in re.findall(r'(?:fate|outcome|verb)=~?"([^"]+)"', rule["expr"]):
            assert set(values.split("|")) <= labels, rule["alert"]
        assert {"summary", "description"} <= set(rule["annotations"])
    assert len(group["rules"]) == 7


@needs_promtool
def test_alerts_fire_when_they_should() -> None:
    """Prometheus' own tool takes the rules, and its unit tests have each of them fire, and not fire."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    tried = [one for test in tests for one in test["alert_rule_test"]]
    names = {rule["alert"] for rule in group["rules"]}
    assert {one["alertname"] for one in tried if one.get("exp_alerts")} == names
    assert {one["alertname"] for one in tried if not one.get("exp_alerts")} == names
    for arguments in (("check", "rules", str(RULES)), ("test", "rules", str(TESTS))):
        ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_chart_scrapes_and_ships_them() -> None:
    """With `cluster.enabled` the chart's PodMonitor gives the service's pods the job that the alerts ask for, and its
    PrometheusRule has the plain rules; without it there is neither."""
    watched = {"podMonitor": True, "prometheusRule": True}
    assert not of_service(documents(image=ON["image"], monitoring=watched))
    found = of_service(documents(**ON, monitoring=watched))
    assert found["PrometheusRule"]["spec"] == yaml.safe_load(RULES.read_text())
    spec, pod = found["PodMonitor"]["spec"], found["StatefulSet"]["spec"]["template"]
    assert pod["metadata"]["labels"][spec["jobLabel"]] == "podslice-cluster"
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = [port["name"] for one in pod["spec"]["containers"] for port in one.get("ports", ())]
    assert [one["port"] for one in spec["podMetricsEndpoints"]] == ["metrics"]
    assert "metrics" in ports


def of_service(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["kind"]: one for one in found if one["metadata"]["name"] == "podslice-cluster"}


def test_what_is_held_written_and_waited_for() -> None:
    """The age of the oldest hold, writes by what came of them, and the time from a pending pod to its node."""
    bench, api = Bench("a"), FakeClusterApi()
    service = ClusterService(api, bench.journals, clock=lambda: bench.now)
    bench.journals.catch_up(["a"])
    service._node_news(None, read_node(json.dumps(node_object("a")).encode()))
    bench.journals.nodes.clear()
    bench.journals.catch_up(["a"])
    pending = seen(pod_object("p"))
    service._pod_news(None, pending)
    assert service.placing.choose(pending) == "a"
    bench.now = 7.0
    api.refuse = 409
    bind = service.extender.bind(json.dumps(
        {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}).encode())  # fmt: skip
    text = service.metrics.text().decode()
    assert "podslice_cluster_oldest_hold_seconds 7.0" in text
    asyncio.run(bind)
    service._pod_news(pending, seen(pod_object("p", node="a")))
    text = service.metrics.text().decode()
    assert 'podslice_cluster_api_writes_total{kind="bind",result="refused"} 1.0' in text
    assert 'podslice_cluster_placing_seconds_bucket{le="10.0"} 1.0' in text
    assert 'podslice_cluster_placing_seconds_bucket{le="5.0"} 0.0' in text
    assert "process_resident_memory_bytes" in text
