"""A pod with a CPU class and a mixed pod in every room: each room says what the node itself decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice import KubeletConfig, Node, Pod, PodslicePolicy, lint
from podslice.advise.defrag.plan import apply_move, defragment
from podslice.advise.explain.explain import explain
from podslice.advise.whatif.compare import ClassCPUs, Scenario, evaluate
from podslice.advise.whatif.table import classes_text
from podslice.cluster.model.model import ClusterModel
from podslice.config.policy import ClassMatch, CPUClass, Defragmentation, ExclusiveResize, MixedCPUs
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import format_bits, parse_bits
from tests.agent.elastic import Elastic
from tests.audit.test_audit import UID, FakeHost
from tests.clock import run
from tests.node.mixed.helpers import TWO_NODES, owns, pod, runs_on

POLICY = PodslicePolicy(
    resize=ExclusiveResize(exclusive=True),
    defrag=Defragmentation(movable="all"),
    cpu_classes=(
        CPUClass("slow", ClassMatch(cpus="16-31"), exclusive="onRequest"),
        CPUClass("fast", min_shared=2, overflow=("slow",)),
    ),
    mixed=MixedCPUs(near="numa"),
)
CONFIG = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0-1", topology_manager_policy="best-effort", eviction_hard={}
)
MACHINE = from_synthetic(TWO_NODES)


def node() -> Node:
    """CPUs 0-15 are fast, 16-31 slow."""
    return Node(MACHINE, CONFIG, policy=POLICY)


def classy(name: str = "classy", cpus: str = "4", cpu_class: str = "slow!") -> Pod:
    return asking(pod(name, cpus), "cpu-class", cpu_class)


def both(name: str = "both", cpus: str = "5500m", cpu_class: str = "slow!") -> Pod:
    """Mixed, and of a class."""
    return asking(pod(name, cpus, asks="all"), "cpu-class", cpu_class)


def asking(of: Pod, key: str, value: str) -> Pod:
    annotations = {**(of.metadata.annotations or {}), f"podslice.io/{key}": value}
    return replace(of, metadata=replace(of.metadata, annotations=annotations))


PODS = (classy(), both(), classy("plain", "2", "fast"))


def admitted() -> Node:
    """The node with all of them, as a kubelet would decide; the owners are known."""
    made = node()
    assert all(made.admit(one).admitted for one in PODS)
    return made


def test_on_the_node() -> None:
    """Each in its class; the mixed one shares what is shared of its class and node."""
    made = admitted()
    assert [owns(made, one.metadata.uid) for one in PODS] == ["16-19", "20-24", "2-3"]
    assert [runs_on(made, one.metadata.uid) for one in PODS] == ["16-19", "20-31", "2-3"]


def test_whatif_and_lint() -> None:
    """whatif says what is left of each class, and lint what would be refused on an empty node, by class."""
    outcome = evaluate(Scenario("s", MACHINE, CONFIG, policy=POLICY), PODS)
    assert (outcome.admitted, outcome.exclusive_cpus) == (3, 11)
    assert outcome.classes == (ClassCPUs("slow", 16, 9, 7), ClassCPUs("fast", 16, 2, 12))
    assert classes_text([outcome]).splitlines()[1].split() == ["s", "slow", "16", "9", "7"]
    assert classes_text([evaluate(Scenario("s", MACHINE, CONFIG), PODS)]) == ""
    for one in PODS:
        found = lint(one, config=CONFIG, machine=MACHINE, policy=POLICY)
        assert not [finding for finding in found if finding.severity == "error"], one.metadata.name
    (refused,) = (
        one for one in lint(classy(cpus="18"), config=CONFIG, machine=MACHINE, policy=POLICY) if one.id == "PS501"
    )
    assert (
        "not enough exclusive CPUs of class slow: requested 18, free 16 (of 16); fast is not requested"
        in refused.message
    )


@pytest.mark.parametrize("last", PODS, ids=lambda one: one.metadata.name)
def test_explain(last: Pod) -> None:
    """explain decides as the node and leaves it as it is; of a refused one it says which class is full."""
    made = node()
    for one in PODS:
        if one is not last:
            made.admit(one)
    trace = explain(made, last).trace
    assert trace.code == ""
    picked = [pick.cpus for pick in trace.picks]
    assert made.admit(last).admitted
    assert [str(one) for one in picked] == [owns(made, last.metadata.uid)]
    refused = explain(made, classy("more", "15")).trace
    assert (refused.code, refused.reason) == ("cpu-class-full", "CPUClassUnavailable")


def test_defrag() -> None:
    """Of all that could move only the mixed container may leave the class that is wanted; its own part moves, and its
    shared part stays that of its class, of which its new place has none."""
    made = Node(MACHINE, replace(CONFIG, topology_manager_policy="single-numa-node"), policy=POLICY)
    for one in (both("m", cpu_class="fast"), classy("x", "5", "fast!"), classy("y", "3", "slow!")):
        assert made.admit(one).admitted
    more = classy("more", "5", "fast!")
    assert not made.admit(more).admitted
    plan = defragment(made, more)
    assert [(move.name, str(move.containers[0].cpus_after)) for move in plan.moves] == [("m", "19-23")]
    apply_move(made, plan.moves[0])
    assert made.admit(more).admitted
    assert (owns(made, "m"), runs_on(made, "m"), owns(made, "more")) == ("19-23", "0-1,12-15,19-23", "2-6")


def test_cluster() -> None:
    """Filter, choice and plan of the model are what the node decides, and what is full is refused by class."""
    made, model = node(), ClusterModel()
    model.add_node("n0", made.rules, made.state)
    for now, one in enumerate(PODS):
        assert model.filter(one, ["n0"], now).nodes == ["n0"]
        assert model.choose(one, now) == "n0"
        verdict = model.bind(one.metadata.uid, "n0", now)
        assert verdict.plan is not None
        assert made.admit(one).admitted
        assert verdict.plan.cpus == made.view.owned_by(one.metadata.uid)
        assert model.apply_admission("n0", one.metadata.uid, made.state, now).kind == "agreed"
    full = model.filter(classy("more", "8"), ["n0"], 9.0)
    assert full.nodes == []


def test_fleet() -> None:
    """A simulated node of a fleet gives the same CPUs, and refuses what its classes lack."""
    pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")
    from podslice.fleet.engine.nodes import FleetClass
    from podslice.fleet.engine.options import CellOptions
    from podslice.fleet.engine.run import run_cell
    from podslice.fleet.engine.workload import Workload
    from tests.fleet.fleets import fleet_of, shape_of_pod

    made = node()
    amounts = made.rules.counted.node.amounts
    assert amounts is not None
    kind = FleetClass(name="a", rules=made.rules, state=made.state, allocatable=dict(amounts), gpus=0)
    shapes = [shape_of_pod(one) for one in (*PODS, classy("more", "8"))]
    workload = Workload.of(shapes, [0, 1, 2, 3], [0, 1000, 2000, 3000], [-1] * 4)
    for memory in (0, 1 << 30):
        result = run_cell(fleet_of(1, kind), workload, CellOptions(cpus=True, memory=memory, verify=1), 1)
        assert [format_bits(cpus) for cpus in result.pods.cpus] == ["16-19", "20-24", "2-3", ""]


def test_audit(tmp_path: Path) -> None:
    """Containers that run as decided have no findings; a mixed container on CPUs of others has."""
    host = FakeHost(tmp_path)
    made = node()
    mixed = replace(both(), metadata=replace(both().metadata, uid=UID, name="app"))
    renamed = replace(mixed, spec=replace(mixed.spec, containers=[replace(mixed.spec.containers[0], name="app")]))
    assert made.admit(renamed).admitted
    for name, data in made.files.items():
        (tmp_path / "state" / name).write_bytes(data)
    host.tree.add(host.app, procs="100\n", cpuset_cpus="16-31", cpu_max="max 100000")
    host.process(100, "app", "16-31", host.app)
    host.tree.add(host.web, procs="200\n", cpuset_cpus="0-15")
    host.process(200, "web", "0-15", host.web)
    assert (owns(made, UID, "app"), runs_on(made, UID, "app")) == ("16-20", "16-31")
    code, report = host.audit()
    assert (code, report["findings"]) == (0, [])
    host.tree.add(host.web, cpuset_cpus="0-20")
    code, report = host.audit()
    assert (code, {one["kind"] for one in report["findings"]}) == (1, {"intruder"})


def test_agent(tmp_path: Path) -> None:
    """The agent runs them on what the node gives, and a resize grows each within its class."""

    async def test() -> None:
        world = Elastic(tmp_path, POLICY, CONFIG)
        world.start()
        for one in PODS:
            await world.run(one)
        assert [world.owned(one.metadata.uid, "c0") for one in PODS] == ["16-19", "20-24", "2-3"]
        assert [world.cpus(f"{one.metadata.uid}-c0") for one in PODS] == ["16-19", "20-31", "2-3"]
        assert world.container_file("both-c0")["class"] == world.container_file("classy-c0")["class"] == "slow"
        for one, milli in ((classy(cpus="6"), 6000), (both(cpus="7500m"), 7500)):
            world.source.add(one)
            await world.update(f"{one.metadata.uid}-c0", milli)
            await world.settle()
        await asyncio.sleep(1)
        slow = parse_bits("16-31")
        owned = [parse_bits(world.owned(uid, "c0")) for uid in ("classy", "both")]
        assert [one.bit_count() for one in owned] == [6, 7]
        assert not (owned[0] | owned[1]) & ~slow
        assert not owned[0] & owned[1]
        assert world.cpus("both-c0") == format_bits(slow & ~owned[0])
        world.agrees()

    run(test())
