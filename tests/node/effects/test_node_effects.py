"""Effects of an admitted pod on the kernel of its node: `Node.effects`."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from podslice import KubeletConfig, Node
from podslice.machine.readers.synthetic import from_synthetic
from tests.node.effects.helpers import GI, pod, requirements

STATIC = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0", feature_gates={"PodLevelResourceManagers": True}
)


def static_node() -> Node:
    """Eight CPUs, CPU 0 reserved."""
    return Node(from_synthetic("pack:1 numa:1(memory=64GB) core:8 pu:1"), STATIC)


def test_exclusive_and_shared() -> None:
    """A container with exclusive CPUs is pinned and not throttled; its neighbour keeps quota and the shared pool."""
    node = static_node()
    node.admit(pod(requirements("2/1Gi", "2/1Gi"), requirements("1500m/1Gi", "1500m/1Gi")))
    seen = node.effects("0-1")
    own, shared = (container.files for container in seen.containers)
    assert (own["cpuset.cpus"], own["cpu.max"]) == ("1-2", "max 100000")
    assert (shared["cpuset.cpus"], shared["cpu.max"]) == ("0,3-7", "150000 100000")
    assert (seen.qos, seen.files["cpu.max"], seen.files["memory.max"]) == ("Guaranteed", "max 100000", str(2 * GI))


def test_pod_level() -> None:
    """A pod with a budget keeps its quota while one of its containers shares the rest of it."""
    node = static_node()
    budget = requirements("4/4Gi", "4/4Gi")
    node.admit(pod(requirements("2/2Gi", "2/2Gi"), {}, resources=budget))
    seen = node.effects("0-1")
    assert seen.files["cpu.max"] == "400000 100000"
    assert [container.files["cpu.max"] for container in seen.containers] == ["max 100000", "400000 100000"]
    assert [container.files["cpu.weight"] for container in seen.containers] == ["174", "1"]


def test_unknown_pod() -> None:
    """A pod that is not on the node has no effects."""
    with pytest.raises(KeyError):
        static_node().effects("elsewhere")


def test_documentation() -> None:
    """The example of docs/development/cgroups.md runs and prints what it shows."""
    results = doctest.testfile(
        str(Path(__file__).parents[3] / "docs" / "development" / "cgroups.md"), module_relative=False
    )
    assert (results.failed, results.attempted > 5) == (0, True)
