"""A real Prometheus scrapes a running agent: its rules are evaluated, every panel of the dashboard has an answer."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from podslice.agent.process.daemon import Agent
from podslice.agent.runtime.ttrpc import RPCError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import api_pod, get, with_agent
from tests.agent.test_monitoring import needs_promtool, panels, rules, with_variables
from tests.prometheus import MONITORING, Prometheus, needs_prometheus, port_of
from tests.service.fake_runtime import FakeRuntime

pytestmark = [
    pytest.mark.slow,
    needs_prometheus,
    needs_promtool,
]


def test_real_prometheus(tmp_path: Path) -> None:
    """Prometheus reads every metric and evaluates all rules; every panel with metrics that happened has an answer with
    the labels that it shows; a lost runtime makes the alert wait for its time."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        await fake.create_container(await fake.run_pod("a"), "app")
        await api.apply(api_pod("b", "40"))
        with pytest.raises(RPCError):
            await fake.create_container(await fake.run_pod("b"), "app")
        at, name = f"127.0.0.1:{agent.endpoints.web_port}", "podslice"
        targets = [(at, port_of(name, "metrics", "n1")), ("127.0.0.1:1", port_of(name, "status", "n1"))]
        server = Prometheus(tmp_path, targets, (name,))
        async with server.running():
            await server.awaited('count_over_time(podslice_pods{job="podslice"}[1m]) > 3')
            _, page = await get(agent.endpoints.web_port, "/metrics")
            await every_metric_was_read(server, page)
            await every_panel_is_answered(server, page)
            states = await rule_states(server)
            cluster = yaml.safe_load((MONITORING / "cluster-rules.yaml").read_text())["groups"]
            shipped = [*rules(), *(rule for group in cluster for rule in group["rules"])]
            assert {alert for alert, _ in states} == {rule["alert"] for rule in shipped}
            assert {health for _, health in states} == {"ok"}
            agent.reporter.disconnected("")
            await server.awaited('ALERTS{alertname="PodsliceNotRegistered", alertstate="pending", node="n1"}')
        blame(page)

    with_agent(tmp_path, test)


async def rule_states(server: Prometheus) -> list[tuple[str, str]]:
    """Alerts and whether they could be evaluated, once all of them have been."""
    states: list[tuple[str, str]] = [("", "unknown")]
    while "unknown" in {health for _, health in states}:
        groups = (await server.ask("rules"))["groups"]
        await asyncio.sleep(0.2)
        states = [(rule["name"], rule["health"]) for group in groups for rule in group["rules"]]
    return states


async def every_metric_was_read(server: Prometheus, page: str) -> None:
    names = set(re.findall(r"^([a-z_]+)[{ ]", page, re.MULTILINE))
    read = {one["metric"]["__name__"] for one in await server.result('{job="podslice"}')}
    assert names <= read
    (up,) = await server.result("up")
    assert up["metric"]["node"] == "n1"


async def every_panel_is_answered(server: Prometheus, page: str) -> None:
    for panel in panels():
        for target in panel["targets"]:
            happened = all(re.search(rf"^{name}[{{ ]", page, re.MULTILINE) for name in metrics_of(target["expr"]))
            answer = await server.result(with_variables(target["expr"]))
            assert answer or not happened, f"{panel['title']}: {target['expr']}"
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert all(label in one["metric"] for one in answer), (panel["title"], label)


def metrics_of(expr: str) -> set[str]:
    return set(re.findall(r"\b(?:podslice|kubelet|resource_manager)_\w+", expr))


def blame(page: str) -> None:
    """Prometheus' own tool finds fault with nothing but names, and those are the kubelet's."""
    ran = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    said = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    assert [line for line in said if not line.startswith("kubelet_") or "help" in line] == []
