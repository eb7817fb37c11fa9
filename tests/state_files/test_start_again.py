"""A node that takes over what an earlier kubelet started."""

from __future__ import annotations

import json

import msgspec
import pytest

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.machine.model import Machine
from podslice.node.checkpoints.releases import Release
from podslice.node.node import Node
from podslice.state_files.consequence import NodeFacts, start_consequence
from podslice.values.errors import StartError

MACHINE = msgspec.convert(
    {
        "nodes": [
            {"id": 0, "memory": 8 << 30, "cores": [{"socket": 0, "core": i, "threads": [i]} for i in range(4)]},
        ]
    },
    Machine,
)
CONFIG = msgspec.convert(
    {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "256Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "256Mi"}}],
        "evictionHard": {},
        "topologyManagerPolicy": "best-effort",
    },
    KubeletConfig,
)


def pod_with_init() -> Pod:
    """A pod whose init container wants 100Mi and whose app container wants 300Mi."""

    def container(name: str, memory: str) -> dict[str, object]:
        amounts = {"cpu": "1", "memory": memory}
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}}

    spec = {"initContainers": [container("i0", "100Mi")], "containers": [container("c0", "300Mi")]}
    return pod_from_dict({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec})


def reserved(node: Node) -> int:
    """Bytes of memory booked in the node's state file, in MiB."""
    ledger = json.loads(node.files["memory_manager_state"])
    return ledger["machineState"]["0"]["memoryMap"]["memory"]["reserved"] >> 20


@pytest.mark.parametrize(("profile", "after"), [("podslice", 300), ("kubelet-1.36", 400)])
def test_init_memory_after_a_restart(profile: str, after: int) -> None:
    """A restarted kubelet charges a finished init container's memory again and keeps it, although nothing runs
    there."""
    before = Node(MACHINE, CONFIG, profile=profile)
    assert before.admit(pod_with_init()).admitted
    assert reserved(before) == 300
    again = Node(MACHINE, CONFIG, profile=profile, files=before.files)
    assert again.readmit([pod_with_init()]) == []
    assert reserved(again) == after
    assert again.shared_cpus == before.shared_cpus
    again.remove("p")
    assert reserved(again) == 0


def test_restart_that_crashes() -> None:
    """A group of NUMA nodes of which one lacks a huge page size crashes a kubelet at every start; ours goes on."""
    cores = [{"socket": 0, "core": i, "threads": [i]} for i in range(8)]
    nodes = [{"id": i, "memory": 8 << 30, "cores": cores[4 * i : 4 * i + 4]} for i in range(2)]
    nodes[0]["hugepages"] = [{"pageSizeKi": 1 << 20, "numPages": 0}]
    machine = msgspec.convert({"nodes": nodes}, Machine)
    amounts = {"cpu": "6", "memory": "12Gi"}
    spec = {"containers": [{"name": "c0", "resources": {"requests": amounts, "limits": amounts}}]}
    wide = pod_from_dict({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": spec})
    before = Node(machine, CONFIG)
    assert before.admit(wide).admitted
    assert Node(machine, CONFIG, files=before.files).readmit([wide]) == []
    with pytest.raises(StartError, match="crashes here: missing_hugepages_crash: NUMA node 1 has no hugepages-1Gi"):
        Node(machine, CONFIG, files=before.files, profile="kubelet-1.36")
    facts = NodeFacts(machine=machine, memory_reserved={0: {"memory": 256 << 20}})
    consequence = start_consequence(before.files["memory_manager_state"], "memory", Release(36), facts)
    assert consequence is not None
    assert not consequence.starts
    assert consequence.text.startswith("a kubelet 1.36 does not start: it crashes, missing_hugepages_crash")
