"""Random nodes, the planner's plans, and an agent that carries them out or is killed on the way."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice.advise.defrag.moves import MoveRequest, undo_request
from podslice.advise.defrag.plan import Plan, apply_move, defragment
from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import Pod
from podslice.config.policy import Defragmentation, ExclusiveResize, PodslicePolicy
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.values.cpuset import format_bits
from tests import clock
from tests.agent.elastic import Elastic, kill_at
from tests.agent.helpers import pod_level
from tests.agent.kernel import KilledError
from tests.conftest import make_pod

MACHINE = "pack:2 numa:1(memory=64GB) core:4 pu:2"
POLICY = PodslicePolicy(
    resize=ExclusiveResize(exclusive=True),
    defrag=Defragmentation(carry_out="onRequest", movable="all", max_moves_per_hour=1000),
)


def drawn(choose: random.Random, uid: str) -> Pod:
    """A pod with CPUs of its own, or a budget that its containers share, or none."""
    kind = choose.random()
    if kind < 0.2:
        return make_pod(uid, ("app", None))
    if kind < 0.4:
        return make_pod(uid, ("own", "1"), ("rest", None), budget=str(choose.randint(2, 4)))
    if kind < 0.6:
        return make_pod(uid, ("app", str(choose.randint(1, 2))), ("side", "1"))
    return make_pod(uid, ("app", str(choose.randint(1, 4))))


async def fragmented(world: Elastic, choose: random.Random) -> None:
    """Pods came, and some went."""
    came = []
    for number in range(12):
        uid = f"p{number}"
        try:
            await world.run(drawn(choose, uid))
            came.append(uid)
        except RPCError:
            world.plugin.stop_pod(world.pods[f"s-{uid}"])
            world.gone(uid)
    for uid in choose.sample(came, len(came) // 3):
        world.plugin.stop_pod(world.pods[f"s-{uid}"])
        world.gone(uid)
    await world.settle()


def wished(world: Elastic, choose: random.Random) -> tuple[Pod, Plan] | None:
    """A pod that does not fit, and a plan that makes room for it."""
    for cpus in choose.sample(range(2, 8), 6):
        pod = make_pod("big", ("app", str(cpus)))
        plan = defragment(world.node, pod, limit=150)
        if plan.fits and plan.moves:
            return pod, plan
    return None


def promise(node: Node, plan: Plan) -> str:
    """The digest of the state that a plan leads to."""
    before = node.state
    for move in plan.moves:
        apply_move(node, move)
    found = digest(node.state).named
    node.state = before
    return found


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("seed", range(12))
def test_plans_end_as_promised_and_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, scope: str
) -> None:
    """Plan, carry out: who has what is what the plan promised, and everybody runs on it; undo: it is what it was. A
    kill on the way leaves each container where it was or where it was to go, and another plan is made from there. At
    the end the pod is admitted on the CPUs of the last plan. No CPU is ever effective for two."""
    choose = random.Random(f"{seed} {scope}")
    config = pod_level(reserved_system_cpus="0")
    config = replace(config, topology_manager_policy="single-numa-node", topology_manager_scope=scope)
    world = Elastic(tmp_path, POLICY, config, machine=MACHINE)
    carried = list[int]()

    async def killed(plan: Plan) -> None:
        """The process ends in the middle of it."""
        before = {uid: dict(sets) for uid, sets in world.view.owners.items()}
        with monkeypatch.context() as now:
            kill_at(world, now, choose.randint(0, 40))
            with contextlib.suppress(KilledError):
                await world.moving.carry_out(MoveRequest(world.digest, plan.moves))
        world.start()
        await world.settle()
        world.agrees()
        there = {(move.uid, one.name): one.cpus_after.bits for move in plan.moves for one in move.containers}
        for uid, sets in world.view.owners.items():
            for name, cpus in sets.items():
                assert cpus in (before[uid][name], there.get((uid, name))), (uid, name, format_bits(cpus))

    async def main() -> None:
        world.start()
        await fragmented(world, choose)
        for _ in range(3):
            if (wish := wished(world, choose)) is None:
                continue
            _, plan = wish
            start, promised = world.digest, promise(world.node, plan)
            result = await world.moving.carry_out(MoveRequest(start, plan.moves))
            assert (result.problem, world.digest, result.state_after) == ("", promised, promised)
            await world.settle()
            world.agrees()
            back = await world.moving.carry_out(undo_request(result))
            assert (back.problem, world.digest) == ("", start)
            await world.settle()
            world.agrees()
            await killed(plan)
            carried.append(len(plan.moves))
        if (wish := wished(world, choose)) is not None:
            pod, plan = wish
            assert (await world.moving.carry_out(MoveRequest(world.digest, plan.moves))).problem == ""
            await world.run(pod)
            assert world.owned("big") == str(plan.placed)
            await world.settle()
            world.agrees()
        assert world.notes.failures == []

    clock.run(main())
    SEEN.append(sum(carried))


SEEN: list[int] = []


@pytest.mark.slow
def test_the_lives_have_moves_in_them() -> None:
    """A node on which nothing can be moved shows nothing; many of those above are not like that."""
    # A process that runs few of them, beside others, has too few to judge by.
    assert len(SEEN) < 12 or sum(map(bool, SEEN)) >= len(SEEN) // 3
