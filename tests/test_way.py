"""CONTRIBUTING's tables of the tree are true: every room is in them, and a pod takes the way they tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.flows import GOALS, Walk, agent_walks, decision, restart, walked

import podslice
from podslice.config.kubelet import KubeletConfig
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "podslice"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: database, uid: database}
spec:
  containers:
    - {name: postgres, image: postgres, resources: {limits: {cpu: "4", memory: 1Gi}}}
"""
WALKED = (
    "a file becomes a pod",
    "the API server's defaults",
    "what it stores, refuses and warns about",
    "a machine becomes a CPU topology",
    "a configuration becomes managers",
    "the admission pipeline, and the only code that changes what a node holds",
    "who may own CPUs, and how many",
    "hints: which NUMA nodes would do",
    "merge: one affinity and a verdict",
    "allocation: which CPUs exactly",
    "what the kubelet checks besides; scheduler, quota, eviction, autoscalers",
    "state, and its files",
    "what becomes of it: cgroup files, OOM scores, the sandbox",
)


def tables() -> list[dict[str, set[str]]]:
    """For each table of CONTRIBUTING the files of its rows, by the text of the row."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text[text.index("## How the tree maps") : text.index("What the agent does when the runtime calls")]
    found: list[dict[str, set[str]]] = []
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|---"):
            found.append({})
        elif line.startswith("|") and cells[0] not in ("step", "question"):
            found[-1][cells[0]] = set(_files(cells[1]))
    return found


def _files(cell: str) -> Iterator[str]:
    folder = Path()
    for name in re.findall(r"`([\w/.*]+)`", cell):
        if not (name.endswith(".py") or (SOURCE / name).is_dir()):
            continue
        base = SOURCE if "/" in name or not list((SOURCE / folder).glob(name)) else SOURCE / folder
        matches = list(base.glob(name))
        assert matches, f"CONTRIBUTING names {name}, which does not exist"
        folder = Path(name).parent if "/" in name else folder
        for path in matches:
            inside = path.rglob("*.py") if path.is_dir() else [path]
            yield from (str(file.relative_to(SOURCE)) for file in inside)


def walk(folder: Path) -> Walk:
    """One pod from its file to its cgroups."""
    path = folder / "pod.yaml"
    path.write_text(POD)
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy="single-numa-node",
        reserved_system_cpus="0",
        eviction_hard={},
    )

    def flow() -> None:
        (loaded,) = podslice.load_pods(str(path))
        node = Node(from_synthetic("pack:2 numa:1(memory=64GiB) core:4 pu:2"), config)
        assert node.admit(loaded.pod).admitted
        assert node.files
        assert node.effects("database").containers

    flow()
    return walked(flow)


def test_every_file_has_a_room() -> None:
    """Every module of the source belongs to a row of the tables."""
    listed = {file for table in tables() for files in table.values() for file in files}
    modules = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if not path.stem.startswith("__")}
    assert modules - listed == set()


def test_a_pod_takes_the_way_of_the_table(tmp_path: Path) -> None:
    """A pod that is read, admitted and written enters the rooms of the first table, in its order, and besides only
    those that the second one names for everybody."""
    way, around = tables()
    steps = walk(tmp_path)
    rooms = [row for row in way if steps_of(steps, way[row])]
    assert set(rooms) == set(WALKED)
    served = {file for row in list(around)[:5] for file in around[row]}
    assert set(steps.files) - set().union(*way.values()) - served == set()


def steps_of(steps: Walk, files: set[str]) -> list[int]:
    """When the files of a room were entered first."""
    return [index for index, file in enumerate(steps.files) if file in files]


def test_rooms_come_in_order(tmp_path: Path) -> None:
    """What a row hands on is there when the next one needs it: no room of the spine is entered for the last time
    after the next one is."""
    way, _ = tables()
    steps = walk(tmp_path)
    spine = [
        "a file becomes a pod",
        "the API server's defaults",
        "a machine becomes a CPU topology",
        "who may own CPUs, and how many",
        "hints: which NUMA nodes would do",
        "what becomes of it: cgroup files, OOM scores, the sandbox",
    ]
    last = [max(steps_of(steps, way[row])) for row in spine]
    assert last == sorted(last)
    assert list(way).index(spine[-1]) == len(way) - 1


@pytest.mark.parametrize(("flow", "most"), [(decision, 22), (restart, 39)])
def test_nobody_wanders(flow: Callable[[], Callable[[], object]], most: int) -> None:
    """A decision and a restart enter no more files than they did; `benchmarks.flows` has the goals."""
    flow()()
    assert len(walked(flow()).files) <= most


def test_a_sandbox_is_a_short_way(tmp_path: Path) -> None:
    """What an agent does when a sandbox comes stays within the goal."""
    sandboxed = agent_walks(tmp_path)["RunPodSandbox → answer"]
    assert len(sandboxed.files) <= GOALS["RunPodSandbox → answer"]
