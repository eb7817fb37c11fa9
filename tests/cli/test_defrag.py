"""`podslice defrag` as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice import Node
from podslice.node.checkpoints.names import CPU_STATE_FILE
from tests.advise.defrag.nodes import pod
from tests.conftest import make_node
from tests.read_documents import read_document
from tests.shell import podslice as run

MACHINE = "pack:2 numa:1(memory=64GiB) core:8 pu:2"
NODE = (
    "--from", MACHINE, "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0",
    "--set", "topologyManagerPolicy=single-numa-node",
)  # fmt: skip
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers:
  - name: app
    resources: {{limits: {{cpu: "{cpus}", memory: 1Gi}}}}
---
"""


def _files(folder: Path, pending: int) -> tuple[str, str]:
    (folder / "running.yaml").write_text(POD.format(name="web", cpus=4) + POD.format(name="db", cpus=12))
    (folder / "big.yaml").write_text(POD.format(name="big", cpus=pending))
    return str(folder / "big.yaml"), str(folder / "running.yaml")


@pytest.mark.slow
def test_defrag_prints_a_plan(tmp_path: Path) -> None:
    """The table has a row for the container that moves, and says that no plan is shorter."""
    big, running = _files(tmp_path, 14)
    result = run("defrag", big, "--pods", running, *NODE)
    assert (result.returncode, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[2:] == [
        "default/big fits after 1 container move (proven minimal: no plan has fewer).",
        "STEP POD CONTAINER CPUS NOW CPUS THEN",
        "1 default/web app 1-2,17-18 14-15,30-31",
        "2 default/big is admitted - 1-7,17-23",
    ]


@pytest.mark.slow
def test_wide_plans_have_counts_and_numa_nodes(tmp_path: Path) -> None:
    """`-o wide` shows for every set its CPUs and NUMA nodes, of moves and of restarts."""
    big, running = _files(tmp_path, 14)
    moves = run("defrag", big, "--pods", running, *NODE, "-o", "wide").stdout.splitlines()
    assert [" ".join(line.split()) for line in moves[3:]] == [
        "STEP POD CONTAINER CPUS NOW COUNT NUMA NOW CPUS THEN COUNT NUMA THEN",
        "1 default/web app 1-2,17-18 4 NUMA 0 14-15,30-31 4 NUMA 1",
        "2 default/big is admitted - - - 1-7,17-23 14 NUMA 0",
    ]
    restarts = run("defrag", big, "--pods", running, *NODE, "--restarts", "-o", "wide").stdout
    assert "COUNT" in restarts
    assert "NUMA 1" in restarts


@pytest.mark.slow
def test_defrag_of_an_impossible_pod(tmp_path: Path) -> None:
    """A pod that no moves make room for gives exit code 1."""
    big, running = _files(tmp_path, 17)
    result = run("defrag", big, "--pods", running, *NODE)
    assert result.returncode == 1
    assert "no moves of running containers make room for it (proven)" in result.stdout


@pytest.mark.slow
def test_defrag_largest(tmp_path: Path) -> None:
    """Without a pod the answer is the largest one that fits now and after moves."""
    _, running = _files(tmp_path, 14)
    data = read_document(run("defrag", "--pods", running, *NODE, "-o", "json").stdout, "LargestPod")
    assert (data["now"], data["after"], data["proven"]) == (11, 15, True)
    assert data["plan"]["moves"][0]["containers"][0]["cpusAfter"] == "14-15,30-31"


@pytest.mark.slow
def test_defrag_by_restarts(tmp_path: Path) -> None:
    """The same question for a node without an agent: which pods end when, and where they start again."""
    big, running = _files(tmp_path, 14)
    result = run("defrag", big, "--pods", running, "--restarts", *NODE)
    assert (result.returncode, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[2:] == [
        "default/big fits after 1 pod restart (every smaller set of pods was tried).",
        "STEP POD WHAT CPUS NOW CPUS THEN",
        "1 default/web ends 1-2,17-18 -",
        "2 default/big is admitted - 1-7,17-23",
        "3 default/web starts again 1-2,17-18 14-15,30-31",
    ]
    big, _ = _files(tmp_path, 17)
    result = run("defrag", big, "--pods", running, "--restarts", "--moves", "1", *NODE)
    assert result.returncode == 1
    assert "no restarts, at most 1, make room for it" in result.stdout


@pytest.mark.slow
def test_defrag_sizes_a_pod(tmp_path: Path) -> None:
    """--largest grows the given pod, by moves and by restarts; more than one pod is refused."""
    for cpus in (1, 14):
        pending, running = _files(tmp_path, cpus)
        for mode in ([], ["--restarts"]):
            out = run("defrag", pending, "--largest", *mode, "--pods", running, *NODE, "-o", "json").stdout
            data = read_document(out, "LargestPod")
            assert (data["now"], data["after"], data["proven"]) == (11, 15, True)
    result = run("defrag", running, "--largest", *NODE)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--largest sizes one pod" in result.stderr


def test_defrag_with_fewer_moves_than_needed(tmp_path: Path) -> None:
    """--moves bounds the plan, and the answer names the bound as the reason why there is none."""
    big, running = _files(tmp_path, 14)
    result = run("defrag", big, "--moves", "0", "--pods", running, *NODE)
    assert result.returncode == 1
    assert "no moves of running containers, at most 0, make room for it (proven)" in result.stdout


@pytest.mark.slow
def test_defrag_of_several_pods(tmp_path: Path) -> None:
    """Each plan starts where the one before ended, its pod included."""
    big, running = _files(tmp_path, 14)
    (tmp_path / "more.yaml").write_text(POD.format(name="more", cpus=2))
    for mode in ([], ["--restarts"]):
        out = run("defrag", big, str(tmp_path / "more.yaml"), *mode, "--pods", running, *NODE, "-o", "json").stdout
        answers = read_document(out, "DefragmentationPlanList")["items"]
        assert [answer["plan"]["fits"] for answer in answers] == [True, False]
        assert {answer["plan"]["type"] for answer in answers} == {"restarts" if mode else "moves"}


@pytest.mark.slow
def test_defrag_of_a_state_directory(tmp_path: Path) -> None:
    """Owners in the kubelet's files move as well, and the files stay as they are."""
    node: Node = make_node(MACHINE, topology_manager_policy="single-numa-node")
    assert node.admit(pod("web", "4")).admitted
    assert node.admit(pod("db", "12")).admitted
    state = tmp_path / "state"
    state.mkdir()
    for name, data in node.files.items():
        (state / name).write_bytes(data)
    big, _ = _files(tmp_path, 14)
    result = run("defrag", big, "--state", str(state), *NODE, "-o", "yaml")
    assert result.returncode == 0, result.stderr
    assert "cpusAfter: 14-15,30-31" in result.stdout
    assert (state / CPU_STATE_FILE).read_bytes() == node.files[CPU_STATE_FILE]


def test_defrag_where_nobody_owns_cpus() -> None:
    """Without the static policy there is no largest pod, and the error has the remedy."""
    result = run("defrag", "--machine", "laptop-i5-8250u")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "no container owns CPUs (--set cpuManagerPolicy=static)" in result.stderr


def test_defrag_bad_memory() -> None:
    """A quantity that is none is one line and exit code 2."""
    result = run("defrag", "--memory", "much", *NODE)
    assert result.returncode == 2
    assert result.stderr.startswith("podslice: error: --memory: 'much' is not a quantity")
    assert result.stderr.count("\n") == 1
