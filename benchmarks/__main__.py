"""Benchmarks of the decision core: `python -m benchmarks [--json] [--compare OLD.json]`.

One line per case: median and 99th percentile in microseconds, and the ratio to the Go code where a figure for
Kubernetes v1.36.2 on such a machine is known. Single thread, no disk, garbage collection as it is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any, NamedTuple

import msgspec

from benchmarks.api import PODS_PER_SECOND, pipeline, recorded_pods
from podslice import KubeletConfig, Node
from podslice.core.allocate.cpu_take import take_by_topology
from podslice.core.config.kubelet import MemoryReservation
from podslice.core.machine.devices import inventory_from_data
from podslice.core.machine.model import HugePages
from podslice.core.machine.synthetic import from_synthetic
from podslice.core.machine.topology import CPUTopology
from podslice.core.pod.spec import Pod, pod_from_dict
from podslice.core.quirks import KUBELET_1_36, PODSLICE, PROFILES
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import bits_of

LONGEST_US = 3_000_000
"""Stop repeating a case after this much time."""


class Case(NamedTuple):
    """`prepare` returns the function that is timed; it runs before every repetition, untimed."""

    name: str
    prepare: Callable[[], Callable[[], Any]]
    go_us: float | None = None
    target_us: float | None = None


def pod(cpus: int, containers: int = 1, uid: str = "bench") -> Pod:
    resources = {"cpu": str(cpus), "memory": "64Mi"}
    return pod_from_dict(
        {
            "metadata": {"name": uid, "uid": uid, "namespace": "default"},
            "spec": {
                "containers": [
                    {"name": f"c{i}", "resources": {"requests": resources, "limits": resources}}
                    for i in range(containers)
                ]
            },
        }
    )


def admission(machine: str, scope: str, policy: str, one: Pod, profile: str = "podslice") -> Callable[[], Any]:
    """Admission of one pod on an empty node, then its removal (untimed)."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        eviction_hard={},
    )
    node = Node(from_synthetic(machine), config, profile=profile)

    def prepare() -> Callable[[], Any]:
        node.remove(one.metadata.uid)
        return lambda: node.kubelet.admit(one)

    return prepare


def six_resources(nodes: int, policy: str) -> Callable[[], Any]:
    """Admission of a pod that asks for CPUs, memory, two huge page sizes and two devices."""
    machine = from_synthetic(f"pack:2 numa:{nodes // 2} core:16 pu:2")
    pools = (HugePages(2048, 4096), HugePages(1 << 20, 8))
    machine = msgspec.structs.replace(
        machine,
        nodes=tuple(msgspec.structs.replace(n, memory=64 << 30, hugepages=pools) for n in machine.nodes),
        memory_capacity=None,
    )
    devices = inventory_from_data(
        [
            {
                "resource": f"example.com/{kind}",
                "devices": [{"id": f"{kind}{n}-{i}", "numa": [n]} for n in range(nodes) for i in range(4)],
            }
            for kind in ("gpu", "nic")
        ]
    )
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
        topology_manager_policy=policy,
        topology_manager_scope="container",
        eviction_hard={},
    )
    node = Node(machine, config, devices=devices)
    amounts = {"cpu": "4", "memory": "4Gi", "hugepages-2Mi": "64Mi", "hugepages-1Gi": "1Gi",
               "example.com/gpu": "1", "example.com/nic": "1"}  # fmt: skip
    one = pod_from_dict(
        {
            "metadata": {"uid": "six"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]},
        }
    )

    def prepare() -> Callable[[], Any]:
        node.remove("six")
        return lambda: node.kubelet.admit(one)

    return prepare


def readmission(count: int) -> Callable[[], Any]:
    """Re-admission of many pods after a restart, state files included."""
    machine = from_synthetic("pack:2 numa:4(memory=64GiB) core:32 pu:2")
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
        topology_manager_policy="best-effort",
        eviction_hard={},
        max_pods=1000,
    )
    node = Node(machine, config)
    pods = [pod(1, uid=f"p{i}") for i in range(count)]
    assert all(node.admit(one).admitted for one in pods)
    files = dict(node.files)

    def prepare() -> Callable[[], Any]:
        return lambda: Node(machine, config, files=files).readmit(pods)

    return prepare


