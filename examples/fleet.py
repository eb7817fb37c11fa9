"""First fit on a fleet: where 5 000 pods land on 1 000 nodes, as a scheduler author would try an idea.

    python examples/fleet.py [NODES] [PODS]

Every node decides as its kubelet would, Topology Manager included. A pod that wants more CPUs than a node can still
give away need not ask there; `assignable_cpus` says so at the cost of a comparison.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from podslice import KubeletConfig, Node, Pod, load_gallery, pod_from_dict

SIZES = (1, 2, 4, 8, 12, 16)


def small_pod(number: int, cpus: int) -> Pod:
    """A Guaranteed pod of one container that gets CPUs of its own."""
    limits = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    return pod_from_dict(
        {
            "metadata": {"name": f"pod-{number}", "uid": f"uid-{number}"},
            "spec": {"containers": [{"name": "app", "resources": {"limits": limits}}]},
        }
    )


def first_fit(nodes: list[Node], pods: list[tuple[int, Pod]]) -> Counter[str]:
    """Put every pod on the first node that admits it; count the outcomes."""
    outcomes: Counter[str] = Counter()
    for cpus, pod in pods:
        for node in nodes:
            if len(node.assignable_cpus) < cpus:
                continue
            decision = node.admit(pod)
            outcomes["asked"] += 1
            if decision.admitted:
                outcomes["admitted"] += 1
                break
            outcomes[decision.reason] += 1
        else:
            outcomes["nowhere"] += 1
    return outcomes


def main(node_count: int = 1000, pod_count: int = 5000) -> None:
    machine = load_gallery("xeon-6338-2s")
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0,64",
        topology_manager_policy="single-numa-node",
    )
    nodes = [Node(machine, config) for _ in range(node_count)]
    chance = random.Random(1)
    sizes = [chance.choice(SIZES) for _ in range(pod_count)]
    pods = [(cpus, small_pod(number, cpus)) for number, cpus in enumerate(sizes)]
    start = time.perf_counter()
    outcomes = first_fit(nodes, pods)
    seconds = time.perf_counter() - start
    used = [node for node in nodes if node.pods]
    left = sum(len(node.assignable_cpus) for node in used)
    print(f"{outcomes['admitted']} of {pod_count} pods on {len(used)} of {node_count} nodes in {seconds:.1f} s")
    print(f"asked {outcomes['asked']} times, refused: {outcomes['TopologyAffinityError']} by the Topology Manager")
    print(f"{left} CPUs are left on the nodes in use")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
