"""CONTRIBUTING's tables of the tree are true: every room is in them, and a pod takes the way they describe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.flows import Walk, decision, measure_walk, restart

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
EVERYWHERE = ("values/", "node/node.py", "node/kubelet.py", "node/context.py", "api/pod/names.py")
"""Values, the face of a node and what all managers share are entered at every step."""


def table(heading: str) -> dict[str, list[str]]:
    """The files and folders of each row of a table of CONTRIBUTING, by the text of its other cell."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text[text.index(f"## {heading}") :].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][1:]
    return {row[0]: re.findall(r"`([\w/.]+)`", row[1]) for row in rows}


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
    return measure_walk(flow)


def is_in(file: str, places: list[str]) -> bool:
    """Whether a file is one of these places, or below one."""
    return any(file == place or file.startswith(f"{place}/") for place in places)


def test_every_room_is_in_the_table() -> None:
    """Every package below `podslice` is named once, and no other."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text[text.index("## Rooms") :].split("\n## ")[0]
    rows = [line.split(" | ")[0] for line in part.splitlines() if line.startswith("| `")]
    named = re.findall(r"`(\w+)`", " ".join(rows))
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert sorted(named) == sorted(rooms)


def test_named_files_exist() -> None:
    """A file or folder that the way names is there."""
    for places in table("The way of a pod").values():
        assert [place for place in places if not (SOURCE / place).exists()] == []


def test_a_pod_takes_the_way_of_the_table(tmp_path: Path) -> None:
    """A pod that is read, admitted and written enters every step of the table, in its order, and nothing besides."""
    way = table("The way of a pod")
    files = walk(tmp_path).files
    first = [min((at for at, file in enumerate(files) if is_in(file, places)), default=-1) for places in way.values()]
    assert -1 not in first
    assert first[:4] == sorted(first[:4])
    assert first[-1] == max(first)
    known = [place for places in way.values() for place in places]
    assert [file for file in files if not is_in(file, known) and not file.startswith(EVERYWHERE)] == []


@pytest.mark.parametrize(("flow", "most"), [(decision, 22), (restart, 39)])
def test_nobody_wanders(flow: Callable[[], Callable[[], object]], most: int) -> None:
    """A decision and a restart enter no more files than they did; `benchmarks.flows` has the goals."""
    flow()()
    assert len(measure_walk(flow()).files) <= most
