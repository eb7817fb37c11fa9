"""Owners that have lost CPUs grow and shrink (policies-and-elasticity 9.1)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from podslice import Hotplug, KubeletConfig, Machine, Node, Pod, PodslicePolicy, without_cpus
from podslice.config.policy import ExclusiveResize
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.decide import restart
from podslice.values.cpuset import bits_of, format_bits, parse_bits
from tests.node.hotplug.test_properties import check
from tests.node.resize.helpers import guaranteed, pod

MACHINE = from_synthetic("pack:2 numa:1(memory=64GB) core:4 pu:2(indexes=pu)")
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def one(cpu: int, name: str = "a") -> Pod:
    return pod(guaranteed(str(cpu), "16Mi"), name=name)


def whole(cpu: int, own: int, name: str = "a") -> Pod:
    amounts = {"cpu": str(cpu), "memory": "64Mi"}
    return pod(guaranteed(str(own), "16Mi"), {}, name=name, pod_level={"requests": amounts, "limits": dict(amounts)})


def node(lost: str = "degrade", allow: str = "infeasible", **config: Any) -> Node:
    policy = PodslicePolicy(
        resize=ExclusiveResize(exclusive=True, below_baseline=allow),  # type: ignore[arg-type]
        hotplug=Hotplug(lost_cpus=lost),  # type: ignore[arg-type]
    )
    settings = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"} | config
    return Node(MACHINE, KubeletConfig(**settings), policy=policy, predicates=False)


def off(cpus: str, machine: Machine = MACHINE) -> Machine:
    return without_cpus(machine, parse_bits(cpus))


def sets(here: Node, name: str = "a") -> tuple[str, str]:
    """Return the CPUs of a container, and those of them that are promised."""
    cpu = here.state.cpu
    return format_bits(cpu.assignments[f"uid-{name}"]["c0"]), format_bits(cpu.promised(f"uid-{name}", "c0"))


@pytest.mark.parametrize(
    ("sizes", "gone", "then", "expected"),
    [
        pytest.param([4], "5", 6, ("2-4,6-8", "2-4,6"), id="grows"),
        pytest.param([4, 6], "5", 5, ("2-4,6-7", "2-4,6"), id="shrinks-from-what-is-online"),
        pytest.param([4, 6], "5", 4, ("2-4,6", "2-4,6"), id="to-the-promise"),
        pytest.param([4, 8], "6-9", 6, ("2-5,10-11", "2-5"), id="shrinks-and-needs-others"),
        pytest.param([4], "2-4", 5, ("5-9", "5-8"), id="one-is-left"),
        pytest.param([2, 4], "4", 3, ("2-3,5", "2-3"), id="growth-was-lost"),
    ],
)
def test_sizes(sizes: list[int], gone: str, then: int, expected: tuple[str, str]) -> None:
    """A resize goes on from the CPUs that are online, gives up the lost ones, and keeps as many promised as were."""
    here = node()
    assert here.admit(one(sizes[0])).admitted
    for size in sizes[1:]:
        assert here.resize(one(size)).outcome == "Allocated"
    here.change_machine(off(gone))
    assert here.resize(one(then)).outcome == "Allocated"
    assert sets(here) == expected
    check(here)
    here.change_machine(MACHINE)
    assert sets(here) == expected
    assert here.state.cpu.default == MACHINE.cpus.bits & ~parse_bits(expected[0])


def test_refusals() -> None:
    """A refused resize changes nothing: an owner stays degraded, and a promise holds although some of it is lost."""
    here = node()
    assert here.admit(one(4)).admitted
    assert here.admit(one(8, "b")).admitted
    here.change_machine(off("5"))
    before, files = here.state.cpu, dict(here.manager_files)
    assert here.resize(one(7)).outcome == "Deferred"
    assert here.resize(one(3)).message == "cannot take exclusive CPUs below the 4 promised at admission (2-5)"
    assert (here.state.cpu, dict(here.manager_files)) == (before, files)
    assert here.resize(one(4)).outcome == "Unchanged"
    assert sets(here) == ("2-5", "2-5")


def test_pod_cpus() -> None:
    """A pod with CPUs as a whole goes on from what is online of them, its slices too."""
    here = node(
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    assert here.admit(whole(8, 4)).admitted
    here.change_machine(off("5,9"))
    assert here.resize(whole(10, 4)).outcome == "Allocated"
    cpu = here.state.cpu
    assert format_bits(cpu.pod_cpus["uid-a"]) == "2-4,8,10-15"
    assert (cpu.pod_cpus["uid-a"] & cpu.offline, cpu.promised_to_pod("uid-a").bit_count()) == (0, 8)
    assert cpu.assignments["uid-a"]["c0"].bit_count() == cpu.promised("uid-a", "c0").bit_count() == 4
    check(here)


OPTIONS = ({}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-cores": "true"},
           {"distribute-cpus-across-numa": "true"}, {"strict-cpu-reservation": "true"})  # fmt: skip


@pytest.mark.parametrize("seed", range(80))
def test_lives(seed: int) -> None:
    """However sizes and machine change, each CPU is one owner's, who was resized has as many as it asked for, all
    online at that moment, as many are promised as were, and growth keeps what is online."""
    random = Random(seed)
    scope = random.choice(["container", "pod"])
    options = random.choice(OPTIONS)
    gates = {"PodLevelResourceManagers": True, "CPUManagerPolicyAlphaOptions": True}
    here = node(
        random.choice(["degrade", "replace"]),
        topology_manager_scope=scope,
        topology_manager_policy=random.choice(POLICIES),
        cpu_manager_policy_options=options,
        feature_gates=gates,
    )
    make = whole if scope == "pod" and random.random() < 0.6 else lambda cpu, own, name: one(own, name)
    for step in range(25):
        action, name = random.random(), random.choice("ab")
        uid = f"uid-{name}"
        own = random.randrange(1, 8)
        desired = make(own + random.randrange(1, 4), own, name)
        if uid not in here.state.pods:
            here.admit(desired)
        elif action < 0.5:
            check_resize(here, desired)
        elif action < 0.85:
            count = random.randrange(0, 10)
            gone = bits_of(random.sample(range(1, 16), count))
            here.change_machine(without_cpus(MACHINE, gone))
        elif action < 0.92:
            here = Node.of(here.rules, restart(here.rules, here.state, machine=here.machine).state)
        else:
            here.remove(uid)
        check(here)
        assert step >= 0


def check_resize(here: Node, desired: Pod) -> None:
    before, uid = here.state.cpu, desired.metadata.uid
    was = here.state.pods[uid]
    had = before.assignments[uid].get("c0", 0)
    decision = here.resize(desired)
    outcome = decision.outcome
    after, now = here.state.cpu, here.state.pods[uid]
    if outcome != "Allocated":
        assert after == before or any(other.outcome == "Allocated" for other in decision.others)
        return
    if any(other.outcome == "Allocated" for other in decision.others):
        return
    got = after.assignments[uid].get("c0", 0)
    changed = now.containers[0].exclusive_cpus != was.containers[0].exclusive_cpus
    if changed or (uid in before.pod_cpus and before.pod_cpus[uid].bit_count() != now.cpus):
        assert not got & after.offline
        assert after.promised(uid, "c0").bit_count() == before.promised(uid, "c0").bit_count()
        online = had & ~before.offline
        small = got if got.bit_count() < online.bit_count() else online
        assert small & ~(online if small is got else got) == 0
    assert got.bit_count() == now.containers[0].exclusive_cpus


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_owners_over_two_nodes_are_where_they_are(scope: str) -> None:
    """An owner on both NUMA nodes that has lost CPUs of one is admitted again where its others are, also by a policy
    that would find no place for what it once had."""
    here = node(topology_manager_policy="restricted", topology_manager_scope=scope)
    assert here.admit(one(10)).admitted
    for gone in ("9", "2-3", "8-15"):
        here.change_machine(off(gone))
        before = here.state.cpu.assignments
        assert here.admit(one(10)).admitted, gone
        assert here.state.cpu.assignments == before
        here.change_machine(MACHINE)
