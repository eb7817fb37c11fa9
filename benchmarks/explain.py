"""What explaining costs: `python -m benchmarks.explain`.

Prints the CPU time of a whole explanation with all fixes on 8 NUMA nodes with 256 CPUs and 100 running pods, and what
recording a trace adds to an admission. Minima over several runs.
"""

from __future__ import annotations

import time

from podslice import KubeletConfig, Node, Pod
from podslice.core.config.kubelet import MemoryReservation
from podslice.core.explain.explain import explain
from podslice.core.explain.record import recording
from podslice.core.machine.synthetic import from_synthetic
from podslice.core.pod.spec import pod_from_dict

_MACHINE = from_synthetic("pack:2 numa:4(memory=64GB) core:16 pu:2")
_RUNS = 40


def _pod(uid: str, *cpus: str) -> Pod:
    containers = [
        {"name": f"c{i}", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}} for i, cpu in enumerate(cpus)
    ]
    return pod_from_dict(
        {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": containers}}
    )


def _config(policy: str, memory: str) -> KubeletConfig:
    return KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        max_pods=250,
        topology_manager_policy=policy,
        eviction_hard={},
        memory_manager_policy=memory,
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )


def _full_node(policy: str, memory: str, *cpus: str) -> Node:
    """A node with 100 pods that are packed."""
    node = Node(_MACHINE, _config(policy, memory))
    for number in range(100):
        node.admit(_pod(f"p{number}", *cpus))
    return node


def _scattered_node(policy: str, memory: str) -> Node:
    """A node with 100 pods of 2 CPUs and holes everywhere."""
    node = Node(_MACHINE, _config(policy, memory))
    for number in range(125):
        node.admit(_pod(f"p{number}", "2"))
    for number in range(0, 125, 5):
        node.remove(f"p{number}")
    return node


def explaining() -> None:
    """Refused pods of several kinds on full and on scattered nodes."""
    for policy in ("restricted", "single-numa-node"):
        for memory in ("None", "Static"):
            nodes = {
                "packed 2": _full_node(policy, memory, "2"),
                "packed 2+500m": _full_node(policy, memory, "2", "500m"),
                "scattered": _scattered_node(policy, memory),
            }
            for name, node in nodes.items():
                for cpus in ("8", "16", "64"):
                    _explain(f"{policy:<17} memory {memory:<7} {name:<14} new {cpus:>3}", node, cpus)


def _explain(what: str, node: Node, cpus: str) -> None:
    best, code, fixes = 1e9, "", 0
    for _ in range(2):
        start = time.process_time()
        answer = explain(node.kubelet, _pod("new", cpus))
        best = min(best, time.process_time() - start)
        code, fixes = answer.trace.code or "admitted", len(answer.fixes)
    print(f"explain {what}: {best:5.2f} s {code}, {fixes} fixes")


def _admissions(recorded: bool) -> float:
    node = Node(_MACHINE, _config("restricted", "Static"))
    for number in range(50):
        node.admit(_pod(f"p{number}", "2", "500m"))
    pods = [_pod(f"q{number}", "2", "1") for number in range(20)]
    start = time.process_time()
    for pod in pods:
        if recorded:
            with recording(node.kubelet):
                node.admit(pod)
        else:
            node.admit(pod)
    return (time.process_time() - start) / len(pods)


def recording_overhead() -> None:
    """Admissions with and without a record."""
    runs = [(_admissions(False), _admissions(True)) for _ in range(_RUNS)]
    off, on = (min(times) for times in zip(*runs, strict=True))
    print(f"admission {off * 1e6:.0f} µs, recorded {on * 1e6:.0f} µs: {100 * (on / off - 1):+.1f} %")


if __name__ == "__main__":
    explaining()
    recording_overhead()
