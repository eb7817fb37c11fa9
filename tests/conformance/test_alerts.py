"""A real Prometheus with the shipped scrape configuration beside the service, agents' streams and a real
kube-scheduler: what goes wrong fires its alert."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.controlplane import free_port
from e2e.scheduling import create_node

from tests.conformance.beside import NODES, Beside, StreamingNodes, service_beside, streaming
from tests.conformance.deployed import apply, manifests, token_of
from tests.deploy.rendering import manifest
from tests.prometheus import PATIENCE, Prometheus, needs_prometheus, port_of

pytestmark = [pytest.mark.slow, needs_prometheus]
HEALTHY = "podslice_cluster_nodes_proven == 2"


def start_scheduler(beside: Beside, port: int) -> None:
    """kube-scheduler with the rights, the options and the leader election that the manifests give it."""
    for document in manifests():
        if document["kind"] in ("Role", "RoleBinding"):
            assert apply(beside.api, document).code in (200, 201)
    (config,) = (one for one in manifests() if one["kind"] == "ConfigMap" and "scheduler.yaml" in one["data"])
    election = yaml.safe_load(config["data"]["scheduler.yaml"])["leaderElection"]
    (found,) = (one for one in manifest("scheduler.yaml") if one["kind"] == "StatefulSet")
    container: Any = found["spec"]["template"]["spec"]["containers"][0]
    folder = str(beside.certificates.certificate.parent)
    options = [
        one.replace("/etc/podslice-cluster", folder)
        for one in container["args"]
        if not one.startswith("--config=")
    ]  # fmt: skip
    token = token_of(beside.api, "podslice-scheduler")
    beside.plane.start_scheduler(
        {"leaderElection": election}, *options, f"--secure-port={port}", name="podslice-scheduler", token=token
    )


def test_what_goes_wrong_fires(programs: None, tmp_path: Path) -> None:
    """While all is well service and scheduler are scraped by the authority of their certificate, a scheduler leads, and
    no alert fires. A certificate that cannot be used, agents that die, a scheduler and a service that end: each has its
    alert."""
    metrics = free_port(2)
    scheduler = metrics + 1
    with service_beside(tmp_path, f"--metrics-address=0.0.0.0:{metrics}") as beside:
        for name in NODES:
            create_node(beside.api, name, cpus=63)
        start_scheduler(beside, scheduler)
        targets = [
            (f"127.0.0.1:{metrics}", port_of("podslice-cluster", "metrics", "c-0")),
            (f"127.0.0.1:{scheduler}", port_of("podslice-cluster", "scheduler", "c-0")),
            ("127.0.0.1:1", port_of("podslice-cluster", "journal", "c-0")),
        ]
        jobs = ("podslice-cluster", "podslice-scheduler")
        authority = (beside.certificates.authority, "127.0.0.1")
        server = Prometheus(tmp_path, targets, jobs, authority=authority, at_once=True)

        async def fires(name: str) -> set[str]:
            await server.awaited(f'ALERTS{{alertname="{name}", alertstate="firing"}}')
            return await server.firing()

        async def main() -> None:
            async with server.running(), contextlib.AsyncExitStack() as agents:
                await agents.enter_async_context(streaming(beside, tmp_path, StreamingNodes()))
                await server.awaited(HEALTHY)
                await server.awaited('leader_election_master_status{job="podslice-scheduler"} == 1')
                assert {one["metric"]["job"] for one in await server.result("up == 1")} == set(jobs)
                quiet = {"PodsliceAgentsGone"}  # no agent is a target here
                await until_firing(server, quiet)
                good = beside.certificates.certificate.read_bytes()
                beside.certificates.certificate.write_text("no certificate")
                assert await fires("PodsliceClusterCertificateNotServed") == {
                    *quiet, "PodsliceClusterCertificateNotServed"
                }  # fmt: skip
                beside.certificates.certificate.write_bytes(good)
                await until_firing(server, quiet)
                await agents.aclose()
                assert "PodsliceClusterNodesSilent" in await fires("PodsliceClusterNodeLost")
                beside.plane.stop("podslice-scheduler")
                await fires("PodsliceSchedulerDown")
                beside.process.kill()
                await fires("PodsliceClusterDown")

        asyncio.run(main())


async def until_firing(server: Prometheus, names: set[str]) -> None:
    """Until these alerts fire and no other."""
    deadline = time.monotonic() + PATIENCE
    while (found := await server.firing()) != names:
        assert time.monotonic() < deadline, f"{sorted(found)} fire, and not {sorted(names)}"
        await asyncio.sleep(0.2)
