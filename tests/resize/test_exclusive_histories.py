"""Random lives of pods with exclusive CPUs that grow and shrink."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from podslice import InputError, Node, Pod, StartError
from podslice.core.config.policy import ExclusiveResize, PodslicePolicy
from podslice.core.pod.spec import ResourceRequirements, map_containers
from podslice.core.state.model import CPUState
from podslice.core.values.cpuset import union
from podslice.core.values.quantity import Quantity
from tests.explain.random_nodes import random_config, random_machine, random_pod

SIZES = ["1", "2", "2", "3", "4", "4", "5", "6", "8", "10", "500m", "2500m"]

BUDGETS = ["4", "5", "6", "6", "8", "8", "10", "12", "7500m"]


def random_node(random: Random) -> Node | None:
    resize = ExclusiveResize(
        exclusive=True,
        below_baseline=random.choice(["infeasible", "allow"]),
        eligibility_change=random.choice(["infeasible", "allow"]),
        misfit=random.choice(["deferred", "deferred", "infeasible"]),
    )
    config = random_config(random)
    try:
        return Node(
            random_machine(random), config, predicates=random.random() < 0.5, policy=PodslicePolicy(resize=resize)
        )
    except StartError:
        return None


def other_sizes(random: Random, pod: Pod) -> Pod:
    """The pod with other amounts of CPU, requests still equal to limits where they were."""

    def change(container: Any) -> Any:
        requests, limits = container.resources.requests, container.resources.limits
        if not requests or random.random() < 0.3 or requests != limits:
            return container
        amounts = requests | {"cpu": Quantity.parse(random.choice(SIZES))}
        return replace(container, resources=ResourceRequirements(amounts, amounts))

    spec = map_containers(pod.spec, change)
    if spec.resources is not None and random.random() < 0.7:
        amounts = (spec.resources.requests or {}) | {"cpu": Quantity.parse(random.choice(BUDGETS))}
        spec = replace(spec, resources=ResourceRequirements(amounts, amounts))
    kept = tuple(
        new if new.restart_policy == "Always" else old
        for new, old in zip(spec.init_containers, pod.spec.init_containers, strict=True)
    )
    return replace(pod, spec=replace(spec, init_containers=kept))


def check(node: Node) -> None:
    """Every CPU has one owner or is shared; each container has its size; what was promised is held."""
    cpu = node.state.cpu
    owned = 0
    for uid, pod in node.state.pods.items():
        sets = cpu.assignments.get(uid, {})
        bubble = cpu.bubbles.get(uid)
        long_lived = [
            sets[one.name] for one in pod.containers if one.name in sets and one.exclusive_cpus and not one.plain_init
        ]
        assert sum(map(int.bit_count, long_lived)) == union(long_lived).bit_count()
        own = union(sets.values()) if bubble is None else bubble
        assert not owned & own
        owned |= own
        if bubble is not None:
            assert bubble.bit_count() == pod.cpus
            assert union(sets.values()) & ~bubble == 0
            assert cpu.promised_bubble(uid) & ~bubble == 0
        for one in pod.containers:
            if not pod.ignored and (one.exclusive_cpus or bubble is None):
                assert (cpu.assignment(uid, one.name) or 0).bit_count() == one.exclusive_cpus
            elif bubble is not None and not one.init:
                assert cpu.assignment(uid, one.name) == bubble & ~union(long_lived)
            assert cpu.promised(uid, one.name) & ~(cpu.assignment(uid, one.name) or 0) == 0
    assert cpu.default & owned == 0
    strict = node.kubelet.manager.cpu.options.strict_cpu_reservation
    assert cpu.default | owned == node.topology.all_cpus & ~(node.reserved_cpus.bits if strict else 0)


@pytest.mark.parametrize("seed", range(40))
def test_lives(seed: int) -> None:
    """After any history each CPU has one owner, a refused resize changed nothing, growth kept every CPU, a shrink took
    none from elsewhere, and what was promised stays unless the policy allows."""
    random = Random(seed)
    node = random_node(random)
    if node is None:
        return
    for step in range(40):
        action = random.random()
        if action < 0.35 or not node.pods:
            node.admit(random_pod(random, f"p{step}", gpus=False))
        elif action < 0.45:
            node.remove(random.choice(node.pods))
        elif action < 0.55:
            node.retry_resizes()
        else:
            uid = random.choice(node.pods)
            before, files = node.state.cpu, node.files
            desired = other_sizes(random, node.state.pods[uid].spec)
            try:
                decision = node.resize(desired)
            except InputError:
                continue
            granted = decision.outcome == "Allocated" or any(one.outcome == "Allocated" for one in decision.others)
            if not granted:
                assert node.files == files
                assert node.state.cpu == before
            elif decision.outcome == "Allocated":
                compare(node, uid, before)
        check(node)
    for uid in node.pods:
        node.remove(uid)
    assert (node.state.cpu.loans, node.state.cpu.bubble_loans) == ({}, {})
    assert node.state.cpu.assignments == {}


def compare(node: Node, uid: str, before: CPUState) -> None:
    """What grew has all it had, what shrank has nothing new; the pod's shared pool may do both."""
    now, bubble = node.state.cpu, before.bubbles.get(uid)
    if bubble is not None:
        assert now.bubbles[uid] & bubble in (now.bubbles[uid], bubble)
    pools = bubble is not None
    for one in node.state.pods[uid].containers:
        had, has = before.assignment(uid, one.name) or 0, now.assignment(uid, one.name) or 0
        if not one.plain_init and not pools:
            assert had & has in (had, has)
