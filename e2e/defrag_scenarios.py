"""Plans of moves that the agent carries out on running containers."""

from __future__ import annotations

import json
import shlex
from typing import Any

from e2e.kubelet import Running
from e2e.memory_scenarios import with_memory
from e2e.pods import MEMORY, gu, ngu, pod
from e2e.scenarios import STATIC, Json, configured, scenario
from e2e.vm import Shape
from e2e.world import PODSLICE, SOCKET, STATE, World, check
from podslice.values.cpuset import parse_bits

POLICY = {
    "apiVersion": "podslice.io/v1alpha1",
    "kind": "PodslicePolicy",
    "spec": {"resize": {"exclusive": True, "shrinkDelaySeconds": 5}, "defrag": {"carryOut": "onRequest"}},
}
FOLLOWING = {**POLICY, "spec": {"defrag": {"carryOut": "onRequest", "memory": "follow"}}}
IMPATIENT = (
    "import podslice.agent.moves.memory_moves as memory; memory.LONGEST_MIGRATION = 0.0; "
    "from podslice.entry import main; main()"
)
MOVABLE = {"podslice.io/movable": "true"}
SINGLE = {**STATIC, "topologyManagerPolicy": "single-numa-node"}
FILE = f"{STATE}/podslice_policy_state"
FOLDER, PLAN, RESULT = "/run/defrag", "/run/defrag/plan.json", "/run/defrag/result.json"


def _four_cpus_a_node(shape: Shape) -> bool:
    return all(parse_bits(cpus).bit_count() == 4 for cpus in shape.nodes)


def _defrag(world: World, *words: str, to: str = f"{FOLDER}/out") -> tuple[int, str]:
    """Exit code of the command in the guest, and all that it said; what it printed is in the file `to`."""
    command = shlex.join([*PODSLICE, "defrag", "--socket", SOCKET, *words])
    error = f"{FOLDER}/error"
    text = world.vm.call("shell", command=f"{command} > {to} 2> {error}; echo $?; cat {to} {error}")
    code, _, said = str(text).partition("\n")
    return int(code), said


def _fragment(world: World, memory: str = MEMORY) -> tuple[Running, Running]:
    """Every NUMA node has three free CPUs, so that a pod of four fits nowhere; the container that may move, and one
    that shares."""
    owners, fillers = list[Running](), []
    for number in range(len(world.nodes)):
        if number:
            annotations = MOVABLE if number == 1 else None
            owners.append(world.run(pod(f"m{number}", gu("own", 1, memory), annotations=annotations)))
        if number < len(world.nodes) - 1:
            fillers.append(world.run(pod(f"f{number}", gu("own", 3))))
    shares = world.run(pod("s", ngu("c")))
    world.remove(*fillers)
    return owners[0], shares


def _plan(world: World) -> Any:
    """A plan for a pod of four CPUs, made on the agent's own node."""
    manifest = json.dumps(pod("big", gu("own", 4)))
    world.vm.call("write", path=f"{FOLDER}/big.yaml", text=manifest)
    code, text = _defrag(world, f"{FOLDER}/big.yaml", "--agent", "-o", "json", to=PLAN)
    check(code == 0, f"no plan: {text[-400:]}")
    return json.loads(world.vm.call("read", path=PLAN))["items"][0]


@scenario("X-defrag-apply", SINGLE, where=_four_cpus_a_node, agent={"policy": POLICY})
def plan_is_carried_out(world: World) -> None:
    """A plan made on the agent's node moves a running container, containers that share make way and follow, the pending
    pod fits; a second time the plan is stale; undone, everybody is where they were."""
    moves, shares = _fragment(world)
    others = world.online & ~sum(world.kubelet.pods[uid].cpus("own") for uid in _owners(world))
    before = world.exclusive(moves, "own", 1)
    world.check_shared(shares, "c", others)
    world.refuse(pod("large", gu("own", 4)), "TopologyAffinityError")
    (move,) = _plan(world)["plan"]["moves"]
    check(move["uid"] == "uid-m1", f"the plan moves {move['name']}, which does not allow it")
    code, text = _defrag(world, "--apply", PLAN, "-o", "json", to=RESULT)
    check(code == 0, f"not carried out: {text[-400:]}")
    after = world.exclusive(moves, "own", 1)
    check(after == parse_bits(move["containers"][0]["cpusAfter"]), f"it runs on {after:b}")
    check(world.on_nodes(after) != world.on_nodes(before), "it is on the NUMA node that it was to leave")
    world.check_shared(shares, "c", others & ~after | before)
    check(world.metrics()['podslice_moves_total{result="done"}'] == 1, "the move was not counted")
    code, text = _defrag(world, "--apply", PLAN)
    check(code == 1 and "plan anew" in text, f"a stale plan was not refused: {text[-400:]}")
    large = world.run(pod("huge", gu("own", 4)))
    world.exclusive(large, "own", 4)
    code, text = _defrag(world, "--undo", RESULT)
    check(code == 1 and "plan anew" in text, f"another container is in the way, and it was undone: {text[-400:]}")
    world.remove(large)
    code, text = _defrag(world, "--undo", RESULT)
    check(code == 0, f"not undone: {text[-400:]}")
    check(world.exclusive(moves, "own", 1) == before, "it is not where it was")
    world.check_shared(shares, "c", others)
    world.restart_agent()
    world.check_shared(moves, "own", before)
    world.check_shared(shares, "c", others)


