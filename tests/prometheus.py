"""A real Prometheus with the shipped scrape configuration and rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

MONITORING = Path(__file__).parents[1] / "deploy" / "monitoring"
PATIENCE = 120
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs prometheus (Debian: prometheus)"
)
Target = tuple[str, Mapping[str, str]]
"""An address, and the labels that Prometheus knows of the pod there."""


def port_of(part: str, port: str, name: str) -> dict[str, str]:
    """What Prometheus knows of a container's port in a pod of agents (`podslice`) or service (`podslice-cluster`)."""
    return {
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": part,
        "__meta_kubernetes_pod_container_port_name": port,
        "__meta_kubernetes_pod_node_name": name,
        "__meta_kubernetes_pod_name": name,
    }


class Prometheus:
    """A server that finds these targets as it would find pods, all for each of the shipped `jobs`. `authority` is the
    file for TLS, with the name in the certificates; with `at_once` alerts do not wait before they fire."""

    def __init__(
        self,
        folder: Path,
        targets: list[Target],
        jobs: tuple[str, ...],
        *,
        authority: tuple[Path, str] | None = None,
        at_once: bool = False,
    ) -> None:
        config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
        config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in jobs]
        for job in config["scrape_configs"]:
            assert job.pop("kubernetes_sd_configs")[0]["role"] == "pod"
            job["static_configs"] = [{"targets": [address], "labels": dict(labels)} for address, labels in targets]
            if authority is not None and "tls_config" in job:
                job["tls_config"] = {"ca_file": str(authority[0]), "server_name": authority[1]}
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        config["rule_files"] = [self._rules(folder, name, at_once=at_once) for name in config["rule_files"]]
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

    @staticmethod
    def _rules(folder: Path, name: str, *, at_once: bool) -> str:
        if not at_once:
            return str(MONITORING / name)
        rules = yaml.safe_load((MONITORING / name).read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (folder / name).write_text(yaml.safe_dump(rules))
        return str(folder / name)

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

    async def awaited(self, expr: str) -> list[dict[str, Any]]:
        """The answer of a query, once there is one."""
        found: list[dict[str, Any]] = []

        async def look() -> None:
            while not found:
                found.extend(await self.result(expr))
                await asyncio.sleep(0.2)

        try:
            await asyncio.wait_for(look(), PATIENCE)
        except TimeoutError:
            raise AssertionError(f"no answer to {expr}") from None
        return found

    async def firing(self) -> set[str]:
        return {one["metric"]["alertname"] for one in await self.result('ALERTS{alertstate="firing"}')}