def picking(options: CPUPolicyOptions, quirks: Any) -> Callable[[], Any]:
    topology = CPUTopology(from_synthetic("pack:2 numa:4 l3:4 core:4 pu:2"))
    free = bits_of(cpu for cpu in range(256) if cpu * 7 % 64 < 45)
    return lambda: lambda: take_by_topology(topology, free, 64, options, quirks)


SMALL, LARGE = "pack:2 numa:1 core:16 pu:2", "pack:2 numa:4 core:16 pu:2"
STRATEGIES = {
    "packed": CPUPolicyOptions(),
    "uncore": CPUPolicyOptions(prefer_align_cpus_by_uncorecache=True),
    "spread": CPUPolicyOptions(distribute_cpus_across_cores=True),
    "distributed": CPUPolicyOptions(distribute_cpus_across_numa=True),
    "distributed, whole cores": CPUPolicyOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
}


def cases() -> Iterator[Case]:
    one = admission(SMALL, "container", "restricted", pod(4))
    yield Case("admit 1x4, 2 NUMA x 64 CPUs, container scope", one, 318, 150)
    same = admission(SMALL, "container", "restricted", pod(4), "kubelet-1.36")
    yield Case("the same in profile kubelet-1.36", same, 318, 150)
    yield Case("admit 1x8, 8 NUMA x 256 CPUs, pod scope", admission(LARGE, "pod", "restricted", pod(8)), 4000, 1000)
    two = admission(LARGE, "pod", "single-numa-node", pod(8, 2))
    yield Case("admit 2x8, 8 NUMA x 256 CPUs, pod, single-numa-node", two, None, 1000)
    yield Case("admit 1x80, 8 NUMA x 256 CPUs, best-effort", admission(LARGE, "container", "best-effort", pod(80)))
    yield Case("six resources, 4 NUMA x 128 CPUs, restricted", six_resources(4, "restricted"), 2_200_000, 5000)
    yield Case("six resources, 8 NUMA x 256 CPUs, restricted", six_resources(8, "restricted"), None, 5000)
    yield Case("re-admit 250 pods after a restart", readmission(250), None, 500_000)
    for name, options in STRATEGIES.items():
        yield Case(f"pick 64 of 180, 8 NUMA x 256 CPUs, {name}", picking(options, KUBELET_1_36), None, 200)
    yield Case("pick 64 of 180, profile podslice, packed", picking(CPUPolicyOptions(), PODSLICE), None, 200)
    pods = recorded_pods()
    for name in PROFILES:
        target = len(pods) / PODS_PER_SECOND * 1_000_000
        yield Case(f"API server's work on {len(pods)} pods, {name}", partial(pipeline, pods, name), None, target)


def measure(case: Case, repeat: int) -> dict[str, Any]:
    times: list[float] = []
    for _ in range(repeat):
        if sum(times) > LONGEST_US and len(times) >= 5:
            break
        run = case.prepare()
        start = perf_counter_ns()
        run()
        times.append((perf_counter_ns() - start) / 1000)
    times.sort()
    return {
        "name": case.name,
        "median_us": round(statistics.median(times), 1),
        "p99_us": round(times[int(len(times) * 0.99)], 1),
        "go_us": case.go_us,
        "target_us": case.target_us,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", metavar="OLD.json")
    parser.add_argument("--repeat", type=int, default=400)
    arguments = parser.parse_args()
    results = [measure(case, arguments.repeat) for case in cases()]
    if arguments.json:
        json.dump(results, sys.stdout, indent=1)
        print()
        return
    old = {}
    if arguments.compare:
        with open(arguments.compare, encoding="utf-8") as file:
            old = {result["name"]: result["median_us"] for result in json.load(file)}
    print(
        f"{'case':<52}{'median us':>10}{'p99 us':>10}{'target':>9}{'Go us':>9}{'Go/ours':>9}" + "   old/new" * bool(old)
    )
    for result in results:
        median = result["median_us"]
        go = result["go_us"]
        line = f"{result['name']:<56}{median:>10}{result['p99_us']:>10}{result['target_us'] or '-':>9}{go or '-':>9}"
        line += f"{go / median:>9.1f}" if go else f"{'-':>9}"
        if result["name"] in old:
            line += f"{old[result['name']] / median:>10.2f}"
        print(line)


if __name__ == "__main__":
    main()
