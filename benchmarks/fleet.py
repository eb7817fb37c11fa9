"""Speed of simulating whole clusters: pods that arrive and leave on equal nodes, in CPU time of one core.

`python -m benchmarks.fleet` prints pods per second, beside published speeds (docs/development/fleet-engine.md).
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from random import Random

from podslice import KubeletConfig, Node
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.run import rare_collections, run_cell
from podslice.fleet.engine.shapes import FleetShape, SchedulerRequests
from podslice.fleet.engine.workload import Workload
from podslice.machine.readers.synthetic import from_synthetic

MACHINE = "pack:2 numa:1(memory=192GiB) l3:1 core:24 pu:2"
CPUS = ((1, 30), (2, 30), (4, 25), (8, 10), (16, 5))
"""Whole CPUs of pods, and how many of a hundred pods request that many."""
LOAD = 0.8
LENGTH_MS = 3_600_000
PUBLISHED = (
    ("kubernetes-scheduler-simulator (FGD, ATC'23)", "18 pods/s on 2 vCPU, 1 213 nodes"),
    ("scheduler_perf (k/k, 2020)", "300-900 pods/s, 500 nodes, no kubelet"),
    ("KWOK", "20 pods/s, no admission"),
)


def one_class(managers: bool) -> FleetClass:
    """Nodes of 96 CPUs, with single-numa-node and both static policies, or with the managers off."""
    config = KubeletConfig(reserved_system_cpus="0,48", eviction_hard={}, max_pods=250)
    if managers:
        config = KubeletConfig(
            cpu_manager_policy="static",
            topology_manager_policy="single-numa-node",
            memory_manager_policy="Static",
            reserved_system_cpus="0,48",
            eviction_hard={},
            system_reserved={"memory": "2Gi"},
            reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}), MemoryReservation(1, {"memory": "1Gi"})),
            max_pods=250,
        )
    node = Node(from_synthetic(MACHINE), config)
    return FleetClass(
        name="equal", rules=node.rules, state=node.state, allocatable=node.rules.counted.node.amounts or {}
    )


def shapes(kind: FleetClass) -> list[FleetShape]:
    """Guaranteed pods of one container with 3 GiB for each CPU."""
    made = []
    for cpus, _ in CPUS:
        amounts = {"cpu": str(cpus), "memory": f"{3 * cpus}Gi"}
        container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
        pod = pod_from_dict({"metadata": {"name": f"cpus-{cpus}"}, "spec": {"containers": [container]}})
        requests = SchedulerRequests.of(pod, kind.rules.gates, kind.rules.quirks)
        made.append(FleetShape(name=f"{cpus} CPUs", pod=pod, requests=requests))
    return made


def churn(nodes: int, pods: int, kinds: list[FleetShape]) -> Workload:
    """Pods that come evenly and stay for an exponential time, so that they would fill 80 % of the CPUs."""
    r = Random(1)
    mean = sum(cpus * share for cpus, share in CPUS) / 100
    gap = LENGTH_MS / (LOAD * 94 * nodes / mean)
    drawn = [index for index, (_, share) in enumerate(CPUS) for _ in range(share)]
    lengths = [max(1, int(r.expovariate(1 / LENGTH_MS))) for _ in range(pods)]
    return Workload.of(kinds, [r.choice(drawn) for _ in range(pods)], [int(i * gap) for i in range(pods)], lengths)


def main() -> int:
    """Run it once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--managers", choices=["on", "off"], default="on")
    parser.add_argument("--policy", choices=["least-allocated", "most-allocated"], default="least-allocated")
    parser.add_argument("--filter", choices=["kube", "kube-nrt", "exact"], default="kube")
    args = parser.parse_args()
    kind = one_class(args.managers == "on")
    fleet = Fleet((kind,), tuple(FleetNode(f"n{i}", 0) for i in range(args.nodes)))
    workload = churn(args.nodes, args.pods, shapes(kind))
    options = CellOptions(policy=args.policy, filter=args.filter, metrics=())
    begun = time.process_time()
    with rare_collections():
        result = run_cell(fleet, workload, options, 1)
    took = time.process_time() - begun
    summary, work = result.summary, result.work
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{args.pods} pods on {args.nodes} nodes, managers {args.managers}, {args.policy}, filter {args.filter}: "
        f"{took:.1f} s CPU, {took / args.pods * 1e6:.0f} us a pod, {args.pods / took:.0f} pods/s, {peak} MiB at most; "
        f"bound {summary['bound']}, refused first {summary['first_refused']}, "
        f"CPUs {summary['cpu_milli_x_ms'] * 100 / max(1, summary['cpu_milli_room'] * summary['measured_ms']):.1f} % on "
        f"average, questions {work['asked']}, computed {work['computed']}"
    )
    for name, speed in PUBLISHED:
        print(f"published: {name}: {speed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
