"""Small fleets and workloads."""

from __future__ import annotations

from random import Random
from typing import Any

from podslice import KubeletConfig, Node
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import MemoryReservation
from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode
from podslice.fleet.engine.shapes import FleetShape, SchedulerRequests
from podslice.fleet.engine.workload import Workload
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import PROFILES
from tests.conftest import make_pod

GATES = FeatureGates.from_overrides({}, fixes=later_gates(PROFILES["podslice"]))
TWO_NUMA = "pack:2 numa:1(memory=16GiB) core:8 pu:1"
"""Sixteen CPUs, eight on each NUMA node."""


def fleet_class(machine: str = TWO_NUMA, name: str = "a", *, gpus: int = 0, **settings: Any) -> FleetClass:
    """A started kubelet; by default static, single-numa-node, CPU 0 reserved."""
    config = {
        "cpu_manager_policy": "static",
        "topology_manager_policy": "single-numa-node",
        "reserved_system_cpus": "0",
        "eviction_hard": {},
        **settings,
    }
    if config.get("memory_manager_policy") == "Static":
        config["system_reserved"] = {"memory": "1Gi"}
        config["reserved_memory"] = (MemoryReservation(0, {"memory": "1Gi"}),)
    devices = inventory_from_data([{"resource": "example.com/gpu", "count": gpus}]) if gpus else None
    node = Node(from_synthetic(machine), KubeletConfig(**config), devices=devices)
    amounts = node.rules.counted.node.amounts
    assert amounts is not None
    return FleetClass(name=name, rules=node.rules, state=node.state, allocatable=dict(amounts), gpus=gpus)


def fleet_of(nodes: int, *classes: FleetClass) -> Fleet:
    """Nodes of the classes in turn."""
    kinds = classes or (fleet_class(),)
    return Fleet(kinds, tuple(FleetNode(f"n{i}", i % len(kinds)) for i in range(nodes)))


def shape_of_pod(pod: Pod, **fields: Any) -> FleetShape:
    """A shape with what a scheduler counts of the pod."""
    return FleetShape(
        name=pod.metadata.name, pod=pod, requests=SchedulerRequests.of(pod, GATES, PROFILES["podslice"]), **fields
    )


def shape(cpus: str, memory: str = "1Gi", **fields: Any) -> FleetShape:
    """A Guaranteed pod of one container."""
    return shape_of_pod(make_pod(f"cpu{cpus}", ("c", cpus), memory=memory), **fields)


def churn(
    shapes: list[FleetShape], pods: int, *, seed: int = 1, gap: int = 700, length: int = 20_000, step: int = 100
) -> Workload:
    """Pods that come and go at random, at multiples of `step` milliseconds."""
    r = Random(seed)
    at, arrivals, lengths = 0, [], []
    for _ in range(pods):
        at += r.randrange(0, 2 * gap, step)
        arrivals.append(at)
        lengths.append(r.randrange(step, 2 * length, step) if r.random() < 0.9 else -1)
    return Workload.of(shapes, [r.randrange(len(shapes)) for _ in range(pods)], arrivals, lengths)
