"""One sentence where a kubelet answers otherwise than the default profile."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import ClassMatch, CPUClass, PodslicePolicy
from podslice.evidence.kubelet_differs import kubelet_differs
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from tests.conftest import make_node, make_pod

NO_SMT = "pack:2 numa:1(memory=16GiB) core:4 pu:1(indexes=pu)"
TWO_CORES = "pack:1 numa:1(memory=16GiB) core:2 pu:2"
END = " --profile kubelet-1.36 predicts it; docs/deviations.md says why."
LEAKY = make_pod("leaky", ("app", "2"), init=(("init", "1", False),))


@pytest.mark.parametrize(
    ("machine", "pods", "config", "expected"),
    [
        (
            NO_SMT,
            [make_pod("w", ("app", "4"))],
            {"reserved_system_cpus": "0,4"},
            "A 1.36 kubelet refuses default/w with TopologyAffinityError: Resources cannot be allocated with Topology "
            "locality." + END,
        ),
        (
            TWO_CORES,
            [make_pod("first", ("app", "200m")), LEAKY],
            {"topology_manager_policy": "none"},
            "A 1.36 kubelet places default/leaky otherwise: container app gets CPUs 1,3 instead of 1-2." + END,
        ),
        (NO_SMT, [make_pod("w", ("app", "3"))], {"reserved_system_cpus": "0,4"}, ""),
        (NO_SMT, [make_pod("w", ("app", "9"))], {}, ""),
        (NO_SMT, [], {}, ""),
    ],
    ids=["refused there", "other CPUs", "alike", "refused alike", "no pods"],
)
def test_the_first_difference(machine: str, pods: list[Pod], config: dict[str, Any], expected: str) -> None:
    """The sentence names the first pod that differs, and what a kubelet does with it; the node stays as it is."""
    node = make_node(machine, **config)
    assert kubelet_differs(node, pods) == expected
    assert node.pods == ()


def test_it_starts_from_the_state_of_the_node() -> None:
    """Pods that run are where they are: the next one finds the same CPUs free for both."""
    node = make_node(TWO_CORES, topology_manager_policy="none")
    assert node.admit(LEAKY).admitted
    assert kubelet_differs(node, [make_pod("next", ("app", "1"))]) == ""


def test_a_kubelet_that_would_not_start() -> None:
    """A machine with more NUMA nodes than a kubelet takes is said to be one."""
    node = make_node("pack:10 numa:1(memory=1GiB) core:1 pu:1(indexes=pu)")
    assert kubelet_differs(node, [make_pod("w", ("app", "1"))]).startswith(
        "A 1.36 kubelet would not start on this node: "
    )


def test_a_kubelets_profile_and_a_policy_are_not_compared() -> None:
    """A kubelet is not compared with itself, nor with what a PodslicePolicy adds."""
    pods = [make_pod("w", ("app", "4"))]
    assert kubelet_differs(make_node(NO_SMT, "kubelet-1.36", reserved_system_cpus="0,4"), pods) == ""
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0,4", topology_manager_policy="restricted"
    )
    policy = PodslicePolicy(cpu_classes=(CPUClass(name="fast", match=ClassMatch(cpus="1-3,5-7")),))
    assert kubelet_differs(Node(from_synthetic(NO_SMT), config, policy=policy), pods) == ""
