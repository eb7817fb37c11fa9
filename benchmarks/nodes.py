"""Machines, configurations, devices and pods that the benchmarks use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from podslice import KubeletConfig
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.model import HugePages, Machine
from podslice.machine.readers.synthetic import from_synthetic

Prepare = Callable[[], Callable[[], Any]]
CURVE_NODES = (2, 4, 8, 16, 32, 64)
GIB = 1 << 30


def machine(nodes: int, *, cpus_per_node: int = 16, without_cpus: int = 0, huge: bool = False) -> Machine:
    """A machine of two packages (one for a single node) with 64 GiB on every NUMA node."""
    packages = 1 if nodes == 1 else 2
    made = from_synthetic(f"pack:{packages} numa:{nodes // packages} core:{cpus_per_node // 2} pu:2(indexes=pu)")
    pools = (HugePages(2048, 4096), HugePages(1 << 20, 8)) if huge else ()
    listed = [msgspec.structs.replace(node, memory=64 * GIB, hugepages=pools) for node in made.nodes]
    listed += [msgspec.structs.replace(listed[0], id=nodes + i, cores=(), hugepages=pools) for i in range(without_cpus)]
    number = len(listed)
    distances = [
        tuple(10 if i == j else 12 if i * 2 // number == j * 2 // number else 32 for j in range(number))
        for i in range(number)
    ]
    listed = [msgspec.structs.replace(node, distances=distances[node.id]) for node in listed]
    return msgspec.structs.replace(made, nodes=tuple(listed), memory_capacity=None)


def config(*, memory: bool, policy: str = "restricted", scope: str = "container") -> KubeletConfig:
    return KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        memory_manager_policy="Static" if memory else "None",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),) if memory else (),
        eviction_hard={},
        max_pods=1000,
    )


def devices(nodes: int) -> DeviceInventory:
    return inventory_from_data(
        [
            {
                "resource": f"example.com/{kind}",
                "devices": [{"id": f"{kind}-{n}-{i}", "numa": [n]} for n in range(nodes) for i in range(4)],
            }
            for kind in ("gpu", "nic")
        ]
    )


def pod(uid: str = "bench", *, cpus: int = 4, containers: int = 1, further: Mapping[str, str] | None = None) -> Pod:
    amounts = {"cpu": str(cpus), "memory": "1Gi", **(further or {})}
    listed = [{"name": f"c{i}", "resources": {"requests": amounts, "limits": amounts}} for i in range(containers)]
    return pod_from_dict({"metadata": {"uid": uid, "name": uid, "namespace": "x"}, "spec": {"containers": listed}})


ALL_RESOURCES = {"hugepages-2Mi": "64Mi", "hugepages-1Gi": "1Gi", "example.com/gpu": "1", "example.com/nic": "1"}
