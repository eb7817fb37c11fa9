"""Resizes, and machines that change, together with what else a policy can say."""

from __future__ import annotations

from msgspec.structs import replace

from podslice import ExclusiveResize, Hotplug, KubeletConfig, Node, Pod, PodslicePolicy, without_cpus
from podslice.config.policy import TopologyRules
from podslice.node.plugins.api import CPUAsk, CPUNode
from podslice.values.cpuset import Bits, format_bits, parse_bits
from tests.node.mixed import helpers as mixed
from tests.node.plugins import test_classes as classes
from tests.node.plugins.helpers import Base, own
from tests.node.resize.helpers import guaranteed, pod
from tests.node.resize.test_exclusive import MACHINE, held, one

GROWS = PodslicePolicy(resize=ExclusiveResize(exclusive=True), hotplug=Hotplug())
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")


def test_classes_of_a_machine_that_changes() -> None:
    """Classes are worked out again for the CPUs that are there; who has some keeps them, and grows in the classes of
    its admission. Those that come back are of their class again."""
    here = classes.node(classes.STRICT, policy=GROWS)
    assert classes.cpus(here, classes.pod("a", "4")) == "2-5"
    whole = here.rules.machine
    here.change_machine(without_cpus(whole, parse_bits("8-15,20-23")))
    assert class_members(here) == {"performance": "0-7", "efficiency": "16-19"}
    outcomes = [here.resize(classes.pod("a", size)).outcome for size in ("8", "6")]
    assert outcomes == ["Infeasible", "Allocated"]
    here.change_machine(whole)
    assert class_members(here) == {"performance": "0-15", "efficiency": "16-23"}
    assert here.resize(classes.pod("a", "8")).outcome == "Allocated"
    assert format_bits(here.view.assignment("default.a", "c") or 0) == "2-9"


def class_members(of: Node) -> dict[str, str]:
    found = of.view.cpu_classes
    assert found is not None
    return {name: format_bits(cpus) for name, cpus in found.cpus.items()}


def test_the_shared_part_of_a_mixed_container_shrinks_with_the_machine() -> None:
    """CPUs that go leave the shared part at once and come back to it; its own ones are those of an owner."""
    here = mixed.node(policy=GROWS)
    assert here.admit(mixed.pod("p", "5500m", asks="5")).admitted
    whole = here.rules.machine
    here.change_machine(without_cpus(whole, parse_bits("6,10-31")))
    assert (mixed.owns(here, "p"), mixed.runs_on(here, "p")) == ("2-6", "0-5,7-9")
    here.change_machine(whole)
    assert (mixed.owns(here, "p"), mixed.runs_on(here, "p")) == ("2-6", "0-31")


def test_plugins_hear_of_a_resize() -> None:
    """A filter is asked with the operation and the CPUs that stay in any case, and its word counts for what comes."""
    asks: list[tuple[str, str, int]] = []

    class Hearing(Base):
        def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
            asks.append((ask.operation, format_bits(ask.anchor), ask.count))
            return cpus & ~parse_bits("6-9")

    here = own(Hearing(), feature_gates={"InPlacePodVerticalScalingExclusiveCPUs": True})
    assert here.admit(one("4")).admitted
    assert {*asks} == {("admit", "", 4)}
    asks.clear()
    assert here.resize(one("6")).outcome == "Allocated"
    assert {*asks} == {("resize", "2-5", 6)}
    assert held(here) == "2-5,10-11"


def test_scores_count_for_growth_only() -> None:
    """Under scored best-effort a growth stays near what it has, whatever NUMA node scores best by itself; giving back
    asks no manager."""
    scored = replace(GROWS, topology=TopologyRules(best_effort="scored"))
    here = Node(MACHINE, replace(CONFIG, topology_manager_policy="best-effort"), policy=scored)
    assert here.admit(one("4")).admitted
    assert here.admit(one("8", name="o")).admitted
    assert here.resize(one("10")).outcome == "Allocated"
    assert held(here) == "2-5,14-19"
    assert here.resize(one("6")).outcome == "Allocated"
    assert held(here) == "2-5,14-15"


def test_an_init_container_that_has_ended() -> None:
    """It is resized in the ledgers only: the CPUs that it lent are those of who holds them now, who keeps them and what
    was promised."""
    here = Node(MACHINE, CONFIG, policy=GROWS)
    assert here.admit(with_init("4", "4")).admitted
    assert here.state.cpu.assignments == {"uid-p": {"i0": parse_bits("2-5"), "c0": parse_bits("2-5")}}
    assert here.resize(with_init("6", "4")).outcome == "Allocated"
    assert (held(here, container="i0"), held(here)) == ("2-7", "2-5")
    assert here.resize(with_init("4", "4")).outcome == "Allocated"
    assert (held(here, container="i0"), held(here)) == ("2-5", "2-5")
    assert here.resize(with_init("4", "6")).outcome == "Allocated"
    assert (held(here, container="i0"), held(here)) == ("2-5", "2-7")
    assert here.state.cpu.promised("uid-p", "c0") == parse_bits("2-5")


def with_init(init: str, app: str) -> Pod:
    return pod(guaranteed(app, "1Gi"), init=[{"name": "i0", "image": "busybox", **guaranteed(init, "1Gi")}])


def test_scores_on_a_machine_that_changes() -> None:
    """A NUMA node whose CPUs have gone is never the best choice any more, whatever it scored."""
    scored = PodslicePolicy(hotplug=Hotplug(), topology=TopologyRules(best_effort="scored"))
    here = Node(MACHINE, replace(CONFIG, topology_manager_policy="best-effort"), policy=scored)
    there = here.copy()
    assert there.admit(one("8", name="o")).admitted
    taken = parse_bits(held(there, "uid-o"))
    here.change_machine(without_cpus(MACHINE, taken))
    assert here.admit(one("8", name="o")).admitted
    assert not parse_bits(held(here, "uid-o")) & taken
