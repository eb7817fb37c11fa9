"""The assertions and the pytest plugin for those who test manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice import KubeletConfig, Node, Pod, load_machine, load_pods
from podslice.testing import assert_admitted, assert_aligned

pytest_plugins = ["pytester"]
EXAMPLES = Path(__file__).parents[1] / "examples"
MACHINE = "pack:2 numa:1(memory=64GiB) core:8 pu:2"
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0,16")


def pod(cpus: str, *, limit: bool = True, devices: int = 0) -> Pod:
    amounts = {"cpu": cpus, "memory": "1Gi", **({"example.com/nic": str(devices)} if devices else {})}
    kind = "limits" if limit else "requests"
    return Pod.load(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{cpus}"},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {kind: amounts}}]},
        }
    )


def test_admitted_pods_stay() -> None:
    """Each assertion takes its part of the node, until one fails with the reason and a change that helps."""
    node = Node(load_machine(MACHINE), CONFIG)
    assert_admitted(node, pod("20"))
    assert assert_admitted(node, load_pods(EXAMPLES / "small.yaml")[0]).admitted
    with pytest.raises(
        AssertionError,
        match=r"(?s)default/p18 is refused \(UnexpectedAdmissionError\): The node is short of 9 CPUs.*makes it fit",
    ) as found:
        assert_admitted(node, pod("18"))
    assert "\x1b" not in str(found.value)
    assert len(node.pods) == 2


def test_alignment() -> None:
    """A pod that is spread, or owns nothing, is admitted and not aligned; the message says where its parts are."""
    node = Node(load_machine(MACHINE), CONFIG)
    assert assert_aligned(node, pod("4")).aligned
    with pytest.raises(AssertionError, match=r"default/p20 is spread over NUMA nodes: c has CPUs \S+ on NUMA 0,1$"):
        assert_aligned(node, pod("20"))
    with pytest.raises(AssertionError, match="default/p2 owns no CPUs, memory or devices: it is Burstable"):
        assert_aligned(node, pod("2", limit=False))


def test_devices_count() -> None:
    """CPUs on one NUMA node and a device on another are not aligned."""
    from podslice import load_devices

    inventory = load_devices([{"resource": "example.com/nic", "devices": [{"id": "n", "numa": [1]}]}])
    node = Node(load_machine(MACHINE), CONFIG, devices=inventory)
    with pytest.raises(AssertionError, match=r"c has CPUs \S+ on NUMA 0, devices on NUMA 1$"):
        assert_aligned(node, pod("4", devices=1))


SUITE = """
from podslice import Pod
from podslice.testing import assert_admitted

def test_it(podslice_node):
    assert podslice_node.view.release.minor == RELEASE
    assert_admitted(podslice_node, Pod.load(PATH))
"""


def test_the_plugin(pytester: pytest.Pytester) -> None:
    """Settings name the node of the fixture, options override them, and without a machine the test says so."""
    arguments = ("-p", "no:podslice", "-p", "podslice.pytest_plugin", "-p", "no:cacheprovider")
    pytester.makepyfile(SUITE.replace("PATH", repr(str(EXAMPLES / "pods.yaml"))).replace("RELEASE", "36"))
    pytester.makefile(".yaml", kubelet=(EXAMPLES / "kubelet.yaml").read_text(encoding="utf-8"))
    ran = pytester.runpytest_inprocess(*arguments)
    ran.stdout.fnmatch_lines(["*podslice_node needs a machine*"])
    pytester.makeini("[pytest]\npodslice_machine = epyc-9654-nps4\npodslice_config = kubelet.yaml\n")
    pytester.makepyfile(SUITE.replace("PATH", repr(str(EXAMPLES / "small.yaml"))).replace("RELEASE", "34"))
    ran = pytester.runpytest_inprocess(*arguments, "--podslice-kubernetes", "1.34", "--podslice-config=")
    ran.assert_outcomes(passed=1)


def test_the_plugin_is_lazy() -> None:
    """It is loaded by every pytest run of its environment, so it imports nothing of podslice before a test asks."""
    source = (Path(__file__).parents[1] / "src" / "podslice" / "pytest_plugin.py").read_text(encoding="utf-8")
    assert not [line for line in source.splitlines() if line.startswith(("from podslice", "import podslice"))]
