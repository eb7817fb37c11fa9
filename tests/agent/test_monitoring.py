"""Alert rules and the dashboard ask for metrics and labels that the agent has, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.agent.test_metrics import AUTHORITY, KUBELET, OWN, POLICY
from tests.deploy.rendering import DEPLOY
from tests.isolation.test_counters import ISOLATION

MONITORING = DEPLOY / "monitoring"
SCRAPED = {"job", "node", "instance", "pod", "namespace"}
"""Labels that a scrape adds."""
TABLE = KUBELET | OWN | POLICY | ISOLATION | AUTHORITY | {"up": ("gauge", "")}
_METRIC = re.compile(r"\b(?:up\b|(?:podslice|kubelet|resource_manager)_\w+)")
_SELECTOR = re.compile(r"\b(?P<name>[a-z_]+)(?:\{(?P<matchers>[^}]*)\})")
_BY = re.compile(r"\bby \((?P<labels>[^)]*)\)")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus, or promtool)"
)


class Query(NamedTuple):
    """A question in a rule or on a panel, and the labels that the text beside it shows."""

    where: str
    expr: str
    shown: frozenset[str]


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    return list(group["rules"])


def dashboard() -> dict[str, Any]:
    return dict(json.loads((MONITORING / "dashboard.json").read_text()))


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    for rule in rules():
        text = " ".join(rule["annotations"].values())
        yield Query(rule["alert"], rule["expr"], frozenset(re.findall(r"\$labels\.(\w+)", text)))
    for panel in panels():
        for target in panel["targets"]:
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            yield Query(panel["title"], target["expr"], frozenset(shown))


def with_variables(expr: str) -> str:
    """A panel's query as Grafana sends it."""
    return expr.replace("$node", ".*").replace("$__rate_interval", "1m")


def family(name: str) -> str:
    """The metric a series is of."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if TABLE.get(base, ("", ""))[0] == "histogram" else name


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)
def test_queries_ask_for_what_there_is(query: Query) -> None:
    """Each metric of a query is one of the agent's, and each label that selects, groups or is shown is one it has."""
    names = {family(name) for name in _METRIC.findall(query.expr)}
    assert names
    assert names <= set(TABLE), names - set(TABLE)
    labels = SCRAPED.union(*(TABLE[name][1].split() for name in names))
    for match in _SELECTOR.finditer(query.expr):
        assert set(re.findall(r"(\w+)=", match["matchers"])) <= set(TABLE[family(match["name"])][1].split()) | SCRAPED
    grouped = [set(match["labels"].replace(" ", "").split(",")) for match in _BY.finditer(query.expr)]
    assert all(group <= labels for group in grouped)
    kept = set.union(*grouped) - {"le"} if grouped else labels
    assert query.shown <= kept


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)
def test_kubelets_own_metrics_are_not_meant(query: Query) -> None:
    """A kubelet has metrics of the same names; only the agent's are asked for."""
    for match in re.finditer(r"\b(?:kubelet|resource_manager)_\w+(?P<selector>\{[^}]*)?", query.expr):
        assert 'job="podslice"' in (match["selector"] or "")


def test_alerts_help() -> None:
    """Each alert has a severity, a sentence with the node, and a word on what to do; every one has a test in which it
    fires, and one in which it does not."""
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        of_one_node = not rule["expr"].startswith("absent(")
        assert ("{{ $labels.node }}" in rule["annotations"]["summary"]) == of_one_node
        assert rule["annotations"]["description"].endswith((".", "?"))
    tests = yaml.safe_load((MONITORING / "rules_test.yaml").read_text())["tests"]
    tried = [one for test in tests for one in test["alert_rule_test"]]
    assert {one["alertname"] for one in tried if one.get("exp_alerts")} == set(names)
    assert {one["alertname"] for one in tried if not one.get("exp_alerts")} == set(names)


def test_dashboard_is_whole() -> None:
    """Panels have ids of their own, lie beside and below one another, ask the chosen data source, and each of the
    agent's own metrics that a person would look at is on one of them."""
    page = dashboard()
    assert {one["name"] for one in page["templating"]["list"]} == {"datasource", "node"}
    assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in columns for y in lines}
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFG"[: len(panel["targets"])])
    asked = {family(name) for query in queries() for name in _METRIC.findall(query.expr)}
    assert set(OWN | POLICY) - asked == {"podslice_state_age_seconds"}


@needs_promtool
def test_rules_are_good_and_tested(tmp_path: Path) -> None:
    """Prometheus' own tool accepts the rules, its unit tests of every alert pass, and it can parse every panel."""

    def promtool(*arguments: str) -> None:
        ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    promtool("check", "rules", str(MONITORING / "rules.yaml"))
    promtool("test", "rules", str(MONITORING / "rules_test.yaml"))
    exprs = [with_variables(target["expr"]) for panel in panels() for target in panel["targets"]]
    recorded = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(exprs)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool("check", "rules", str(tmp_path / "panels.yaml"))
