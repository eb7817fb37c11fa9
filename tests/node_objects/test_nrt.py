"""NodeResourceTopology objects that podslice writes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import KubeletConfig, Node
from podslice.api.manifests.manifest import load_pods_text
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import inventory_from_data
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.node_objects.read_nrt import amounts_in_use, from_node_resource_topology
from podslice.node_objects.write_nrt import fingerprint, machine_topology, node_topology
from podslice.node_objects.write_peer_objects import koordinator_annotations, numatopology

STATIC = {"cpu_manager_policy": "static", "reserved_system_cpus": "0", "topology_manager_policy": "restricted"}
GPUS = inventory_from_data([{"resource": "a.b/gpu", "devices": [{"id": "g0", "numa": [0]}, {"id": "g1", "numa": [1]},
                                                               {"id": "g2", "numa": [1], "health": "Unhealthy"},
                                                               {"id": "g3"}]}])  # fmt: skip


def admitted(node: Node, name: str, **limits: Any) -> None:
    """A Guaranteed pod with these limits, on the node."""
    container = {"name": "c", "resources": {"limits": {"memory": "1Gi", **limits}}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": name},
        "spec": {"containers": [container]},
    }
    assert node.admit(load_pods_text(yaml.safe_dump(manifest), "test")[0].pod).admitted


def amounts(topology: dict[str, Any], resource: str) -> list[tuple[str, str, str]]:
    """Capacity, allocatable and available of each zone that has the resource."""
    return [
        (own["capacity"], own["allocatable"], own["available"])
        for zone in topology["zones"]
        for own in zone["resources"]
        if own["name"] == resource
    ]


def attributes(topology: dict[str, Any]) -> dict[str, str]:
    return {own["name"]: own["value"] for own in topology["attributes"]}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")], "pfp0v001b92008c14168b3a6"),
        ([], "pfp0v001ef46db3751d8e999"),
    ],
)
def test_fingerprints_of_the_consumers(pods: list[tuple[str, str]], text: str) -> None:
    """A set of pods has the fingerprint that the scheduler's plugin computes, in any order."""
    assert fingerprint(pods) == fingerprint(reversed(pods)) == text


@pytest.mark.parametrize("name", gallery_names())
def test_every_machine_is_read_as_it_was_written(name: str) -> None:
    """Zones carry CPUs, memory, huge pages and distances of each NUMA node of every machine, and nothing is in use."""
    machine = load_gallery(name)
    topology = machine_topology(machine)
    read = from_node_resource_topology(topology).machine
    ids = {node.id: node for node in read.nodes}
    assert ids.keys() == {node.id for node in machine.nodes}
    for before in machine.nodes:
        after = ids[before.id]
        assert sum(len(core.threads) for core in before.cores) == sum(len(core.threads) for core in after.cores)
        assert (before.id, before.memory, before.distances) == (after.id, after.memory, after.distances)
        assert sum(own.bytes for own in before.hugepages) == sum(own.bytes for own in after.hugepages)
    assert not any(amount for used in amounts_in_use(topology).values() for amount in used.values())


def test_what_belongs_to_somebody_is_not_available() -> None:
    """CPUs, memory and devices that a pod owns are gone from its zone; shared CPUs, sick devices and those without a
    NUMA node are not in any zone's sum."""
    config = KubeletConfig(
        **STATIC,
        memory_manager_policy="Static",
        reserved_memory=[MemoryReservation(0, {"memory": "1Gi"})],
        kube_reserved={"memory": "924Mi"},
    )
    node = Node(load_gallery("xeon-8380-2s"), config, devices=GPUS)
    admitted(node, "owner", cpu=3, **{"a.b/gpu": 1})
    admitted(node, "shared", cpu="500m")
    topology = node_topology(node)
    assert amounts(topology, "cpu") == [("80", "79", "76"), ("80", "80", "80")]
    assert amounts(topology, "a.b/gpu") == [("1", "1", "0"), ("2", "1", "1")]
    whole, left, reserved = 256 << 30, 254 << 30, 1 << 30
    assert amounts(topology, "memory") == [
        (str(whole), str(whole - reserved), str(left - reserved)),
        (str(whole), str(whole), str(whole)),
    ]
    assert attributes(topology)["nodeTopologyPodsFingerprint"] == fingerprint(
        [("default", "owner"), ("default", "shared")]
    )


