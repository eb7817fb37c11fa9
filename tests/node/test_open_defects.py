"""Open defects of v1.36.2 that users reported: what the reporter's kubelet does, and what profile podslice does."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.config.policy import ClassMatch, CPUClass, PodslicePolicy
from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.picker import Picker
from podslice.node.node import Node
from podslice.node.rules import CPURules
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.quirks import KUBELET_1_36, PODSLICE, PROFILES
from tests.conftest import make_node, make_pod

BOTH = pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
FOUR_EACH = "pack:2 numa:1(memory=16GiB) core:4 pu:1(indexes=pu)"
"""CPUs 0-3 on NUMA node 0 and 4-7 on node 1, no SMT."""
TWO_CORES = "pack:1 numa:1(memory=16GiB) core:2 pu:2"
"""CPUs 0 and 2 are a core, 1 and 3 the other."""
FOUR_NODES = "pack:4 numa:1(memory=16GiB) core:4 pu:2(indexes=pu)"
"""NUMA nodes 0-7, 8-15, 16-23 and 24-31."""


def cpus_of(node: Node, uid: str, container: str = "app") -> str:
    return format_bits(node.view.owners[uid].get(container, 0))


def refusal(node: Node, *pods: Any) -> str:
    """The reason of the last pod; the ones before it are admitted."""
    for pod in pods[:-1]:
        assert node.admit(pod).admitted
    decision = node.admit(pods[-1])
    return "" if decision.admitted else f"{decision.reason}: {decision.message}"


# Kubernetes 132187: reserved CPUs in the narrowest set


@pytest.mark.parametrize("policy", ["restricted", "best-effort"])
@BOTH
def test_reserved_cpus_are_not_counted_in_the_narrowest_set(profile: str, policy: str) -> None:
    """Each NUMA node has four CPUs, one of them reserved: no node ever has four for a container, so two are the fewest;
    a kubelet counts the reserved ones and finds that one would do."""
    node = make_node(FOUR_EACH, profile, reserved_system_cpus="0,4", topology_manager_policy=policy)
    refused = refusal(node, make_pod("four", ("app", "4")))
    if profile == "kubelet-1.36" and policy == "restricted":
        assert refused.startswith("TopologyAffinityError")
    else:
        assert refused == ""
        assert cpus_of(node, "four") == "1-3,5"


@BOTH
def test_three_still_belong_on_one_node(profile: str) -> None:
    """What fits one NUMA node beside its reserved CPU is not spread, and is refused where no node has it free."""
    node = make_node(FOUR_EACH, profile, reserved_system_cpus="0,4")
    pods = [make_pod(name, ("app", count)) for name, count in (("a", "1"), ("b", "3"), ("c", "3"))]
    assert refusal(node, *pods).startswith("TopologyAffinityError")
    assert cpus_of(node, "b") == "5-7"


@pytest.mark.parametrize(
    ("machine", "reserved", "whole", "count", "podslice", "kubelet"),
    [
        (FOUR_EACH, "0,4", False, 4, 2, 1),
        (FOUR_EACH, "0,4", False, 3, 1, 1),
        (FOUR_EACH, "0", False, 4, 1, 1),
        (FOUR_EACH, "0-3", False, 5, 2, 2),
        (FOUR_EACH, "0,4", False, 8, 2, 2),
        ("numa:2 core:4 pu:2(indexes=pu)", "0,8", False, 7, 1, 1),
        ("numa:2 core:4 pu:2(indexes=pu)", "0,8", True, 8, 2, 1),
        ("numa:2 core:4 pu:2(indexes=pu)", "0,2,8,10", True, 6, 2, 1),
        ("numa:2 core:4 pu:2(indexes=pu)", "0,2,8,10", False, 6, 1, 1),
    ],
)
def test_fewest_numa_nodes(machine: str, reserved: str, whole: bool, count: int, podslice: int, kubelet: int) -> None:
    """The fewest NUMA nodes count CPUs that a container can own; of whole cores those without a reserved CPU."""
    topology = CPUTopology(from_synthetic(machine))
    options = CPUPolicyOptions(full_pcpus_only=whole)
    for quirks, expected in ((PODSLICE, podslice), (KUBELET_1_36, kubelet)):
        rules = CPURules.of(topology, "static", options=options, reserved=0, pod_level=False, quirks=quirks)
        assert rules.with_reserved(parse_bits(reserved)).fewest_numa_nodes(count) == expected


# Siblings of reserved CPUs under full-pcpus-only


@pytest.mark.parametrize("policy", ["best-effort", "none", "restricted", "single-numa-node"])
@BOTH
def test_siblings_of_reserved_cpus_are_no_cores(profile: str, policy: str) -> None:
    """CPUs 0 and 2 are reserved, 1 and 3 are halves of cores: with full-pcpus-only nobody gets them, though a kubelet
    takes the two for a core where it prefers their NUMA node."""
    node = make_node(
        "pack:1 numa:2(memory=64GB) core:4 pu:2(indexes=pu)",
        profile,
        reserved_system_cpus="0,2",
        topology_manager_policy=policy,
        cpu_manager_policy_options={"full-pcpus-only": "true"},
    )
    for uid, count in (("a", "2"), ("b", "4"), ("c", "2"), ("d", "4")):
        node.admit(make_pod(uid, ("app", count)))
    owned = parse_bits("1,3") & node.view.owned
    if profile == "podslice":
        assert not owned
    elif policy != "none":
        assert owned == parse_bits("1,3")


# Kubernetes 139430: distribution over fewer NUMA nodes than the merge chose

EVEN = CPUPolicyOptions(distribute_cpus_across_numa=True)
EVEN_CORES = CPUPolicyOptions(distribute_cpus_across_numa=True, full_pcpus_only=True)


@pytest.mark.parametrize(
    ("free", "count", "affinity", "options", "podslice", "kubelet"),
    [
        ("0-31", 16, 0b1111, EVEN, "0-3,8-11,16-19,24-27", "0-15"),
        ("0-31", 16, 0b1110, EVEN, "8-13,16-20,24-28", "8-23"),
        ("0-31", 16, None, EVEN, "0-15", "0-15"),
        ("0-31", 3, 0b1111, EVEN, "0,8,16", "0-2"),
        ("0-1,8-31", 16, 0b1111, EVEN, "0-1,8-11,16-20,24-28", "8-23"),
        ("8-31", 12, 0b1111, EVEN, "8-11,16-19,24-27", "8-13,16-21"),
        ("0-31", 16, 0b1111, EVEN_CORES, "0-3,8-11,16-19,24-27", "0-15"),
        ("0-31", 6, 0b1111, EVEN_CORES, "0-1,8-9,16-17", "0-5"),
    ],
    ids=["all four", "three", "no affinity", "fewer CPUs than nodes", "one nearly full", "one full", "cores", "few"],
)
def test_distribution_keeps_to_the_nodes_of_the_merge(
    free: str, count: int, affinity: int | None, options: CPUPolicyOptions, podslice: str, kubelet: str
) -> None:
    """CPUs are distributed over all NUMA nodes of the affinity that have some; a kubelet before 1.37 takes the fewest
    that suffice."""
    topology = CPUTopology(from_synthetic(FOUR_NODES))
    for profile, expected in (("podslice", podslice), ("kubelet-1.36", kubelet), ("kubelet-1.37", podslice)):
        picker = Picker(topology, options, PROFILES[profile])
        assert format_bits(picker.take_near(parse_bits(free), count, affinity).cpus) == expected, profile


# Kubernetes 112228: CPUs of init containers that stay idle


@BOTH
def test_a_container_takes_the_cpus_of_init_containers_first(profile: str) -> None:
    """An init container gets CPU 2, its container asks for two: a kubelet gives it a whole core and leaves CPU 2 idle
    until the pod ends, so a pod for the last CPU is refused."""
    node = make_node(TWO_CORES, profile, topology_manager_policy="none")
    leaky = make_pod("leaky", ("app", "2"), init=(("init", "1", False),))
    refused = refusal(node, leaky, make_pod("next", ("app", "1")))
    assert cpus_of(node, "leaky", "init") == "2"
    if profile == "podslice":
        assert refused == ""
        assert cpus_of(node, "leaky") == "1-2"
    else:
        assert refused.startswith("UnexpectedAdmissionError")
        assert cpus_of(node, "leaky") == "1,3"


@pytest.mark.parametrize(
    ("free", "idle", "count", "affinity", "options", "podslice", "kubelet"),
    [
        ("8-31", "24", 2, None, CPUPolicyOptions(), "24-25", "8-9"),
        ("0-31", "4", 3, None, CPUPolicyOptions(), "0-1,4", "0-2"),
        ("0-31", "4-7", 2, None, CPUPolicyOptions(), "4-5", "0-1"),
        ("0-31", "12", 8, None, CPUPolicyOptions(), "8-15", "0-7"),
        ("7,8-31", "7", 8, None, CPUPolicyOptions(), "8-15", "8-15"),
        ("0-31", "12-13", 4, 0b10, CPUPolicyOptions(full_pcpus_only=True), "8-9,12-13", "8-11"),
        ("0-31", "4,12", 4, 0b11, CPUPolicyOptions(), "0-1,4,12", "0-3"),
        ("0-31", "7,15,23", 12, 0b111, EVEN, "0-1,6-9,14-17,22-23", "0-5,8-13"),
        ("0-31", "6-7", 10, 0b11, EVEN, "0-2,6-12", "0-4,8-12"),
    ],
    ids=["here", "beside", "some of it", "its node", "no wider", "cores", "two nodes", "even", "even though"],
)
def test_idle_cpus_are_taken_first(
    free: str, idle: str, count: int, affinity: int | None, options: CPUPolicyOptions, podslice: str, kubelet: str
) -> None:
    """A container takes the CPUs of its pod's init containers, and others close to them, as long as it gets no more
    NUMA nodes for it; as many of each node where CPUs are distributed."""
    topology = CPUTopology(from_synthetic(FOUR_NODES))
    for quirks, expected in ((PODSLICE, podslice), (KUBELET_1_36, kubelet)):
        pick = Picker(topology, options, quirks).take_near(parse_bits(free), count, affinity, reusable=parse_bits(idle))
        assert format_bits(pick.cpus) == expected


# Kubernetes 120733: the rule of memory groups


@pytest.mark.parametrize("policy", ["best-effort", "none"])
@BOTH
def test_the_group_rule_is_named(profile: str, policy: str) -> None:
    """Both NUMA nodes have 11Gi free together, but a pod uses one of them alone."""
    node = make_node(
        "pack:2 numa:1(memory=10GiB) core:4 pu:1(indexes=pu)",
        profile,
        topology_manager_policy=policy,
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    refused = refusal(node, make_pod("a", ("app", "1"), memory="8Gi"), make_pod("b", ("app", "1"), memory="11Gi"))
    if profile == "podslice":
        assert refused == (
            "MemoryGroupError: [memorymanager] NUMA nodes 0-1 together have enough free for 11Gi memory, but NUMA node "
            "0 is in use alone: NUMA nodes in use do not form a new group"
        )
    else:
        assert refused.startswith("UnexpectedAdmissionError: Allocate failed due to [memorymanager] failed to ")


def test_a_real_shortage_is_no_group() -> None:
    """Where even all NUMA nodes together have too little, the kubelet's message stays."""
    node = make_node(
        "pack:2 numa:1(memory=10GiB) core:4 pu:1(indexes=pu)",
        topology_manager_policy="best-effort",
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    refused = refusal(node, make_pod("a", ("app", "1"), memory="8Gi"), make_pod("b", ("app", "1"), memory="12Gi"))
    assert refused.startswith("UnexpectedAdmissionError")


# The same where CPU classes, not reservations, keep CPUs from a container


@pytest.mark.parametrize(("count", "expected"), [("2", "1-2"), ("4", "1-2,5-6"), ("5", "")])
def test_the_narrowest_set_counts_the_cpus_of_a_class(count: str, expected: str) -> None:
    """A class has two CPUs on each NUMA node: a container that may own no others gets four of it on both under
    `restricted`, and two on one."""
    policy = PodslicePolicy(
        cpu_classes=(
            CPUClass(name="fast", match=ClassMatch(cpus="1-2,5-6"), exclusive="always"),
            CPUClass(name="slow", match=ClassMatch(cpus="0,3-4,7"), exclusive="never"),
        )
    )
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0,4", topology_manager_policy="restricted"
    )
    node = Node(from_synthetic(FOUR_EACH), config, policy=policy)
    decision = node.admit(make_pod("w", ("app", count)))
    assert decision.admitted == bool(expected)
    if expected:
        assert cpus_of(node, "w") == expected
