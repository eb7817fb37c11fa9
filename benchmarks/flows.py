"""Amount of code that a reader follows: files and definitions that each flow enters. `python -m benchmarks.flows`
prints a table."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import podslice
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node

SOURCE = Path(podslice.__file__).parent
_ALIGNED = "pack:2 numa:4(memory=64GiB) core:4 pu:2"
_EXAMPLE = Path(__file__).parents[1] / "examples" / "pods.yaml"
GOALS = {"RunPodSandbox → answer": 40, "pod → decision": 28, "restart: files and 3 pods → node": 35}
"""Files at most."""


class Walk(NamedTuple):
    """Files below `src/podslice` in the order in which they were entered first, distinct definitions, calls, and how
    often a call went from one file to another."""

    files: tuple[str, ...]
    definitions: int
    calls: int
    moves: int


class Steps:
    """The files and definitions entered so far."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.definitions: set[CodeType] = set()
        self.calls = 0
        self.moves = 0

    def enter(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name.startswith("<"):
            return
        path = Path(code.co_filename)
        if not path.is_relative_to(SOURCE):
            return
        self.files[str(path.relative_to(SOURCE))] = None
        self.definitions.add(code)
        self.calls += 1
        self.moves += frame.f_back is not None and frame.f_back.f_code.co_filename != code.co_filename

    @property
    def walk(self) -> Walk:
        return Walk(tuple(self.files), len(self.definitions), self.calls, self.moves)


@contextmanager
def walking() -> Iterator[Steps]:
    """Trace what runs in this thread inside the block."""
    steps = Steps()
    before = sys.getprofile()
    sys.setprofile(steps.enter)
    try:
        yield steps
    finally:
        sys.setprofile(before)


def measure_walk(flow: Callable[[], Any]) -> Walk:
    with walking() as steps:
        flow()
    return steps.walk


def make_aligned_node() -> Node:
    """8 NUMA nodes, static CPU Manager, single-numa-node."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy="single-numa-node",
        reserved_system_cpus="0",
        eviction_hard={},
    )
    return Node(from_synthetic(_ALIGNED), config)


def pod(uid: str, cpus: int) -> Pod:
    """A Guaranteed pod of one container."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return pod_from_dict({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}})


def decision() -> Callable[[], Any]:
    node, one = make_aligned_node(), pod("a", 4)
    return lambda: node.admit(one)


def state_files() -> Callable[[], Any]:
    node = make_aligned_node()
    node.admit(pod("a", 4))
    return lambda: node.files


def restart() -> Callable[[], Any]:
    node, pods = make_aligned_node(), [pod(uid, 4) for uid in "abc"]
    for one in pods:
        node.admit(one)
    files, machine, config = dict(node.files), node.kubelet.machine, node.kubelet.config

    def run() -> None:
        assert Node(machine, config, files=files).readmit(pods) == []

    return run


def refuse_pod() -> Callable[[], Any]:
    node, large = make_aligned_node(), pod("large", 12)
    return lambda: podslice.explain(node, large)


def reading() -> Callable[[], Any]:
    return lambda: podslice.load_pods(str(_EXAMPLE))


FLOWS: dict[str, Callable[[], Callable[[], Any]]] = {
    "YAML → pods": reading,
    "pod → decision": decision,
    "decision → state files": state_files,
    "refused pod → verified fixes": refuse_pod,
    "restart: files and 3 pods → node": restart,
}


def agent_walks(folder: Path) -> dict[str, Walk]:
    """Measure the agent's flows when the runtime calls, the fake runtime included."""
    from tests.agent.helpers import World, in_world

    found: dict[str, Walk] = {}

    async def calls(world: World) -> None:
        for uid in ("warm", "measured"):
            world.source.add(pod(uid, 2))
            with walking() as sandboxed:
                sandbox = await world.fake.run_pod(uid)
            with walking() as created:
                await world.fake.create_container(sandbox, "c", start=False)
            await asyncio.sleep(0)
            found["RunPodSandbox → answer"] = sandboxed.walk
            found["CreateContainer → answer"] = created.walk

    in_world(folder, calls)
    return found


def measure_flows() -> dict[str, Walk]:
    """Measure all flows. Each has run once before, so that no import counts."""
    found = {}
    for name, prepare in FLOWS.items():
        prepare()()
        found[name] = measure_walk(prepare())
    with tempfile.TemporaryDirectory() as folder:
        return found | agent_walks(Path(folder))


def main() -> None:
    print(f"{'flow':34} {'files':>6} {'goal':>6} {'definitions':>12} {'calls':>8} {'moves':>8}")
    for name, walk in measure_flows().items():
        goal = GOALS.get(name, "")
        print(f"{name:34} {len(walk.files):6} {goal:>6} {walk.definitions:12} {walk.calls:8} {walk.moves:8}")
    if "--files" in sys.argv:
        for name, walk in measure_flows().items():
            print(f"\n{name}:\n  " + "\n  ".join(walk.files))


if __name__ == "__main__":
    main()
