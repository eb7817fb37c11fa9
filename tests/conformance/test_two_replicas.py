"""Two replicas of the second scheduler, each a real kube-scheduler beside `podslice cluster`: the leader goes in the
middle of everything, and nobody notices but in time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from e2e.controlplane import Json
from e2e.scheduling import PATIENCE, SOON, Pods, create_node, eventually, pod

from podslice.values.cpuset import format_bits
from tests.conformance.beside import Beside, StreamingNodes, process_beside, service_beside, streaming
from tests.conformance.deployed import apply, manifests, token_of

NODES = tuple(f"n{number}" for number in range(6))
LEASE = "/apis/coordination.k8s.io/v1/namespaces/podslice/leases/podslice-scheduler"
LEADS = "Successfully acquired lease"
TAKEOVER = 4 * PATIENCE
"""Seconds in which a lease is over and the next one leads, on a busy machine."""


class Pair:
    """One replica: the scheduler in the shipped configuration and with its shipped rights, the service beside it."""

    def __init__(self, name: str, beside: Beside) -> None:
        self.name, self.beside = name, beside

    def start(self) -> None:
        (config,) = (one for one in manifests() if one["kind"] == "ConfigMap" and "scheduler.yaml" in one["data"])
        shipped: Json = yaml.safe_load(config["data"]["scheduler.yaml"])
        (extender,) = shipped["extenders"]
        extender |= {"urlPrefix": f"http://127.0.0.1:{self.beside.port}/v1", "httpTimeout": "10s"}
        told = {key: shipped[key] for key in ("leaderElection", "percentageOfNodesToScore", "profiles", "extenders")}
        token = token_of(self.beside.api, "podslice-scheduler")
        self.beside.plane.start_scheduler(SOON | told, "--v=2", name=self.name, token=token)

    @property
    def leads(self) -> bool:
        return LEADS in self.beside.plane.log(self.name)

    def kill(self) -> None:
        """The node under it goes: both programs at once, without a word."""
        self.beside.plane.stop(self.name)
        self.beside.process.kill()
        self.beside.process.wait()

    def counts(self, series: str) -> int:
        found = re.search(rf"^podslice_cluster_{re.escape(series)} (\S+)$", self.beside.asked("/metrics"), re.MULTILINE)
        return int(float(found[1])) if found else -1


@pytest.fixture
def first(programs: None, tmp_path: Path) -> Iterator[Beside]:
    with service_beside(tmp_path) as running:
        for document in manifests():
            if document["kind"] == "RoleBinding":
                assert apply(running.api, document).code in (200, 201)
        for name in NODES:
            create_node(running.api, name, cpus=63)
        yield running


def test_the_leader_is_killed(first: Beside, tmp_path: Path) -> None:
    """The leader is killed twice while pods come: the other replica, which has the whole model, takes over; the one
    that was killed first comes back knowing nothing and takes over from that. Every pod runs, no node refuses one, no
    CPU has two owners, and in the end nothing is held and every digest is the node's."""
    pods = Pods(first.api)

    def load(part: int) -> None:
        for number in range(12):
            pods.create(pod(f"p{part}-{number}", "podslice", cpus=str((4, 10, 6)[number % 3])))

    def running(nodes: StreamingNodes, count: int) -> None:
        eventually(lambda: len(nodes.decided) >= len(NODES) + count, f"fewer than {count} pods run", TAKEOVER)

    def scene(nodes: StreamingNodes, one: Pair, other: Pair, stack: ExitStack) -> Pair:
        one.start()
        eventually(lambda: one.leads, "nobody leads")
        other.start()
        for pair in (one, other):
            eventually(lambda pair=pair: pair.counts("nodes_proven") == len(NODES), "a node is not proven")
        load(0)
        running(nodes, 4)
        one.kill()
        load(1)
        running(nodes, 24)
        assert other.leads
        again = stack.enter_context(
            process_beside(first.plane, first.api, first.certificates, tmp_path / "again", port=first.port)
        )
        back = Pair("back", again)
        back.start()
        eventually(lambda: back.counts("nodes_proven") == len(NODES), "a node is not proven")
        load(2)
        running(nodes, 28)
        other.kill()
        load(3)
        running(nodes, 48)
        eventually(lambda: back.counts("holds") == 0, "something is still held")
        eventually(lambda: back.counts("nodes_proven") == len(NODES), "digests do not meet")
        return back

    async def main() -> None:
        with ExitStack() as stack:
            second = stack.enter_context(
                process_beside(first.plane, first.api, first.certificates, tmp_path / "second")
            )
            one, other = Pair("one", first), Pair("other", second)
            async with streaming(first, tmp_path, StreamingNodes(NODES), second) as nodes:
                last = await asyncio.to_thread(scene, nodes, one, other, stack)
                assert all(nodes.decided.values()), nodes.decided
                assert not doubly_owned(nodes)
                assert [last.counts(f'placements_total{{fate="{fate}"}}') for fate in ("disputed", "refused")] == [0, 0]
                assert last.leads

    asyncio.run(main())
    assert first.api.call("GET", LEASE)["spec"]["leaseTransitions"] >= 2


def doubly_owned(nodes: StreamingNodes) -> list[str]:
    """CPUs of nodes with more than one owner."""
    found = []
    for name, node in nodes.nodes.items():
        seen = twice = 0
        for containers in node.state.cpu.assignments.values():
            for cpus in containers.values():
                twice |= seen & cpus
                seen |= cpus
        if twice:
            found.append(f"{name}: {format_bits(twice)}")
    return found
