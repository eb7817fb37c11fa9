"""Random fragmented nodes and pods that do not fit on them, and the fewest moves by trying everything."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from podslice import KubeletConfig, Node, Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic

GPU = "example.com/gpu"


class Fragmented(NamedTuple):
    node: Node
    pods: tuple[Pod, ...]


def pod(uid: str, *cpus: str, memory: str = "256Mi", gpu: bool = False, budget: str = "", init: str = "") -> Pod:
    """Return a Guaranteed pod with one container for each of `cpus`."""

    def resources(cpu: str) -> dict[str, Any]:
        amounts = {"cpu": cpu, "memory": memory, **({GPU: "1"} if gpu else {})}
        return {"requests": amounts, "limits": amounts}

    spec: dict[str, Any] = {"containers": [{"name": f"c{i}", "resources": resources(c)} for i, c in enumerate(cpus)]}
    if init:
        spec["initContainers"] = [{"name": "init", "resources": resources(init)}]
    if budget:
        amounts = {"cpu": budget, "memory": "1Gi"}
        spec["resources"] = {"requests": amounts, "limits": amounts}
    return pod_from_dict({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec})


def fragmented(
    seed: int, machine: str, *, pods: int, sizes: str, memory: bool, leave: int = 2, profile: str = "podslice"
) -> Fragmented:
    """Return a node on which pods came and went, and pods that it might refuse."""
    random = Random(seed)
    options = random.choice([{}, {}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}])
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=options,
        topology_manager_policy=random.choice(["none", "best-effort", "restricted", *["single-numa-node"] * 3]),
        topology_manager_scope=random.choice(["container", "pod"]),
        reserved_system_cpus="0",
        eviction_hard={},
        memory_manager_policy="Static" if memory else "None",
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        feature_gates={"PodLevelResourceManagers": True},
    )
    devices = (
        inventory_from_data([{"resource": GPU, "perNUMANode": {0: 2, 1: 1}}])
        if random.random() < 0.3
        else DeviceInventory()
    )
    node = Node(from_synthetic(machine), config, devices=devices, predicates=random.random() < 0.5, profile=profile)
    for number in range(pods):
        node.admit(_random_pod(random, f"p{number}", sizes, bool(devices)))
    for uid in random.sample(list(node.kubelet.active), len(node.kubelet.active) // leave):
        node.remove(uid)
    wanted = [_random_pod(random, f"new{i}", "2344668", False) for i in range(4)]
    return Fragmented(node, tuple(wanted))


def _random_pod(random: Random, uid: str, sizes: str, gpus: bool) -> Pod:
    cpus = [random.choice(sizes) for _ in range(random.choice([1, 1, 1, 2]))]
    if random.random() < 0.15:
        cpus[0] = "500m"
    return pod(
        uid,
        *cpus,
        memory=random.choice(["256Mi", "1Gi", "2Gi"]),
        gpu=gpus and random.random() < 0.3,
        budget=random.choice("346") if random.random() < 0.12 else "",
        init=random.choice(sizes) if random.random() < 0.12 else "",
    )
