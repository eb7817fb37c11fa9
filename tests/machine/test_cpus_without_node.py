"""Machines whose firmware names no NUMA node for some CPUs: cAdvisor gives them the id -1."""

from __future__ import annotations

import msgspec
import pytest

from podslice import KubeletConfig, Machine, Node
from podslice.api.pod.spec import pod_from_dict
from podslice.host.machine_files import dump_machine, load_described, load_machine
from podslice.machine.model import CPUTopology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.assumption import Assumption
from podslice.values.errors import StartError

OPTIONS: list[dict[str, str]] = [{}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}]


@pytest.fixture
def machine() -> Machine:
    """Two packages of four cores; the first has no node, the second is node 0."""
    made = from_synthetic("pack:2 numa:1 core:4 pu:2")
    return msgspec.structs.replace(
        made, nodes=tuple(msgspec.structs.replace(node, id=node.id - 1) for node in made.nodes)
    )


def test_masks_leave_them_out(machine: Machine) -> None:
    """NUMA masks hold the nodes that have a number."""
    topology = CPUTopology(machine)
    assert topology.numa_mask == 0b1
    assert topology.numa_nodes_of(topology.all_cpus) == 0b1
    assert topology.numa_nodes_of(topology.numa_nodes[-1]) == 0
    assert topology.cpus_in_numa_nodes(0b1) == topology.numa_nodes[0]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_their_cpus_are_given_away_without_alignment(machine: Machine, options: dict[str, str], profile: str) -> None:
    """Without a Topology Manager policy a pod of nearly all CPUs gets them."""
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0,1", cpu_manager_policy_options=options, eviction_hard={}
    )
    amounts = {"cpu": "12", "memory": "1Mi"}
    one = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "spec": {"containers": [one]}}
    decision = Node(machine, config, profile=profile).admit(pod_from_dict(spec))
    assert decision.admitted
    assert len(decision.containers[0].cpus) == 12
    assert list(decision.containers[0].numa_nodes) == [0]


def test_cpus_that_are_only_counted() -> None:
    """A MachineInfo that counts more CPUs than its NUMA nodes list is read, and a line says which are given out."""
    text = """{"num_cores": 4, "num_sockets": 1, "memory_capacity": 1024, "topology": [
        {"node_id": 0, "memory": 1024, "cores": [{"core_id": 0, "thread_ids": [0, 1], "socket_id": 0}]}]}"""
    line = "a kubelet counts 4 CPUs and gives out 0-1, because no NUMA node lists the others"
    assert load_described(text).assumed == (Assumption("cpus", line),)
    assert load_described(text.replace('"num_cores": 4', '"num_cores": 2')).assumed == ()
    # The line follows from the machine, so that a written form gives the same machine and the same line.
    machine = load_machine(text)
    assert load_described(dump_machine(machine, "yaml")).assumed == (Assumption("cpus", line),)
    assert load_machine(dump_machine(machine, "yaml")) == machine
    assert load_described(text).warnings == (f"assumed: {line}",)


def test_alignment_is_refused_at_start(machine: Machine) -> None:
    """A mask cannot name them, so no hint is ever made on such a machine."""
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0,1", topology_manager_policy="best-effort"
    )
    with pytest.raises(StartError, match=r"between 0 and 63: \[-1, 0\]"):
        Node(machine, config)
