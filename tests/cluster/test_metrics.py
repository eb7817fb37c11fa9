"""Alerts and dashboards ask for metrics that the service has."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from podslice.service.clusterobjects import read_node
from tests.agent.test_monitoring import needs_promtool
from tests.cluster.bench import Bench, node_object, pod_object, scheduled_pod, wire_service
from tests.cluster.fake_api import FakeClusterApi

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES, TESTS = MONITORING / "cluster-rules.yaml", MONITORING / "cluster-rules_test.yaml"
GUIDE = Path(__file__).parents[2] / "docs" / "cluster-scheduler.md"
METRIC = re.compile(r"\b(?:podslice_cluster|process)_[a-z_]+")


class StillCertificate:
    """A certificate that does not change."""

    problem = ""

    def __init__(self) -> None:
        self.expiries = {"server": 2e9, "clientAuthority": 3e9}

    def look(self) -> bool:
        return False


def read_samples() -> list[Sample]:
    """Return the metrics that the service has from its start, once it was called."""
    service = wire_service(FakeClusterApi(), Bench("a").journals, certificate=StillCertificate())
    for verb in ("filter", "prioritize", "preempt", "bind"):
        service.metrics.record_call(verb, 0.001, "one")
    service.metrics.count_trouble("pods")
    families = text_string_to_metric_families(service.metrics.text().decode())
    return [sample for family in families for sample in family.samples]


def panels() -> list[dict[str, Any]]:
    found = json.loads((MONITORING / "cluster-dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def test_alerts_ask_for_what_is_there() -> None:
    """Every metric of an alert is one that the service has from its start, and every label value too; the guide says of
    each alert what to do."""
    samples, guide = read_samples(), GUIDE.read_text()
    names = {sample.name for sample in samples}
    labels = {value for sample in samples for value in sample.labels.values()}
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]:
        asked = set(METRIC.findall(rule["expr"]))
        assert asked <= names, rule["alert"]
        for values in re.findall(r'(?:fate|outcome|verb|result)=~?"([^"]+)"', rule["expr"]):
            assert set(values.split("|")) <= labels, rule["alert"]
        assert {"summary", "description"} <= set(rule["annotations"])
        assert f"`{rule['alert']}`" in guide.partition("| alert |")[2]
    assert len(group["rules"]) == 16


def test_panels_ask_for_what_is_there() -> None:
    """Each query of the dashboard is about metrics and labels that the service has, those of the service only, and each
    metric is on a panel; panels lie beside and below one another."""
    samples = read_samples()
    names = {sample.name for sample in samples}
    labels = {name: set(sample.labels) | {"job", "pod", "instance"} for sample in samples for name in [sample.name]}
    asked: set[str] = set()
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in columns for y in lines}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFG"[: len(panel["targets"])])
        for target in panel["targets"]:
            found = set(METRIC.findall(target["expr"]))
            assert found <= names, target["expr"]
            assert found or "up{" in target["expr"]
            assert target["expr"].count('job="podslice-cluster"') == len(re.findall(r"\{", target["expr"]))
            had = set.union({"job", "pod", "instance"}, *(labels[name] for name in found))
            grouped = [set(one.replace(" ", "").split(",")) for one in re.findall(r"by \(([^)]*)\)", target["expr"])]
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(group <= had for group in grouped), target["expr"]
            assert shown <= (set.union(*grouped) if grouped else had), target["expr"]
            asked |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}
    own = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names if name.startswith("podslice_cluster")}
    assert own == {name for name in asked if name.startswith("podslice_cluster")}


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """Prometheus' own tool takes the rules and every panel's query; its unit tests have each alert fire, and not
    fire."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    tried = [one for test in tests for one in test["alert_rule_test"]]
    names = {rule["alert"] for rule in group["rules"]}
    assert {one["alertname"] for one in tried if one.get("exp_alerts")} == names
    assert {one["alertname"] for one in tried if not one.get("exp_alerts")} == names
    exprs = [target["expr"].replace("$__rate_interval", "1m") for panel in panels() for target in panel["targets"]]
    asking = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asking}]}))
    for arguments in (
        ("check", "rules", str(RULES)), ("test", "rules", str(TESTS)), ("check", "rules", str(tmp_path / "panels.yaml"))
    ):  # fmt: skip
        ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_is_held_written_and_waited_for() -> None:
    """The age of the oldest hold, writes by what came of them, and the time from a pending pod to its node."""
    bench, api = Bench("a"), FakeClusterApi()
    service = wire_service(api, bench.journals, clock=lambda: bench.now)
    bench.journals.catch_up(["a"])
    service.nodes.on_change(None, read_node(json.dumps(node_object("a")).encode()))
    bench.journals.nodes.clear()
    bench.journals.catch_up(["a"])
    pending = scheduled_pod(pod_object("p"))

    async def main() -> None:
        service.pods.on_change(None, pending)
        assert service.placing.choose(pending) == "a"
        bench.now = 7.0
        api.refuse = 409
        assert "podslice_cluster_oldest_hold_seconds 7.0" in service.metrics.text().decode()
        call = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}
        await service.extender.bind(json.dumps(call).encode())
        service.pods.on_change(pending, scheduled_pod(pod_object("p", node="a")))

    asyncio.run(main())
    text = service.metrics.text().decode()
    assert 'podslice_cluster_api_writes_total{kind="bind",result="refused"} 1.0' in text
    assert 'podslice_cluster_placing_seconds_bucket{le="10.0"} 1.0' in text
    assert 'podslice_cluster_placing_seconds_bucket{le="5.0"} 0.0' in text
    assert "process_resident_memory_bytes" in text
