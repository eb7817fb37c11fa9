"""What alerts ask for is what the service counts."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from podslice.cluster.service import ClusterService
from tests.clusterservice.bench import Bench
from tests.clusterservice.fake_api import FakeClusterApi

RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "cluster-rules.yaml"


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
    assert len(group["rules"]) == 5
