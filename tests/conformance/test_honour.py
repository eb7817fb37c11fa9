"""Plans beside a real kube-scheduler: nodes that honour them give exactly what was planned, or say that they do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from e2e.hollow_nodes import node_rules
from e2e.scheduling import PATIENCE, Pods, create_node, eventually, extender, pod, start_scheduler_named

from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.values.cpuset import format_bits
from tests.conformance.beside import Beside, StreamingNodes, service_beside, streaming

ONE = "pack:1 numa:1(memory=64GiB) core:4 pu:2(indexes=pu)"
"""Four cores of two threads, CPU n beside n + 1; CPU 0 is reserved."""
Scene = Callable[[StreamingNodes, Pods], Awaitable[None]]


def playing(folder: Path, like: Node, scene: Scene, *, honours: bool) -> str:
    """One node, the service and kube-scheduler; what the service counted at the end."""

    async def main(beside: Beside) -> str:
        nodes = StreamingNodes(("n0",), like=like, honours=honours)
        async with streaming(beside, folder, nodes):
            proven = "podslice_cluster_nodes_proven 1.0"
            await asyncio.to_thread(eventually, lambda: proven in beside.asked("/metrics"))
            await scene(nodes, Pods(beside.api))
            empty = "podslice_cluster_holds 0.0"
            await asyncio.to_thread(eventually, lambda: empty in beside.asked("/metrics"), "something is still held")
            return beside.asked("/metrics")

    plan = "honour" if honours else "compare"
    with service_beside(folder, f"--plan={plan}") as beside:
        create_node(beside.api, "n0", cpus=len(like.assignable_cpus))
        start_scheduler_named(beside.plane, "podslice", {"extenders": [extender(f"http://127.0.0.1:{beside.port}/v1")]})
        return asyncio.run(main(beside))


async def bound(nodes: StreamingNodes, pods: Pods, **cpus: str) -> dict[str, str]:
    """Pods of so many CPUs are created one after the other and bound, and wait; their plans by name."""
    found = {}
    for name, count in cpus.items():
        await asyncio.to_thread(pods.create, pod(name, "podslice", cpus=count))
        await asyncio.to_thread(eventually, lambda name=name: pods.node(name), f"{name} is not bound")
        found[name] = json.loads(pods.get(name)["metadata"]["annotations"]["podslice.io/plan"])["cpus"]
    await soon(lambda: nodes.waiting.keys() >= cpus.keys() and planned(nodes, *cpus))
    return found


async def soon(look: Callable[[], bool]) -> None:
    """Until it is so, while the nodes hear and tell."""
    async with asyncio.timeout(PATIENCE):
        while not look():
            await asyncio.sleep(0.05)


def owners(nodes: StreamingNodes) -> int:
    """How many pods have CPUs of their own."""
    return len(nodes.nodes["n0"].state.cpu.assignments)


def planned(nodes: StreamingNodes, *names: str) -> bool:
    """Their plans have come down the stream."""
    return all(nodes.waiting[name].uid in nodes.journals["n0"]._plans for name in names)


async def got(nodes: StreamingNodes, pods: Pods, *names: str) -> dict[str, str]:
    """Return the CPUs that pods have on the node."""
    uids = {name: (await asyncio.to_thread(pods.get, name))["metadata"]["uid"] for name in names}
    return {name: format_bits(nodes.cpus(uid)) for name, uid in uids.items()}


def alone(like: Node, nodes: StreamingNodes, *names: str) -> dict[str, str]:
    """Return the CPUs that pods would get, in this order, on a node that decides by itself."""
    node = Node.of(like.rules, like.state)
    for name in names:
        assert node.admit(nodes.waiting[name].pod).admitted
    owned = node.state.cpu.assignments
    return {name: format_bits(owned[nodes.waiting[name].uid]["c"]) for name in names}


def test_exactly_what_was_planned(programs: None, tmp_path: Path) -> None:
    """Two pods start in the other order than they were bound in. Deciding alone the node would give them other CPUs;
    with `honour` each gets those of its plan, the model agrees, and nothing is disputed."""
    like = node_rules()

    async def scene(nodes: StreamingNodes, pods: Pods) -> None:
        nodes.waits = True
        plans = await bound(nodes, pods, first="4", second="6")
        assert alone(like, nodes, "first", "second") == plans
        assert alone(like, nodes, "second", "first") != plans
        nodes.start("second", "first")
        assert await got(nodes, pods, "first", "second") == plans
        assert nodes.journals["n0"].binding_outcomes == {"honoured": 1, "agreed": 1}

    text = playing(tmp_path, like, scene, honours=True)
    for fate, count in (("honoured", 1), ("agreed", 1), ("disputed", 0), ("refused", 0)):
        assert f'placements_total{{fate="{fate}"}} {count}.0' in text


def test_compare_leaves_it_to_the_node(programs: None, tmp_path: Path) -> None:
    """The same two pods on a node that decides by itself: it takes its own order's CPUs, says that they differ from the
    plans, and the service, which knows what the node would do alone, disputes nothing."""
    like = node_rules()

    async def scene(nodes: StreamingNodes, pods: Pods) -> None:
        nodes.waits = True
        plans = await bound(nodes, pods, first="4", second="6")
        expected = alone(like, nodes, "second", "first")
        nodes.start("second", "first")
        assert await got(nodes, pods, "first", "second") == expected != plans
        assert nodes.journals["n0"].binding_outcomes == {"differs": 2}

    text = playing(tmp_path, like, scene, honours=False)
    assert 'placements_total{fate="agreed"} 2.0' in text


def test_a_worse_plan_is_declined(programs: None, tmp_path: Path) -> None:
    """A pod is planned on halves of two cores, the only CPUs that are free. Before it starts another pod leaves, and a
    whole core is free: the node takes that instead, says so, and the model follows it."""
    like = node_rules(from_synthetic(ONE))

    async def scene(nodes: StreamingNodes, pods: Pods) -> None:
        for number in range(7):
            await asyncio.to_thread(pods.create, pod(f"p{number}", "podslice", cpus="1"))
            await asyncio.to_thread(eventually, lambda number=number: pods.node(f"p{number}"))
        await soon(lambda: owners(nodes) == 7)
        cpus = await got(nodes, pods, *(f"p{number}" for number in range(7)))
        of = {text: name for name, text in cpus.items()}
        for cpu in ("2", "4"):
            await asyncio.to_thread(pods.delete, of[cpu])
        nodes.waits = True
        assert await bound(nodes, pods, wide="2") == {"wide": "2,4"}
        await asyncio.to_thread(pods.delete, of["3"])
        await soon(lambda: owners(nodes) == 4)
        nodes.start("wide")
        assert await got(nodes, pods, "wide") == {"wide": "2-3"}
        assert nodes.journals["n0"].binding_outcomes["declined"] == 1

    text = playing(tmp_path, like, scene, honours=True)
    assert 'placements_total{fate="disputed"} 0.0' in text
    assert 'placements_total{fate="agreed"} 8.0' in text
