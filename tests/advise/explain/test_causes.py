"""Causes of refusals as values: the constraint, its least amount, who has the rest, and what comes next."""

from __future__ import annotations

from typing import Any

from podslice import KubeletConfig, Node, Pod, explain
from podslice.advise.explain.causes.cause import Cause
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.readers.synthetic import from_synthetic

GIB = 1 << 30
GPU = "example.com/gpu"
TWO_NODES = "pack:2 numa:1(memory=16GiB) core:8 pu:1"


def pod(name: str, *containers: dict[str, str], init: tuple[dict[str, str], ...] = ()) -> Pod:
    """Return a Guaranteed pod with these limits of its containers, c0, c1 and so on."""

    def made(prefix: str, limits: tuple[dict[str, str], ...]) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{i}", "resources": {"limits": one}} for i, one in enumerate(limits)]

    spec = {"containers": made("c", containers), "initContainers": made("i", init)}
    return pod_from_dict({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": spec})


def cpus(number: int, memory: str = "1Gi", **more: str) -> dict[str, str]:
    return {"cpu": str(number), "memory": memory, **more}


def node(
    policy: str, *running: Pod, machine: str = TWO_NODES, devices: DeviceInventory | None = None, **more: Any
) -> Node:
    """Return a node of two NUMA nodes with 8 CPUs each, of which the first is reserved, on which pods run."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy=policy,
        reserved_system_cpus=more.pop("reserved", "0"),
        eviction_hard={},
        **more,
    )
    made = Node(from_synthetic(machine), config, devices=devices, predicates=False)
    for one in running:
        assert made.admit(one).admitted
    return made


def cause(made: Node, asked: Pod) -> Cause:
    """Return the binding cause of a refusal."""
    return explain(made, asked, fixes=False).causes.found[0]


def held(one: Cause) -> dict[str, int]:
    """Return the amounts by kind of holder and name."""
    return {f"{holder.kind} {holder.name or holder.container}".strip(): holder.amount for holder in one.holders}


def test_a_shortage_names_its_numa_node_and_holders() -> None:
    """The nearest NUMA node is named with the least that lacks there, and with everybody who has CPUs of it."""
    found = cause(node("single-numa-node", pod("x", cpus(5)), pod("y", cpus(3))), pod("new", cpus(6)))
    assert (found.code, str(found.nodes), found.need, found.free, found.short) == ("short", "1", 6, 5, 1)
    assert (held(found), found.capacity, found.next, found.proven) == ({"pod a/y": 3}, 8, None, True)


def test_causes_of_one_place_follow_each_other() -> None:
    """CPUs and memory of a NUMA node lack together: with the CPUs alone the memory would be the cause."""
    made = node(
        "single-numa-node",
        pod("x", cpus(5, "10Gi")),
        pod("y", cpus(6, "12Gi")),
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    found = cause(made, pod("new", cpus(4, "8Gi")))
    assert [(one.resource, one.short) for one in found.chain] == [("cpu", 2), ("memory", 3 * GIB)]
    assert held(found) == {"pod a/x": 5, "reserved": 1}


def test_what_no_state_of_the_node_helps() -> None:
    """More CPUs than a NUMA node has for pods: what the configuration keeps is named, and how much there could be."""
    found = cause(node("single-numa-node", reserved="0,8"), pod("new", cpus(8)))
    assert (found.code, found.need, found.capacity, held(found)) == ("too-big", 8, 7, {"reserved": 1})


def test_reserved_cpus_that_are_counted() -> None:
    """v1.36.2 counts reserved CPUs for the fewest NUMA nodes; without that the pod would be admitted."""
    made = Node(
        from_synthetic(TWO_NODES),
        KubeletConfig(cpu_manager_policy="static", topology_manager_policy="restricted", reserved_system_cpus="0,8"),
        profile="kubelet-1.36",
    )
    found = cause(made, pod("new", cpus(8)))
    assert (found.code, str(found.nodes), found.capacity, found.proven) == ("reserved-counted", "0-1", 7, True)


def test_an_init_container_that_has_ended() -> None:
    """CPUs that stay with an ended init container are named as such (kubernetes/kubernetes#112228)."""
    made = Node(
        from_synthetic("pack:1 numa:1(memory=16GiB) core:2 pu:2"),
        KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"),
        profile="kubelet-1.36",
    )
    assert made.admit(pod("leaky", cpus(2), init=(cpus(1),))).admitted
    found = cause(made, pod("next", cpus(1)))
    assert (found.code, found.short) == ("short", 1)
    assert held(found) == {"pod a/leaky": 2, "ended-init a/leaky": 1, "reserved": 1}


def test_an_earlier_container_of_the_pod() -> None:
    """No pod is in the way, but the pod's own first container."""
    found = cause(node("none"), pod("new", cpus(10), cpus(6)))
    assert (found.code, found.container, found.need, found.free) == ("own-containers", "c1", 6, 5)
    assert held(found) == {"own c0": 10, "reserved": 1}


def test_what_an_init_container_leaves_elsewhere() -> None:
    """The container must use the init container's CPU on NUMA node 0, which has too few; without it the other NUMA node
    would do (kubernetes/kubernetes#94220)."""
    answer = explain(node("single-numa-node"), pod("new", cpus(8), init=(cpus(1),)), fixes=False)
    found = answer.causes.found[0]
    assert (found.code, str(found.nodes), found.need, found.free) == ("held-elsewhere", "0", 8, 7)
    assert (found.facts, found.proven) == (("1",), True)
    assert answer.why[0].endswith("where it needs 8 CPUs and 7 are free; without them NUMA node 1 would do.")


def test_unhealthy_devices() -> None:
    """A sick device lacks, and is counted among what is in the way."""
    devices = tuple(Device(f"g{i}", (0,), "Healthy" if i else "Unhealthy") for i in range(3))
    inventory = DeviceInventory((DeviceResource(GPU, devices),))
    made = node("single-numa-node", pod("x", cpus(1, **{GPU: "1"})), devices=inventory)
    found = cause(made, pod("new", cpus(1, **{GPU: "3"})))
    assert (found.code, found.resource, found.need, found.free, found.short) == ("short", GPU, 3, 1, 2)
    assert held(found) == {"pod a/x": 1, "unhealthy": 1}


def test_whole_cores() -> None:
    """An odd number of CPUs is refused whatever is free; the size of a core is a fact of the cause."""
    made = node("none", machine="pack:1 numa:1 core:4 pu:2", cpu_manager_policy_options={"full-pcpus-only": "true"})
    found = cause(made, pod("new", cpus(3)))
    assert (found.code, found.short, found.facts) == ("whole-cores", 0, ("smt-fraction", "2"))


def test_widths_that_differ() -> None:
    """Restricted wants CPUs on two NUMA nodes and memory on one: no state of the node is both."""
    made = node(
        "restricted",
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    answer = explain(made, pod("new", cpus(10)), fixes=False)
    assert answer.causes.found[0].code == "narrowest"
    assert answer.why[0].startswith(
        "restricted wants every resource of container c0 on as few NUMA nodes as could hold"
    )
    assert "10 CPUs on 2 and 1Gi memory on one NUMA node" in answer.why[0]


def test_requests_of_all_pods() -> None:
    """The general predicates count requests, in thousandths of a CPU, and the other pods with what they request."""
    made = Node(from_synthetic(TWO_NODES), KubeletConfig(reserved_system_cpus="0"))
    assert made.admit(pod("x", {"cpu": "14500m", "memory": "1Gi"})).admitted
    found = cause(made, pod("new", cpus(2)))
    assert (found.code, found.unit, found.need, found.free, found.short) == ("node-total", "milliCPUs", 2000, 500, 1500)
    assert held(found) == {"pod a/x": 14500}
