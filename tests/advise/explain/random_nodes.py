"""Random small nodes with a history of pods, and refused pods on them; the same seed gives the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec

from podslice import KubeletConfig, Node, Pod, StartError, UpstreamDefectError
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.model import HugePages, Machine
from podslice.machine.readers.synthetic import from_synthetic

MACHINES = (
    "pack:1 numa:1(memory=8GiB) core:4 pu:2",
    "pack:2 numa:1(memory=8GiB) core:4 pu:2",
    "pack:1 numa:2(memory=8GiB) core:3 pu:2",
    "pack:2 numa:2(memory=6GiB) l3:2 core:2 pu:2",
    "pack:1 numa:4(memory=4GiB) core:3 pu:1",
)
OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"full-pcpus-only": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
    {"strict-cpu-reservation": "true"},
    {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"},
)
GPU = "example.com/gpu"


class Setup(NamedTuple):
    """A node that can be built again, from nothing, by the same history."""

    machine: Machine
    config: KubeletConfig
    devices: DeviceInventory
    predicates: bool
    profile: str
    running: tuple[Pod, ...]

    def node(self) -> Node:
        return self.empty(self.config, self.machine, self.running)

    def empty(
        self, config: KubeletConfig | None = None, machine: Machine | None = None, pods: tuple[Pod, ...] = ()
    ) -> Node:
        node = Node(
            machine or self.machine,
            config or self.config,
            devices=self.devices,
            predicates=self.predicates,
            profile=self.profile,
        )
        for pod in pods:
            assert node.admit(pod).admitted
        return node

    def in_release(self, release: str) -> Node:
        """Return a node of another release with the same pods."""
        profile = self.profile if self.profile == "podslice" else f"kubelet-{release}"
        kubernetes = release if profile == "podslice" else ""
        node = Node(self.machine, self.config, devices=self.devices, predicates=self.predicates, profile=profile,
                    kubernetes=kubernetes)  # fmt: skip
        assert all(node.admit(pod).admitted for pod in self.running)
        return node


def random_machine(random: Random) -> Machine:
    """Return one of `MACHINES`, with huge pages on some or all of its NUMA nodes or on none."""
    machine = from_synthetic(random.choice(MACHINES))
    pages = random.choice([0, 0, 128, 512])
    nodes = tuple(
        msgspec.structs.replace(node, hugepages=(HugePages(2048, pages),)) if pages else node for node in machine.nodes
    )
    return msgspec.structs.replace(machine, nodes=nodes)


def random_config(random: Random) -> KubeletConfig:
    """Return a configuration with the static CPU Manager and anything beside it."""
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=random.choice(OPTIONS),
        topology_manager_policy=random.choice(["none", "best-effort", "restricted", "single-numa-node"]),
        topology_manager_scope=random.choice(["container", "pod"]),
        reserved_system_cpus=random.choice(["0", "0-1", "1,3"]),
        eviction_hard={},
        memory_manager_policy=random.choice(["None", "Static"]),
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        feature_gates={"PodLevelResourceManagers": random.random() < 0.5},
    )


def random_pod(random: Random, uid: str, gpus: bool) -> Pod:
    """Return a pod of one to three containers with mixed amounts, sometimes init containers or a budget for the pod."""

    def container(name: str) -> dict[str, Any]:
        kind = random.random()
        cpu = random.choice(["1", "2", "2", "3", "4", "4", "6", "8", "500m", "1500m"])
        amounts = {"cpu": cpu, "memory": random.choice(["256Mi", "1Gi", "2Gi", "3Gi", "5Gi"])}
        if random.random() < 0.1:
            amounts["hugepages-2Mi"] = random.choice(["64Mi", "512Mi", "1Gi"])
        if gpus and random.random() < 0.4:
            amounts[GPU] = random.choice(["1", "2", "3"])
        if kind < 0.1:
            return {"name": name, "resources": {}}
        if kind < 0.2:
            extended = {key: value for key, value in amounts.items() if key not in ("cpu", "memory")}
            return {"name": name, "resources": {"requests": amounts, "limits": extended}}
        return {"name": name, "resources": {"requests": amounts, "limits": amounts}}

    spec: dict[str, Any] = {"containers": [container(f"c{i}") for i in range(random.choice([1, 1, 1, 2, 2, 3]))]}
    if random.random() < 0.25:
        init = container("init")
        spec["initContainers"] = [init | ({"restartPolicy": "Always"} if random.random() < 0.5 else {})]
    if random.random() < 0.2:
        budget = {"cpu": random.choice(["4", "6", "8"]), "memory": "6Gi"}
        spec["resources"] = {"requests": budget, "limits": budget}
    return pod_from_dict({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec})


def refusals(seed: int, profile: str = "podslice") -> Iterator[tuple[Setup, Pod]]:
    """Yield refused pods on one random node that fills up."""
    random = Random(seed)
    machine = random_machine(random)
    per_node = {node.id: random.choice([1, 2]) for node in machine.nodes}
    gpus = random.random() < 0.4
    devices = inventory_from_data([{"resource": GPU, "perNUMANode": per_node}] if gpus else [])
    setup = Setup(machine, random_config(random), devices, random.random() < 0.8, profile, ())
    try:
        node = setup.empty()
    except StartError:
        return
    for number in range(random.choice([3, 6, 10])):
        pod = random_pod(random, f"p{number}", gpus)
        try:
            admitted = node.admit(pod).admitted
        except UpstreamDefectError:
            return
        if admitted:
            setup = setup._replace(running=(*setup.running, pod))
        else:
            yield setup, pod
