"""Containers that are given whole cores and run on one thread of each (`podslice.io/smt: hide`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import KubeletConfig, Node, PodslicePolicy
from podslice.api.pod.spec import Pod
from podslice.config.policy import AnnotationRules, CPUClass, ExclusiveResize, MixedCPUs
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import parse_bits, union
from tests.agent.elastic import ELASTIC, Elastic
from tests.agent.helpers import agent_config
from tests.clock import run
from tests.node.plugins.helpers import TWO_NODES, config
from tests.node.plugins.test_classes import HYBRID, SOFT, node

CLASSES = PodslicePolicy(cpu_classes=(CPUClass("all"),))
ACROSS = {
    "cpu_manager_policy_options": {"distribute-cpus-across-cores": "true"},
    "feature_gates": {"CPUManagerPolicyAlphaOptions": True},
}


def hiding(name: str, cpu: str, value: str = "hide", **annotations: str) -> Pod:
    """A Guaranteed pod of one container with these annotations."""
    from tests.node.mixed.helpers import pod

    made = pod(name, cpu)
    annotated = {"podslice.io/smt": value, **{f"podslice.io/{key}": text for key, text in annotations.items()}}
    return replace(made, metadata=replace(made.metadata, annotations=annotated))


def plain(policy: PodslicePolicy = CLASSES, **fields: Any) -> Node:
    return Node(from_synthetic(TWO_NODES), config(**fields), policy=policy)


def test_one_thread_of_each_core() -> None:
    """It owns whole cores, in the ledgers and for PodResources, and runs on the lower thread of each; a restart,
    another pod and its end change nothing of that."""
    on = plain()
    on.admit(hiding("odd", "1", "use"))
    decision = on.admit(hiding("a", "4"))
    (container,) = decision.containers
    assert (str(container.cpus), str(container.exclusive_cpus), container.isolation) == ("4,6", "4-7", "container")
    assert on.view.hidden_siblings("a", "c0") == parse_bits("5,7")
    on.admit(hiding("b", "3", "use"))
    again = Node(from_synthetic(TWO_NODES), config(), policy=CLASSES, files=on.files)
    assert not again.readmit([pod.spec for pod in on.view.pods.values()])
    for one in (on, again):
        assert one.view.affinity("a", "c0") == parse_bits("4,6")
        assert one.kubelet.manager.cpu.affinity("a", "c0") == parse_bits("4,6")
        assert one.view.affinity("b", "c0") & parse_bits("4-7") == 0
    on.remove("a")
    assert on.shared_cpus.bits & parse_bits("4-7") == parse_bits("4-7") & ~on.view.owned


@pytest.mark.parametrize(
    ("cpu", "value", "problem"),
    [
        ("3", "hide", "is about container c0, whose 3 CPUs are not whole cores"),
        ("4", "off", '"off" is none of use, hide'),
        ("4", "c1=hide", 'names container "c1", which the pod does not have'),
        ("4", "", "has an empty item"),
    ],
)
def test_wrong(cpu: str, value: str, problem: str) -> None:
    """The pod is refused and nothing changes; without classes it is not read, and where wrong annotations are
    ignored its CPUs are as ever."""
    on = plain()
    before = on.state
    decision = on.admit(hiding("a", cpu, value))
    assert (decision.reason, decision.message) == (
        "InvalidPodsliceAnnotation",
        f'annotation "podslice.io/smt": {problem}',
    )
    assert on.state == before
    (unread,) = plain(PodslicePolicy()).admit(hiding("a", cpu, value)).containers
    assert len(unread.cpus) == int(cpu)
    lenient = plain(replace(CLASSES, annotations=AnnotationRules(invalid="ignore")))
    decision = lenient.admit(hiding("a", cpu, value))
    assert len(decision.containers[0].cpus) == int(cpu)
    assert [event.message for event in decision.events] == [f'annotation "podslice.io/smt": {problem}']


def test_cores_of_several_sizes() -> None:
    """On a hybrid machine an odd number takes an E core, which has no other thread; threads of P cores are hidden."""
    on = node(SOFT, machine=HYBRID)
    (container,) = on.admit(hiding("a", "5")).containers
    own = container.exclusive_cpus.bits
    cores = [core for core in on.topology.cores.values() if core & own]
    assert union(cores) == own
    assert own.bit_count() == 5
    assert container.cpus.bits == union(core & -core for core in cores)


def test_not_enough_whole_cores() -> None:
    """Halves of cores do not count: hints, and so the verdict, know that."""
    on = plain(topology_manager_policy="single-numa-node")
    for number in range(14):
        assert on.admit(hiding(f"o{number}", "1", "use")).admitted
    for number in range(0, 14, 2):
        on.remove(f"o{number}")
    assert str(on.admit(hiding("a", "16")).containers[0].exclusive_cpus) == "16-31"
    assert on.view.assignable.bit_count() == 7
    assert on.admit(hiding("b", "2")).reason == "TopologyAffinityError"
    assert on.admit(hiding("c", "2", "use")).admitted


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=7),
    st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    st.sampled_from([{}, {"cpu_manager_policy_options": {"full-pcpus-only": "true"}}, ACROSS]),
)
def test_siblings_stay_idle(asks: list[tuple[int, bool]], policy: str, options: dict[str, Any]) -> None:
    """A container that hides SMT owns whole cores, and none runs on the threads that it does not use; whatever the
    policy and the options."""
    on = plain(topology_manager_policy=policy, **options)
    hidden = 0
    for number, (count, hides) in enumerate(asks):
        decision = on.admit(hiding(f"p{number}", str(count), "hide" if hides else "use"))
        if not decision.admitted or not hides:
            continue
        (container,) = decision.containers
        own = container.exclusive_cpus.bits
        cores = [core for core in on.topology.cores.values() if core & own]
        assert union(cores) == own
        assert container.cpus.bits == union(core & -core for core in cores)
        hidden |= own & ~container.cpus.bits
    for active in on.view.pods.values():
        for one in active.containers:
            assert on.view.affinity(active.uid, one.name) & hidden == 0


def test_with_shared_cpus_besides() -> None:
    """Of a mixed container the own part is one thread of each core."""
    on = plain(replace(CLASSES, mixed=MixedCPUs()))
    (container,) = on.admit(hiding("a", "4500m", **{"mixed-cpus": "all"})).containers
    assert (str(container.cpus), str(container.exclusive_cpus)) == ("0-2,4,6-31", "2-5")


def test_resizes_keep_whole_cores() -> None:
    """It grows and shrinks by whole cores, or not at all."""
    on = plain(replace(CLASSES, resize=ExclusiveResize(exclusive=True, below_baseline="allow")))
    on.admit(hiding("a", "4"))
    on.admit(hiding("half", "1", "use"))
    for cpu, outcome, used in (("8", "Allocated", 4), ("7", "", 4), ("4", "Allocated", 2), ("3", "", 2)):
        decision = on.resize(hiding("a", cpu))
        assert decision.outcome == outcome or (not outcome and decision.outcome in ("Infeasible", "Deferred"))
        assert on.view.affinity("a", "c0").bit_count() == used
        own = on.view.assignment("a", "c0") or 0
        assert union(core for core in on.topology.cores.values() if core & own) == own


def test_in_the_agent(tmp_path: Path) -> None:
    """Its cgroup has one thread of each core, its environment and file name the other ones."""

    async def test() -> None:
        policy = replace(ELASTIC, cpu_classes=CLASSES.cpu_classes)
        settings_ = agent_config(reserved_system_cpus="0-1", topology_manager_policy="best-effort")
        world = Elastic(tmp_path, policy, settings_)
        world.start()
        await world.run(hiding("a", "4"))
        assert (world.owned("a", "c0"), world.cpus("a-c0")) == ("2-5", "2,4")
        told = world.environment["a-c0"]
        assert (told["PODSLICE_CPUS"], told["PODSLICE_RESERVED_SIBLINGS"]) == ("2,4", "3,5")
        file = world.container_file("a-c0")
        assert (file["cpus"], file["exclusiveCPUs"], file["reservedSiblings"]) == ("2,4", "2,4", "3,5")
        await world.settle()
        assert world.cpus("a-c0") == "2,4"
        assert not [line for line in world.owner.containers.values() if line.resized]

    run(test())


def test_a_policy_is_what_it_needs() -> None:
    """A kubelet's profile has no such annotation."""
    settings_ = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    on = Node(from_synthetic(TWO_NODES), settings_, profile="kubelet-1.36")
    (container,) = on.admit(hiding("a", "4")).containers
    assert str(container.cpus) == "2-5"
