"""A real Prometheus scrapes a running agent: its rules are evaluated, every panel of the dashboard has an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.agent.process.daemon import Agent
from podslice.agent.runtime.ttrpc import RPCError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import api_pod, get, with_agent
from tests.agent.test_monitoring import MONITORING, needs_promtool, panels, rules, with_variables
from tests.service.fake_runtime import FakeRuntime

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus (Debian: prometheus)"),
    needs_promtool,
]
POD = {
    "__meta_kubernetes_pod_label_app_kubernetes_io_name": "podslice",
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_pod_node_name": "n1",
}
"""What Prometheus knows of an agent's pod; of its other port nothing may be scraped."""


class Prometheus:
    """A server with the shipped scrape configuration, which finds the agent as it would find its pod."""

    def __init__(self, folder: Path, target: str) -> None:
        config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
        job, _ = config["scrape_configs"]
        config["scrape_configs"] = [job]
        assert job.pop("kubernetes_sd_configs")[0]["role"] == "pod"
        other = {**POD, "__meta_kubernetes_pod_container_port_name": "status"}
        job["static_configs"] = [{"targets": [target], "labels": POD}, {"targets": ["127.0.0.1:1"], "labels": other}]
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        config["rule_files"] = [str(MONITORING / name) for name in config["rule_files"]]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--log.level=error",
        ]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        process = subprocess.Popen(self._command)
        try:
            yield
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)

    async def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer, None while there is none. A query that is not one fails the test."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"

        def fetch() -> Any:
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    return json.load(answer)["data"]
            except urllib.error.HTTPError as error:
                if error.code == 503:  # it is starting
                    return None
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None
            except OSError:
                return None

        return await asyncio.to_thread(fetch)

    async def result(self, expr: str) -> list[dict[str, Any]]:
        data = await self.ask("query", query=expr)
        return list(data["result"]) if data else []


def test_real_prometheus(tmp_path: Path) -> None:
    """Prometheus reads every metric and evaluates all rules; every panel with metrics that happened has an answer with
    the labels that it shows; a lost runtime makes the alert wait for its time."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        await fake.create_container(await fake.run_pod("a"), "app")
        await api.apply(api_pod("b", "40"))
        with pytest.raises(RPCError):
            await fake.create_container(await fake.run_pod("b"), "app")
        server = Prometheus(tmp_path, f"127.0.0.1:{agent.endpoints.web_port}")
        async with server.running():
            await awaited(server, 'count_over_time(podslice_pods{job="podslice"}[1m]) > 3')
            _, page = await get(agent.endpoints.web_port, "/metrics")
            await every_metric_was_read(server, page)
            await every_panel_is_answered(server, page)
            states = await rule_states(server)
            cluster = yaml.safe_load((MONITORING / "cluster-rules.yaml").read_text())["groups"]
            shipped = [*rules(), *(rule for group in cluster for rule in group["rules"])]
            assert {alert for alert, _ in states} == {rule["alert"] for rule in shipped}
            assert {health for _, health in states} == {"ok"}
            agent.reporter.disconnected("")
            await awaited(server, 'ALERTS{alertname="PodsliceNotRegistered", alertstate="pending", node="n1"}')
        blame(page)

    with_agent(tmp_path, test)


async def awaited(server: Prometheus, expr: str) -> None:
    """Until a query has an answer."""
    found: list[Any] = []

    async def look() -> None:
        while not found:
            found.extend(await server.result(expr))
            await asyncio.sleep(0.2)

    await asyncio.wait_for(look(), 120)


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
