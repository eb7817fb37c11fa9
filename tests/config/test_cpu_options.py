"""CPU Manager options: which are accepted, and what docs/kubelet-policies.md promises of them."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import Node
from podslice.config.policy_options import OptionError, parse_cpu_policy_options
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.gates import FeatureGates
from tests.conftest import make_node, make_pod

ALPHA = {"CPUManagerPolicyAlphaOptions": True}
ACROSS_NUMA = {"distribute-cpus-across-numa": "true"}
ACROSS_CORES = {"distribute-cpus-across-cores": "true"}


def pod_scope(machine: str, options: dict[str, str], **more: Any) -> Node:
    gates = {**ALPHA, "PodLevelResourceManagers": True}
    return make_node(
        machine, topology_manager_scope="pod", cpu_manager_policy_options=options, feature_gates=gates, **more
    )


def test_options_by_name() -> None:
    """Every option is its field; `false` is as good as nothing, but needs its gate too."""
    gates = FeatureGates.from_overrides(ALPHA)
    assert parse_cpu_policy_options({}, gates) == CPUPolicyOptions()
    assert parse_cpu_policy_options({"align-by-socket": "1", "full-pcpus-only": "False"}, gates) == CPUPolicyOptions(
        align_by_socket=True
    )


@pytest.mark.parametrize(
    ("options", "gates", "text"),
    [
        pytest.param({"full-cores": "true"}, {}, 'unknown CPU Manager Policy option: "full-cores"', id="unknown"),
        pytest.param(
            {"align-by-socket": "false"},
            {},
            'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided',
            id="alpha",
        ),
        pytest.param(
            ACROSS_NUMA,
            {"CPUManagerPolicyBetaOptions": False},
            'CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided',
            id="beta",
        ),
        pytest.param(
            {"full-pcpus-only": "yes"},
            {},
            'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax',
            id="value",
        ),
        pytest.param(
            {**ACROSS_NUMA, **ACROSS_CORES},
            ALPHA,
            "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores can not be used at the "
            "same time",
            id="pair",
        ),
    ],
)
def test_refused_options(options: dict[str, str], gates: dict[str, bool], text: str) -> None:
    """Options with which a kubelet would not start are refused in its words."""
    with pytest.raises(OptionError) as error:
        parse_cpu_policy_options(options, FeatureGates.from_overrides(gates))
    assert str(error.value) == text


def test_strict_reservation_without_a_list() -> None:
    """A strict reservation works with amounts alone: the CPUs are picked, and no container runs on them."""
    node = make_node(
        "pack:1 numa:1(memory=16GiB) core:4 pu:2(indexes=pu)",
        reserved_system_cpus="",
        kube_reserved={"cpu": "1500m"},
        cpu_manager_policy_options={"strict-cpu-reservation": "true"},
    )
    assert str(node.reserved_cpus) == "0-1"
    assert str(node.admit(make_pod("shared", ("app", "500m"))).containers[0].cpus) == "2-7"


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_distribution_takes_the_fewest_nodes(profile: str) -> None:
    """Six CPUs on four nodes with four free ones each come as three and three."""
    node = make_node(
        "pack:1 numa:4(memory=16GiB) core:5 pu:1",
        profile=profile,
        reserved_system_cpus="0,5,10,15",
        cpu_manager_policy_options=ACROSS_NUMA,
    )
    assert str(node.admit(make_pod("p", ("app", "6"))).containers[0].cpus) == "1-3,6-8"


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_budgets_are_distributed_and_so_are_their_parts(profile: str) -> None:
    """With pod-level resources the budget is picked with the option, then each exclusive part out of the budget."""
    node = pod_scope(
        "pack:1 numa:2(memory=16GiB) core:5 pu:1", ACROSS_NUMA, profile=profile, reserved_system_cpus="0,5"
    )
    decision = node.admit(make_pod("p", ("own", "4"), ("shared", None), budget="6"))
    assert str(decision.pod_cpus) == "1-3,6-8"
    own, shared = (container.cpus for container in decision.containers)
    assert (str(own), str(shared)) == ("1-2,6-7", "3,8")


def test_spread_parts_leave_threads_to_their_pod() -> None:
    """Across cores, a part has one thread of every core of the budget first; the others are the shared pool."""
    node = pod_scope("pack:1 numa:1(memory=16GiB) core:8 pu:2(indexes=pu)", ACROSS_CORES, reserved_system_cpus="0-1")
    decision = node.admit(make_pod("p", ("own", "3"), ("shared", None), budget="6"))
    assert str(decision.pod_cpus) == "2,4,6,8,10,12"
    whole = pod_scope("pack:1 numa:1(memory=16GiB) core:4 pu:2(indexes=pu)", ACROSS_CORES, reserved_system_cpus="0-1")
    parts = [str(one.cpus) for one in whole.admit(make_pod("p", ("own", "3"), ("shared", None), budget="6")).containers]
    assert parts == ["2,4,6", "3,5,7"]


def test_whole_cores_are_checked_for_the_budget() -> None:
    """`full-pcpus-only` looks at the budget; a part of it may be three threads."""
    node = pod_scope(
        "pack:1 numa:1(memory=16GiB) core:8 pu:2(indexes=pu)", {"full-pcpus-only": "true"}, reserved_system_cpus="0-1"
    )
    decision = node.admit(make_pod("p", ("own", "3"), ("shared", None), budget="6"))
    assert [len(container.cpus) for container in decision.containers] == [3, 3]
    assert node.admit(make_pod("odd", ("own", "2"), ("shared", None), budget="5")).reason == "SMTAlignmentError"
