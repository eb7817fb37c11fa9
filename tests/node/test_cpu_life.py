"""Releases of CPUs over time: pods that end in parts, and kubelets that start again."""

from __future__ import annotations

import pytest

from podslice.node.kubelet import Kubelet
from podslice.values.cpuset import Bits, format_bits
from tests.conftest import make_node, make_pod

MACHINE = "pack:2 numa:1(memory=16GB) core:4 pu:1"
"""CPUs 0-3 and 4-7; CPU 0 is reserved."""


def kubelet(**config: str) -> Kubelet:
    return make_node(MACHINE, **config).kubelet


def shared(on: Kubelet) -> str:
    return format_bits(on.manager.cpu.state.default)


def owned(on: Kubelet, uid: str) -> dict[str, Bits]:
    return on.manager.cpu.state.assignments.get(uid, {})


def test_an_ended_init_container_gives_back_what_nobody_took_over() -> None:
    """The app container runs on two of the init container's three CPUs. When the init container is removed, only the
    third is free: no other container may get the two."""
    node = kubelet()
    assert node.admit(make_pod("p", ("app", "2"), init=(("setup", "3", False),))) is None
    held = owned(node, "p")
    assert (format_bits(held["setup"]), format_bits(held["app"]), shared(node)) == ("1-3", "1-2", "0,4-7")
    cpu = node.manager.cpu
    cpu.add_container("p", "setup", "id-of-setup")
    cpu.remove_container("p", "id-of-setup")
    assert (owned(node, "p"), shared(node)) == ({"app": held["app"]}, "0,3-7")
    cpu.add_container("p", "app", "id-of-app")
    cpu.remove_container("p", "id-of-app")
    assert (owned(node, "p"), shared(node)) == ({}, "0-7")


def test_a_sidecar_lends_nothing() -> None:
    """CPUs of a plain init container go to the next container; those of a sidecar stay its own."""
    node = kubelet()
    init = (("setup", "2", False), ("mesh", "1", True))
    assert node.admit(make_pod("p", ("app", "2"), init=init)) is None
    held = owned(node, "p")
    assert not held["mesh"] & held["app"]
    assert held["mesh"] & held["setup"]


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_a_new_pod_at_the_start_is_aligned_like_any_other(policy: str) -> None:
    """While a restarted kubelet waits for its sources, a pod that runs already may stay as it lies; a new one that
    holds nothing yet, and fits only across NUMA nodes, is refused."""
    node = kubelet(topology_manager_policy=policy)
    for uid in ("first", "second"):
        assert node.admit(make_pod(uid, ("app", "2"))) is None
    node.save()
    node.restart()
    refusal = node.admit(make_pod("new", ("app", "3")))
    assert refusal is not None
    assert refusal.reason == "TopologyAffinityError"
    node.sources_ready()
    assert set(node.manager.cpu.state.assignments) == {"first", "second"}