@scenario("X-defrag-killed", SINGLE, where=_four_cpus_a_node, agent={"policy": POLICY})
def agent_is_killed_during_a_move(world: World) -> None:
    """An agent that is killed while a container is about to move leaves it where it was, and the next
    one has nothing left to do."""
    moves, shares = _fragment(world)
    before = world.exclusive(moves, "own", 1)
    others = world.online & ~sum(world.kubelet.pods[uid].cpus("own") for uid in _owners(world))
    _plan(world)
    words = [*PODSLICE, "defrag", "--socket", SOCKET, "--apply", PLAN]
    world.vm.call("start", name="apply", command=words)
    begun = world.soon(lambda: '\\"move\\":true' in world.vm.call("shell", command=f"cat {FILE} || true"), True)
    check(begun, "no move began")
    world.restart_agent()
    world.check_shared(moves, "own", before)
    world.check_shared(shares, "c", others)
    left = json.loads(json.loads(world.vm.call("read", path=FILE))["data"])
    check(not left.get("intents"), f"the state still has a move: {left}")
    code, text = _defrag(world, "--apply", PLAN)
    check(code == 0, f"the plan is still good, and was not carried out: {text[-400:]}")
    check(world.exclusive(moves, "own", 1) != before, "it was not moved")


class _Filled:
    """A container's 96 MiB, and where they are."""

    def __init__(self, world: World, owner: Running) -> None:
        self._world = world
        self._folder = f"/sys/fs/cgroup{owner.process('own', 'cgroup').strip().partition('::')[2]}"
        fill = "import time; kept = bytearray(b'x') * (96 << 20); time.sleep(1000)"
        command = f"echo $$ > {self._folder}/cgroup.procs && exec {shlex.join(['python3.13', '-c', fill])}"
        world.vm.call("start", name="fill", command=["sh", "-c", command])

    def is_on(self, node: int) -> None:
        """The better part is on this NUMA node alone, or is soon."""
        found = self._world.soon(self._resident, [node])
        check(found == [node], f"its memory is on NUMA nodes {found} and not on {node} alone")

    def _resident(self) -> list[int]:
        text = self._world.vm.call("read", path=f"{self._folder}/memory.numa_stat")
        (line,) = [line for line in text.splitlines() if line.startswith("anon ")]
        amounts = [int(word.partition("=")[2]) for word in line.split()[1:]]
        found = [node for node, amount in enumerate(amounts) if amount > 8 << 20]
        return found if sum(amounts) > 96 << 20 else []


def _memory_bound(shape: Shape) -> Json:
    return with_memory(shape, topologyManagerPolicy="single-numa-node")


def _moved_with_its_memory(world: World, said: str) -> None:
    """Move there and back; `said` is the expected message of each move."""
    moves, _ = _fragment(world, "160Mi")
    filled, before = _Filled(world, moves), _node_of(world, moves)
    filled.is_on(before)
    _plan(world)
    code, text = _defrag(world, "--apply", PLAN, "-o", "json", to=RESULT)
    check(code == 0, f"not carried out: {text[-400:]}")
    (move,) = json.loads(world.vm.call("read", path=RESULT))["moves"]
    check(move.get("problem", "") == said, f"it is said: {move}")
    after = _node_of(world, moves)
    check(after != before, "it is on the NUMA node that it was to leave")
    check(moves.mems("own") == 1 << after, f"it may use memory of {moves.mems('own'):b}")
    filled.is_on(after)
    code, text = _defrag(world, "--undo", RESULT)
    check(code == 0, f"not undone: {text[-400:]}")
    check(_node_of(world, moves) == before, "it is not on the NUMA node that it came from")
    filled.is_on(before)
    world.vm.call("kill", name="fill")


@scenario("X-defrag-memory", configured(_memory_bound), where=_four_cpus_a_node, agent={"policy": FOLLOWING})
def memory_moves_along(world: World) -> None:
    """With `memory: follow` the pages of a container that moves are on its new NUMA node afterwards, and back."""
    _moved_with_its_memory(world, "")


@scenario("X-defrag-memory-late", configured(_memory_bound), where=_four_cpus_a_node, agent={"policy": FOLLOWING})
def memory_that_takes_too_long(world: World) -> None:
    """An agent that waits no time for pages says so and ends the move: the kernel shows the new NUMA node at once and
    goes on moving."""
    world.kill_agent()
    world.start_agent(program=("python3.13", "-c", IMPATIENT))
    _moved_with_its_memory(world, "the memory of container own still moves after 0 s")


def _node_of(world: World, owner: Running) -> int:
    return world.on_nodes(world.exclusive(owner, "own", 1)).bit_length() - 1


def _owners(world: World) -> list[str]:
    return [uid for uid, one in world.kubelet.pods.items() if "own" in one.containers]
