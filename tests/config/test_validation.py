"""A configuration that is refused says which field is wrong, and a start that fails carries the facts of it."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.config.policy_options import OptionError, parse_cpu_policy_options
from podslice.config.validation import validate
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.values.errors import StartError, StartKind
from podslice.values.gates import FeatureGates

_MACHINE = from_synthetic("pack:1 numa:2(memory=8GB) core:2 pu:2")


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"topology_manager_policy": "reservedSystemCPUs"}, "topologyManagerPolicy"),
        ({"topology_manager_scope": "node"}, "topologyManagerScope"),
        ({"reserved_system_cpus": "x"}, "reservedSystemCPUs"),
        ({"reserved_system_cpus": "0", "kube_reserved_cgroup": "/kube"}, "reservedSystemCPUs"),
        ({"reserved_memory": (MemoryReservation(0, {"memory": "0"}),)}, "reservedMemory"),
        ({"reserved_memory": (MemoryReservation(0, {"cpu": "1"}),)}, "reservedMemory"),
        ({"cpu_cfs_quota_period": "1h"}, "cpuCFSQuotaPeriod"),
        ({"cpu_cfs_quota_period": "soon"}, "cpuCFSQuotaPeriod"),
        ({"cpu_manager_reconcile_period": "soon"}, "cpuManagerReconcilePeriod"),
        ({"enforce_node_allocatable": ("pods", "pods")}, "enforceNodeAllocatable"),
        ({"cgroups_per_qos": False}, "enforceNodeAllocatable"),
        ({"enforce_node_allocatable": ("everything",)}, "enforceNodeAllocatable"),
        ({"enforce_node_allocatable": ("none", "pods")}, "enforceNodeAllocatable"),
        ({"enforce_node_allocatable": ("system-reserved",)}, "enforceNodeAllocatable"),
        ({"max_pods": -1}, "maxPods"),
        ({"pods_per_core": -1}, "podsPerCore"),
        ({"memory_swap": {"swapBehavior": "Unlimited"}}, "memorySwap.swapBehavior"),
        ({"memory_reservation_policy": "TieredReservation"}, "memoryReservationPolicy"),
        ({"memory_throttling_factor": 2.0}, "memoryThrottlingFactor"),
        ({"memory_throttling_factor": 0.0}, "memoryThrottlingFactor"),
        ({"memory_reservation_policy": "All"}, "memoryReservationPolicy"),
        ({"qos_reserved": {"memory": "half"}}, "qosReserved"),
    ],
)
def test_a_problem_names_its_field(setting: dict[str, Any], field: str) -> None:
    """The field of an error is a fact of its own, whatever words the configured value holds."""
    (problem,) = validate(KubeletConfig(**setting))
    assert problem.field == field
    assert str(problem) == f"{problem.prefix}{problem.text}"
    assert bool(problem.prefix) == (field != "qosReserved")


def test_problems_are_sorted_by_text() -> None:
    """Several errors come in the order of their texts, as recordings have them."""
    problems = validate(
        KubeletConfig(topology_manager_scope="x", cpu_cfs_quota_period="1h", memory_throttling_factor=2)
    )
    assert [problem.text for problem in problems] == sorted(problem.text for problem in problems)
    assert len(problems) == 3


def test_a_failed_start_carries_its_facts() -> None:
    """The facts can be read without the message, and message and remedy are made of them."""
    with pytest.raises(StartError) as caught:
        Node(_MACHINE, KubeletConfig(reserved_system_cpus="0-99"))
    error = caught.value
    assert (error.stage, error.kind.code) == ("reservedSystemCPUs", "not-online")
    assert error.facts == {"cpus": "0-99", "online": "0-7"}
    assert str(error) == error.message == "reserved-cpus: 0-99 is not a subset of online-cpus: 0-7"


def test_a_failed_start_with_other_facts() -> None:
    """A caller can replace facts, and the sentences follow; braces in a fact are only text."""
    kind = StartKind("gone", "{file} is gone", "look for {file}")
    error = StartError("startCPUManager", kind, file="{a}").but(file="{b}", unused=1)
    assert (error.stage, error.message, error.remedy) == ("startCPUManager", "{b} is gone", "look for {b}")


@pytest.mark.parametrize(
    ("option", "gate"),
    [
        ("align-by-socket", "CPUManagerPolicyAlphaOptions"),
        ("distribute-cpus-across-numa", "CPUManagerPolicyBetaOptions"),
        ("no-such-option", ""),
    ],
)
def test_a_refused_option_names_its_gate(option: str, gate: str) -> None:
    """An option whose gate is off names that gate, and what a kubelet says about it does so too."""
    gates = FeatureGates.from_overrides({"CPUManagerPolicyBetaOptions": False})
    with pytest.raises(OptionError) as caught:
        parse_cpu_policy_options({option: "true"}, gates)
    assert caught.value.gate == gate
    start = caught.value.at_start("new static policy error: ")
    assert start.message == f"new static policy error: {caught.value}"
    assert start.remedy == (f"featureGates: {{{gate}: true}}, or leave the option out" if gate else "")