def test_pods_that_own_nothing_are_not_counted() -> None:
    """The fingerprint is of pods that own CPUs, memory, huge pages or devices of a zone, as its method says."""
    node = Node(load_gallery("xeon-8380-2s"), KubeletConfig(**STATIC))
    burstable = {"name": "c", "resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "b", "uid": "b"},
        "spec": {"containers": [burstable]},
    }
    assert node.admit(load_pods_text(yaml.safe_dump(pod), "test")[0].pod).admitted
    described = attributes(node_topology(node))
    assert described["nodeTopologyPodsFingerprint"] == fingerprint([])
    assert described["nodeTopologyPodsFingerprintMethod"] == "with-exclusive-resources"


def test_half_cores_are_not_available() -> None:
    """With full-pcpus-only a free thread beside a reserved one is free but unplaced."""
    options = {"full-pcpus-only": "true"}
    node = Node(load_gallery("xeon-8380-2s"), KubeletConfig(**STATIC, cpu_manager_policy_options=options))
    topology = node_topology(node)
    assert amounts(topology, "cpu")[0] == ("80", "79", "78")
    assert attributes(topology)["podslice.io/unplaced"] == "1"


def test_the_topology_manager_is_told_as_the_kubelet_spells_it() -> None:
    """Policy, scope, options and the limit of NUMA nodes come back from what was written."""
    options = {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "16"}
    fields = {**STATIC, "topology_manager_scope": "pod", "topology_manager_policy_options": options}
    topology = node_topology(Node(load_gallery("xeon-8380-2s"), KubeletConfig(**fields)), {"podslice.io/sequence": "7"})
    described = from_node_resource_topology(topology).fields
    assert {name: described[name] for name in described if name.startswith("topology")} == {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
        "topologyManagerPolicyOptions": options,
    }
    assert attributes(topology)["podslice.io/sequence"] == "7"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=8))
@pytest.mark.slow
def test_available_is_allocatable_less_what_is_owned(asked: list[int]) -> None:
    """For any pods, the zones together lack exactly the CPUs that pods own."""
    config = KubeletConfig(**{**STATIC, "topology_manager_policy": "best-effort"})
    node = Node(load_gallery("xeon-8380-2s"), config)
    for number, cpus in enumerate(asked):
        if cpus <= node.view.assignable.bit_count():
            admitted(node, f"p{number}", cpu=cpus)
    used = amounts_in_use(node_topology(node))
    assert sum(zone["cpu"] for zone in used.values()) == node.view.owned.bit_count()


@pytest.mark.parametrize("name", ["xeon-8380-2s", "hybrid-i9-12900k", "gb200-34-nodes", "power10-s1022-smt8"])
def test_koordinator_is_told_every_core(name: str) -> None:
    """With Koordinator's annotations cores and sockets come back too, and the CPU Manager's policy."""
    machine = load_gallery(name)
    node = Node(machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    topology = node_topology(node)
    topology["metadata"]["annotations"] = koordinator_annotations(node.view)
    described = from_node_resource_topology(topology)

    def cores(nodes: Any) -> set[tuple[int, int, tuple[int, ...]]]:
        return {(node.id, core.socket, tuple(sorted(core.threads))) for node in nodes for core in node.cores}

    assert cores(described.machine.nodes) == cores(machine.nodes)
    assert (described.fields["cpuManagerPolicy"], described.fields["reservedSystemCPUs"]) == ("static", "0")


def test_koordinator_leaves_owned_cpus_alone() -> None:
    """Every pod that owns CPUs is listed with them and marked as the node's own; the pools have the rest."""
    node = Node(load_gallery("xeon-8380-2s"), KubeletConfig(**STATIC))
    admitted(node, "owner", cpu=3)
    described = koordinator_annotations(node.view)
    owners = yaml.safe_load(described["node.koordinator.sh/pod-cpu-allocs"])
    assert [(own["name"], own["cpuset"], own["managedByKubelet"]) for own in owners] == [("owner", "1,80-81", True)]
    pools = yaml.safe_load(described["node.koordinator.sh/cpu-shared-pools"])
    assert [(own["socket"], own["node"], own["cpuset"]) for own in pools] == [
        (0, 0, "0,2-39,82-119"),
        (1, 1, "40-79,120-159"),
    ]


def test_volcano_is_told_what_is_free() -> None:
    """A Numatopology has the policies, the CPUs that can still be had, and where each is; zeros are left out."""
    node = Node(load_gallery("xeon-8380-2s"), KubeletConfig(**STATIC))
    admitted(node, "owner", cpu=3)
    spec = numatopology(node.view)["spec"]
    assert spec["policies"] == {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"}
    assert spec["numares"] == {"cpu": {"allocatable": "2-79,82-159", "capacity": 160}}
    assert spec["cpuDetail"]["0"] == {}
    assert spec["cpuDetail"]["159"] == {"numa": 1, "socket": 1, "core": 79}
