"""`podslice cluster` as a process, with its shipped rights, between a real kube-scheduler and agents' streams."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.scheduling import PATIENCE, Pods, create_node, eventually, extender, pod, start_scheduler_named

from tests.conformance.beside import NODES, Beside, StreamingNodes, service_beside, streaming
from tests.read_documents import read_document


@pytest.fixture
def beside(programs: None, tmp_path: Path) -> Iterator[Beside]:
    with service_beside(tmp_path) as running:
        yield running


def check_page(port: int, waiting: str) -> None:
    """Check the page about a pod that waits: the scheduler's reason, counted, and a request that would do."""
    row = eventually(lambda: refused_row(port), "the service does not hear that a pod was refused")
    assert row["name"] == waiting
    assert row["reason"] == "0/2 nodes take it: 2 no NUMA node has 10 exclusive CPUs free"
    assert row["way"]["text"].startswith("Ask for 6 instead of 10 CPUs in container ")


def refused_row(port: int) -> dict[str, Any]:
    """The pod that waits as the page has it, once it knows that the scheduler found no node."""
    command = [sys.executable, "-m", "podslice", "cluster", "pending", f"--url=http://127.0.0.1:{port}", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (1, "")
    (row,) = read_document(answer.stdout, "PendingPodList")["items"]
    return dict(row) if row["state"] == "refused" else {}


def test_beside_a_scheduler(beside: Beside, tmp_path: Path) -> None:
    """Pods of 10 CPUs fill two nodes of four NUMA nodes each: eight run as they were planned, the ninth is told why it
    waits, and goes where one leaves. Told to end, the service ends well."""
    for name in NODES:
        create_node(beside.api, name, cpus=63)
    start_scheduler_named(beside.plane, "podslice", {"extenders": [extender(f"http://127.0.0.1:{beside.port}/v1")]})
    pods = Pods(beside.api)

    def scene(nodes: StreamingNodes) -> None:
        eventually(lambda: "podslice_cluster_nodes_proven 2.0" in beside.asked("/metrics"))
        assert beside.asked("/readyz") == "ok\n"
        for number in range(9):
            pods.create(pod(f"p{number}", "podslice", cpus="10"))
        eventually(lambda: len(nodes.decided) == 8 + len(NODES), "not every pod that fits was placed")
        assert all(nodes.decided.values())
        bound = [number for number in range(9) if pods.node(f"p{number}")]
        (waiting,) = set(range(9)) - set(bound)
        text = "0/2 nodes are available: 2 no NUMA node has 10 exclusive CPUs free."
        eventually(lambda: text in pods.unscheduled(f"p{waiting}").get("message", ""))
        check_page(beside.page, f"p{waiting}")
        plan = pods.get(f"p{bound[0]}")["metadata"]["annotations"]["podslice.io/plan"]
        assert "cpus" in json.loads(plan)
        pods.delete(f"p{bound[0]}")
        eventually(lambda: pods.node(f"p{waiting}"))
        eventually(lambda: 'podslice_cluster_placements_total{fate="agreed"} 9.0' in beside.asked("/metrics"))
        metrics = beside.asked("/metrics")
        for fate in ("disputed", "refused"):
            assert f'podslice_cluster_placements_total{{fate="{fate}"}} 0.0' in metrics

    async def main() -> None:
        async with streaming(beside, tmp_path, StreamingNodes()) as nodes:
            await asyncio.to_thread(scene, nodes)

    asyncio.run(main())
    beside.process.send_signal(signal.SIGTERM)
    assert beside.process.wait(PATIENCE) == 0
