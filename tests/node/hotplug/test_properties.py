"""Random lives on machines whose CPUs, memory and NUMA nodes come and go."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from podslice import Machine, Node, PodslicePolicy, StartError
from podslice.config.policy import ExclusiveResize, Hotplug
from podslice.machine.delta import machine_delta, without_cpus
from podslice.machine.model import NUMANode
from podslice.values.cpuset import Bits, bits_of, iter_bits, union
from tests.advise.explain.random_nodes import random_config, random_machine, random_pod


def random_hotplug(random: Random) -> Hotplug:
    return Hotplug(
        new_cpus=random.choice(["share", "share", "ignore"]),
        lost_cpus=random.choice(["degrade", "replace", "drain"]),
        memory=random.choice(["track", "track", "fixed"]),
    )


def random_node(random: Random, hotplug: Hotplug) -> Node | None:
    policy = PodslicePolicy(resize=ExclusiveResize(exclusive=random.random() < 0.3), hotplug=hotplug)
    try:
        return Node(random_machine(random), random_config(random), predicates=random.random() < 0.5, policy=policy)
    except StartError:
        return None


def changed(random: Random, machine: Machine) -> Machine:
    """Return the machine with some CPUs offline, and now and then other amounts of memory or a NUMA node less."""
    gone = bits_of(random.sample(sorted(machine.cpus), random.randrange(len(machine.cpus))))
    if random.random() < 0.4:
        gone = bits_of([random.choice(sorted(machine.cpus))])
    machine = without_cpus(machine, gone)
    if random.random() < 0.3:
        machine = replace(machine, nodes=tuple(_other_memory(random, node) for node in machine.nodes))
    bare = [node for node in machine.nodes if not node.cores]
    if bare and random.random() < 0.5:
        machine = replace(machine, nodes=tuple(node for node in machine.nodes if node is not bare[0]))
    return machine


def _other_memory(random: Random, node: NUMANode) -> NUMANode:
    return replace(node, memory=max(0, node.memory + random.choice([0, -(4 << 30), -(1 << 30), 1 << 30])))


def effective(node: Node) -> dict[tuple[str, str], Bits]:
    """Return the CPUs on which each container with own CPUs, or its pod's, runs."""
    view = node.view
    found = {}
    for uid, pod in view.pods.items():
        for container in pod.containers:
            got = view.container(pod, container)
            if got.isolation != "host":
                found[uid, container.name] = got.cpus
    return found


def check(node: Node) -> None:
    """No container runs on a CPU of another owner, on one that is offline, or on one that is reserved for the
    system."""
    cpu, online = node.state.cpu, node.topology.all_cpus
    sets = effective(node)
    own: dict[str, Bits] = {}
    for (uid, name), cpus in sets.items():
        assert cpus
        assert not cpus & (~online | cpu.default)
        assert not cpus & node.reserved_cpus.bits
        assert not cpus & ~(union(cpu.assignments[uid].values()) | cpu.pod_cpus.get(uid, 0)), name
        own[uid] = own.get(uid, 0) | cpus
    assert sum(map(int.bit_count, own.values())) == union(own.values()).bit_count()
    assert not cpu.default & ~online
    held = [cpu.of_pod(uid).cpus for uid in node.state.pods]
    assert sum(map(int.bit_count, held)) == union(held).bit_count()
    assert not union(held) & cpu.default
    known = online | cpu.offline
    strict = node.view.cpu_options.strict_cpu_reservation
    hidden = node.reserved_cpus.bits if strict else 0
    assert (union(held) | cpu.default | cpu.offline | hidden) & known == known
    for uid, pod in node.state.pods.items():
        for one in pod.containers:
            if one.exclusive_cpus and not pod.ignored:
                assert (cpu.assignment(uid, one.name) or 0).bit_count() == one.exclusive_cpus


def check_memory(node: Node) -> None:
    """Check that the tables add up, and that holdings which the ledgers lack are known."""
    memory = node.state.memory
    for state in memory.machine_state.values():
        for table in (state.memory_map or {}).values():
            assert table.reserved + table.free == table.allocatable
            assert min(table.reserved, table.free) >= 0


@pytest.mark.parametrize("seed", range(60))
def test_lives(seed: int) -> None:
    """After any deltas each CPU has one owner, no container runs outside what is assigned, reserved CPUs stay the
    system's, and every owner's size is what it was admitted with."""
    random = Random(seed)
    node = random_node(random, random_hotplug(random))
    if node is None:
        return
    whole = node.machine
    for step in range(25):
        action = random.random()
        if action < 0.5:
            node.admit(random_pod(random, f"p{step}", gpus=False))
        elif action < 0.65 and node.pods:
            node.remove(random.choice(node.pods))
        elif action < 0.9:
            node.change_machine(changed(random, whole))
        else:
            node.change_machine(whole)
        check(node)
        check_memory(node)


@pytest.mark.parametrize("seed", range(60))
def test_there_and_back(seed: int) -> None:
    """Under `degrade`, CPUs and memory that go and come back restore the state byte for byte, as long as every owner
    keeps a CPU."""
    random = Random(seed)
    node = random_node(random, Hotplug(lost_cpus=random.choice(["degrade", "drain"])))
    if node is None:
        return
    for step in range(8):
        node.admit(random_pod(random, f"p{step}", gpus=False))
    before, files, whole = node.state, dict(node.files), node.machine
    online = whole.cpus.bits
    for _ in range(4):
        gone = 0
        for cpu in random.sample(list(iter_bits(online)), random.randrange(1, 6)):
            sets = [named for sets in before.cpu.assignments.values() for named in sets.values()]
            if all(cpus & ~(gone | 1 << cpu) for cpus in (*sets, online & ~node.reserved_cpus.bits)):
                gone |= 1 << cpu
        node.change_machine(without_cpus(whole, gone))
        check(node)
    node.change_machine(whole)
    assert node.state.cpu == before.cpu
    assert node.state.memory == before.memory
    assert dict(node.files) == files


def test_nothing_changes_nothing() -> None:
    """A delta of nothing has no consequence and no other state."""
    random = Random(1)
    node = random_node(random, Hotplug())
    assert node is not None
    node.admit(random_pod(random, "p", gpus=False))
    before = node.state
    assert node.change_machine(node.machine) == ()
    assert node.state == before
    assert not machine_delta(node.machine, node.machine)
