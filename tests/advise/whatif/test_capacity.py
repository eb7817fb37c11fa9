"""`whatif --how-many`: a number, and the computed constraint that ends it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from click.testing import CliRunner

from podslice import KubeletConfig, Node
from podslice.advise.whatif.capacity import add_capacity, count_fitting
from podslice.advise.whatif.command import whatif
from podslice.advise.whatif.compare import Scenario, evaluate
from podslice.advise.whatif.table import matrix
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod
from tests.read_documents import read_document

MACHINE = from_synthetic("pack:2 numa:1(memory=32GB) core:4 pu:2(indexes=pu)")
STRICT = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0-1", topology_manager_policy="single-numa-node"
)


def test_the_number_and_the_constraint() -> None:
    """6 and 8 CPUs in two NUMA nodes take three pods of 4 CPUs; the fourth lacks 2 on NUMA node 0."""
    capacity = count_fitting(Node(MACHINE, STRICT), [make_pod("p", ("c", "4"))])
    assert (capacity.pods, capacity.rounds, capacity.whole) == (3, 3, True)
    assert (capacity.refused, capacity.reason) == ("default/p-4", "TopologyAffinityError")
    assert capacity.why[0] == "NUMA node 0 is short of 2 CPUs: container c needs 4, and 2 are free."


def test_one_more_is_refused_and_one_less_is_not() -> None:
    """The node that took so many refuses the next copy, whatever the policy."""
    for policy in ("none", "best-effort", "restricted", "single-numa-node"):
        for cpus in (1, 2, 3, 5, 7):
            config = msgspec.structs.replace(STRICT, topology_manager_policy=policy)
            node = Node(MACHINE, config)
            capacity = count_fitting(node, [make_pod("p", ("c", str(cpus)))])
            assert capacity.pods == len(node.pods)
            assert not node.try_admit(make_pod("more", ("c", str(cpus)))).admitted
            assert capacity.why


def test_several_pods_come_in_rounds() -> None:
    """Whole rounds are counted, and the pods of the one that is not whole."""
    capacity = count_fitting(Node(MACHINE, STRICT), [make_pod("big", ("c", "5")), make_pod("small", ("c", "1"))])
    assert (capacity.pods, capacity.rounds, capacity.refused) == (4, 2, "default/big-3")


def test_running_pods_count_before() -> None:
    """What runs takes its CPUs first."""
    scenario = Scenario("s", MACHINE, STRICT, running=(make_pod("old", ("c", "8")),))
    pods = [make_pod("p", ("c", "4"))]
    outcome = add_capacity(evaluate(scenario, pods), scenario, pods)
    assert outcome.capacity is not None
    assert outcome.capacity.pods == 1
    broken = msgspec.structs.replace(scenario, config=KubeletConfig(cpu_manager_policy="static"))
    assert add_capacity(evaluate(broken, pods), broken, pods).capacity is None


def test_pods_without_requests_end_at_the_number_of_pods() -> None:
    """What needs nothing is limited by maxPods; without predicates by nothing, and the number says so."""
    idle = [make_pod("idle")]
    capacity = count_fitting(Node(MACHINE, STRICT), idle)
    assert (capacity.pods, capacity.reason) == (110, "OutOfpods")


def test_command(tmp_path: Path) -> None:
    """The answer is the first line; several configurations compare in a column."""
    pods = tmp_path / "pods.yaml"
    pods.write_text("""{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [
      {name: c, resources: {limits: {cpu: 4, memory: 16Mi}}}]}}""")
    words = [str(pods), "--how-many", "--from", "pack:2 numa:1(memory=32GB) core:4 pu:2(indexes=pu)", "--set",
             "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0-1"]  # fmt: skip
    one = CliRunner().invoke(whatif, [*words, "--set", "topologyManagerPolicy=single-numa-node"])
    assert one.exit_code == 0
    answer = [line for line in one.output.splitlines() if line and not line.startswith("Machine: ")]
    assert answer[0].endswith("3 such pods (default/a) fit.")
    assert "NUMA node 0 is short of 2 CPUs" in one.output
    document = read_document(CliRunner().invoke(whatif, [*words, "-o", "json"]).output, "Comparison")
    assert document["scenarios"][0]["capacity"]["pods"] == 3
    several = CliRunner().invoke(whatif, [*words, "--recommend"]).output
    assert "FIT" in several


def test_the_column() -> None:
    """`FIT` is there only where it was asked for."""
    pods = [make_pod("p", ("c", "4"))]
    scenario = Scenario("s", MACHINE, STRICT)
    outcome = evaluate(scenario, pods)
    assert "FIT" not in matrix([outcome]).text
    assert "FIT" in matrix([add_capacity(outcome, scenario, pods)]).text
