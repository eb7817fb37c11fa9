"""`align-by-socket`: CPUs come from as few sockets as have room, under every Topology Manager policy."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from podslice import Node
from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.picking.picker import Picker
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import bits_of, iter_bits
from podslice.values.quirks import PODSLICE
from tests.conftest import make_node, make_pod

MACHINE = "pack:2 numa:2(memory=16GiB) core:4 pu:1"
ALPHA = {"CPUManagerPolicyAlphaOptions": True}


def aligned_node(policy: str, **more: Any) -> Node:
    gates = {**ALPHA, **more.pop("feature_gates", {})}
    options = {"align-by-socket": "true"}
    return make_node(
        MACHINE, topology_manager_policy=policy, cpu_manager_policy_options=options, feature_gates=gates, **more
    )


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
@pytest.mark.parametrize(("profile", "expected"), [("podslice", "8-13"), ("kubelet-1.36", "4-9")])
def test_the_free_socket_is_taken(policy: str, profile: str, expected: str) -> None:
    """Six CPUs go to the socket with eight free ones, not across both; a kubelet takes the lowest pair of nodes."""
    node = aligned_node(policy, profile=profile)
    assert node.admit(make_pod("fill", ("app", "3"))).admitted
    assert str(node.admit(make_pod("six", ("app", "6"))).containers[0].cpus) == expected


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_what_fits_no_socket_is_still_admitted(policy: str) -> None:
    """Alignment is where possible: a pod that fits no socket any more lands across them, as on a kubelet."""
    for profile in ("podslice", "kubelet-1.36"):
        node = aligned_node(policy, profile=profile)
        for uid, cpus in (("fill", "3"), ("gone", "4"), ("stays", "4")):
            assert node.admit(make_pod(uid, ("app", cpus))).admitted
        node.remove("gone")
        assert str(node.assignable_cpus) == "4-7,12-15"
        assert str(node.admit(make_pod("six", ("app", "6"))).containers[0].cpus) == "4-7,12-13"


def test_a_pod_as_a_whole_and_its_parts() -> None:
    """The CPUs of a pod with pod-level resources are on one socket too."""
    node = aligned_node("best-effort", topology_manager_scope="pod", feature_gates={"PodLevelResourceManagers": True})
    assert node.admit(make_pod("fill", ("app", "3"))).admitted
    decision = node.admit(make_pod("six", ("own", "2"), ("shared", None), budget="6"))
    assert str(decision.pod_cpus) == "8-13"
    assert [str(container.cpus) for container in decision.containers] == ["12-13", "8-11"]


@pytest.mark.parametrize(
    "shape",
    [
        "pack:2 numa:2 core:4 pu:1",
        "pack:3 numa:1 core:3 pu:2",
        "pack:4 numa:2 core:2 pu:2",
        "numa:2 pack:2 core:3 pu:1",
    ],
)
def test_never_more_sockets_than_needed(shape: str) -> None:
    """In random states, a pick touches as few sockets as any set of that many free CPUs could."""
    topology = CPUTopology(from_synthetic(shape))
    options = CPUPolicyOptions(align_by_socket=True)
    for seed in range(150):
        random = Random(seed)
        free = bits_of(cpu for cpu in iter_bits(topology.all_cpus) if random.random() < 0.6)
        if not free:
            continue
        count = random.randint(1, free.bit_count())
        rooms = sorted(((free & socket).bit_count() for socket in topology.sockets.values()), reverse=True)
        fewest = next(n for n in range(1, len(rooms) + 1) if sum(rooms[:n]) >= count)
        cpus = Picker(topology, options, PODSLICE).take(free, count).cpus
        assert cpus.bit_count() == count
        assert not cpus & ~free
        assert sum(socket & cpus != 0 for socket in topology.sockets.values()) == fewest
