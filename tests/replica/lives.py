"""Random lives of nodes, with the journal that their owner would write."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from msgspec.structs import replace

from podslice import KubeletConfig, Node, Pod
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import Device, inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.devices.plugin import SimulatedPlugin
from podslice.replica.events import Stamped
from podslice.replica.journal import Journal
from podslice.values.quantity import Quantity
from tests.conftest import make_pod
from tests.properties.test_node import GPU, MACHINES, OPTIONS, with_gpus

VERSION = "test"
NIC = "example.com/nic"


def some_node(rng: random.Random, profile: str) -> Node:
    """A node of any kind that starts."""
    options = rng.choice(OPTIONS)
    policy = rng.choice(["none", "best-effort", "restricted", "single-numa-node"])
    if "align-by-socket" in options and policy == "single-numa-node":
        policy = "restricted"
    config = KubeletConfig(
        cpu_manager_policy=rng.choice(["static", "static", "static", "none"]),
        topology_manager_policy=policy,
        topology_manager_scope=rng.choice(["container", "pod"]),
        reserved_system_cpus=rng.choice(["0", "0-1", "1,3"]),
        eviction_hard={},
        memory_manager_policy=rng.choice(["Static", "None"]),
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        feature_gates={
            "PodLevelResourceManagers": rng.random() < 0.7,
            "CPUManagerPolicyAlphaOptions": True,
            "InPlacePodVerticalScalingExclusiveCPUs": rng.random() < 0.5,
        },
    )
    if config.cpu_manager_policy == "static":
        config = replace(config, cpu_manager_policy_options=options)
    machine = from_synthetic(re.sub(r"numa:(\d)", r"numa:\1(memory=20GiB)", rng.choice(MACHINES)))
    devices = inventory_from_data([{"resource": GPU, "count": 4}])
    return Node(machine, config, profile=profile, devices=devices, predicates=rng.random() < 0.5)


class Life:
    """A node, its journal, and what happens next."""

    def __init__(self, seed: int, profile: str = "podslice") -> None:
        self.rng = random.Random(seed)
        self.node = some_node(self.rng, profile)
        self.journal = Journal(self.node.rules, self.node.state, epoch=seed + 1, version=VERSION)
        self.count = 0
        self.running: dict[str, Pod] = {}

    def steps(self, number: int) -> Iterator[Stamped]:
        """The events of so many things that happen; the state at the start first."""
        yield self.journal.whole_state()
        for _ in range(number):
            had = self.journal.sequence
            self.happen()
            yield from self.journal.events_after(self.journal.epoch, had)

    def happen(self) -> None:
        """One thing."""
        act = self.rng.choice([self._admit, self._admit, self._admit, self._remove, self._resize, self._devices])
        act()

    def _pod(self) -> Pod:
        rng, cpus = self.rng, [None, "500m", "1", "2", "3", "4", "6", "1500m"]
        self.count += 1
        pod = make_pod(
            f"p{self.count}",
            *((f"c{i}", rng.choice(cpus)) for i in range(rng.randint(1, 3))),
            init=tuple((f"i{i}", rng.choice(cpus), rng.random() < 0.4) for i in range(rng.randint(0, 2))),
            budget=rng.choice([None, None, None, "2", "4", "6"]),
            memory=rng.choice(["1Gi", "1Gi", "1.5Gi", "3Gi", "24Gi"]),
        )
        return with_gpus(pod, [rng.randint(0, 2) if rng.random() < 0.3 else 0 for _ in range(5)])

    def _admit(self) -> None:
        pod, node = self._pod(), self.node
        before = node.state
        answer = node.admit(pod)
        if answer.admitted:
            self.running[pod.metadata.uid] = pod
            for uid in answer.preempted:
                del self.running[uid]
            self.journal.record_admission(node.rules, before, node.state, pod)
        else:
            told = {"reason": answer.reason, "message": answer.message}
            self.journal.record_refusal(node.rules, before, node.state, pod, **told)

    def _remove(self) -> None:
        if not self.running:
            return
        uid = self.rng.choice(sorted(self.running))
        del self.running[uid]
        before = self.node.state
        self.node.remove(uid)
        self.journal.record_removal(self.node.rules, before, self.node.state, uid)

    def _resize(self) -> None:
        if not self.running:
            return
        pod = self.running[self.rng.choice(sorted(self.running))]
        one = self.rng.choice(pod.spec.containers)
        if "cpu" not in (one.resources.limits or {}):
            return
        amount = {"cpu": Quantity.parse(self.rng.choice(["1", "2", "3", "5"]))}
        resources = replace(
            one.resources,
            requests={**(one.resources.requests or {}), **amount},
            limits={**(one.resources.limits or {}), **amount},
        )
        containers = tuple(replace(c, resources=resources) if c is one else c for c in pod.spec.containers)
        wanted = replace(pod, spec=replace(pod.spec, containers=containers))
        before = self.node.state
        try:
            answer = self.node.resize(wanted)
        except Exception:
            self.node.state = before
            return
        if answer.outcome == "Allocated":
            self.running[pod.metadata.uid] = wanted
        self.journal.record_resize(self.node.rules, before, self.node.state, wanted, outcome=answer.outcome)

    def _devices(self) -> None:
        health = [self.rng.choice(["Healthy", "Healthy", "Unhealthy"]) for _ in range(4)]
        listed = [Device(f"nic-{i}", (i % 2,), one) for i, one in enumerate(health)]
        if NIC not in self.node.state.device.pools:
            self.node.register_devices(NIC, listed, SimulatedPlugin())
        else:
            self.node.update_devices(NIC, listed)
        self.journal.settle(self.node.rules, self.node.state)
