"""The longest admissions of random awkward inputs: `python -m benchmarks.cliffs [INPUTS] [--seed N]`.

Every input is a machine of 4 to 64 NUMA nodes with odd sizes and distances, a configuration, devices on odd sets of
nodes, pods that fill a part of the node, and one more pod. The table shows, by number of NUMA nodes, how long deciding
about that pod took at most (CPU time), and how often a search ended early, which the decision then says.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from podslice import KubeletConfig, Node, PodsliceError, pod_from_dict
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.model import Core, HugePages, Machine, NUMANode

_NODES = (4, 8, 8, 12, 16, 16, 24, 32, 48, 64)
_CPU_OPTIONS = (
    "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "prefer-align-cpus-by-uncorecache",
    "distribute-cpus-across-cores",
)  # fmt: skip
_GATES = dict.fromkeys(
    (
        "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "TopologyManagerPolicyAlphaOptions",
        "TopologyManagerPolicyBetaOptions",
    ),
    True,
)  # fmt: skip


class Input:
    """One node and the pods to try on it, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = r = random.Random(seed)
        self.nodes = r.choice(_NODES)
        self.per_node = min(r.choice((2, 4, 8, 16)), 1024 // self.nodes)
        self.pages = [(2048, 64), (1 << 20, 2)][: r.choice((0, 0, 1, 2))]
        if r.random() < 0.2:
            self.pages = [(4 << i, 64) for i in range(r.choice((4, 12)))]
        self.far = r.choice(("", "unequal", "unequal", "flat"))
        self.resources = tuple(self._devices(f"e.com/d{kind}") for kind in range(r.choice((0, 0, 1, 2, 3, 4))))

    def node(self) -> Node:
        """Raises `PodsliceError` for a configuration that a kubelet does not start with."""
        inventory = DeviceInventory(self.resources)
        node = Node(self._machine(), self._config(), devices=inventory, predicates=False)
        r = self.random
        for number in range(r.choice((0, 0, 5, 20, 60))):
            amounts = {"cpu": str(r.choice((1, 1, 2, 3))), "memory": f"{r.randrange(1, 5000)}Mi"}
            some = (one.resource for one in self.resources if r.random() < 0.5)
            node.admit(pod(f"f{number}", [amounts | {name: str(r.choice((1, 2))) for name in some}]))
        return node

    def pods(self) -> Iterator[Pod]:
        r, n, wide = self.random, self.nodes, self.per_node
        for number in range(3):
            cpus = r.choice((1, 2, 3, 5, wide, wide + 1, n * wide // 2, n * wide // 3 + 1, n))
            amounts = {"cpu": str(cpus), "memory": f"{r.randrange(1, 40000)}Mi"}
            for resource in self.resources:
                if r.random() < 0.7:
                    amounts[resource.resource] = str(r.choice((1, 2, 3, 7, n // 2, n)))
            for size, _ in self.pages:
                if r.random() < 0.4:
                    amounts[f"hugepages-{size}Ki"] = f"{size * r.choice((1, 2, 30))}Ki"
            yield pod(f"x{number}", [amounts] * r.choice((1, 1, 2, 8)), init=[amounts] if r.random() < 0.2 else [])

    def _devices(self, name: str) -> DeviceResource:
        r, ids = self.random, range(self.nodes)
        kind = r.choice(("one", "pair", "many", "none", "all"))

        def numa() -> tuple[int, ...] | None:
            most = {"one": 1, "pair": 2, "many": r.randrange(1, self.nodes + 1), "all": self.nodes}.get(kind)
            return None if most is None else tuple(sorted(r.sample(ids, most)))

        return DeviceResource(name, tuple(Device(f"d{i}", numa()) for i in range(r.choice((4, 16, 64, 256, 1024)))))

    def _machine(self) -> Machine:
        r, n = self.random, self.nodes
        threads, sockets, unequal = r.choice((1, 2)), r.choice((1, 2, 4)), r.random() < 0.5
        pages = tuple(HugePages(size, count) for size, count in self.pages)
        nodes, number = [], 0
        for node in range(n):
            cores = []
            for _ in range(self.per_node // threads):
                cpus = tuple(range(number * threads, (number + 1) * threads))
                cores.append(Core(node * sockets // n, number, cpus, (number // 4,)))
                number += 1
            memory = (1 + r.randrange(16)) << 29 if unequal else 8 << 30
            nodes.append(NUMANode(node, memory, pages, self._distances(node), tuple(cores)))
        return Machine(tuple(nodes))

    def _distances(self, node: int) -> tuple[int, ...] | None:
        if not self.far:
            return None
        others = [20 if self.far == "flat" else self.random.randrange(11, 255) for _ in range(self.nodes)]
        return tuple(10 if other == node else distance for other, distance in enumerate(others))

    def _config(self) -> KubeletConfig:
        r = self.random
        options = {"max-allowable-numa-nodes": "64"} if self.nodes > 8 else {}
        if self.far and r.random() < 0.6:
            options["prefer-closest-numa-nodes"] = "true"
        return KubeletConfig(
            cpu_manager_policy="static",
            cpu_manager_policy_options={name: "true" for name in _CPU_OPTIONS if r.random() < 0.2},
            memory_manager_policy=r.choice(("None", "Static")),
            topology_manager_policy=r.choice(("best-effort", "restricted", "restricted", "single-numa-node")),
            topology_manager_policy_options=options,
            topology_manager_scope=r.choice(("pod", "container")),
            reserved_system_cpus="0",
            system_reserved={"memory": "512Mi"},
            reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
            eviction_hard={},
            feature_gates=_GATES,
        )


def pod(name: str, containers: list[Mapping[str, str]], init: list[Mapping[str, str]] | None = None) -> Pod:
    """A Guaranteed pod; a container is its amounts."""

    def to_specs(prefix: str, amounts: list[Mapping[str, str]]) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{i}", "resources": {"requests": a, "limits": a}} for i, a in enumerate(amounts)]

    spec = {"containers": to_specs("c", containers), "initContainers": to_specs("i", init or [])}
    return pod_from_dict({"metadata": {"name": name, "uid": name}, "spec": spec})


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cliffs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inputs", nargs="?", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    times: dict[int, list[float]] = {n: [] for n in sorted(set(_NODES))}
    early = dict.fromkeys(times, 0)
    worst = dict.fromkeys(times, (0.0, 0))
    seed = arguments.seed * 10**9
    while sum(map(len, times.values())) < arguments.inputs:
        seed += 1
        one = Input(seed)
        try:
            node = one.node()
            for asked in one.pods():
                started = time.thread_time()
                decision = node.admit(asked)
                took = (time.thread_time() - started) * 1000
                times[one.nodes].append(took)
                early[one.nodes] += bool(decision.ended_early)
                worst[one.nodes] = max(worst[one.nodes], (took, seed))
        except PodsliceError:
            continue
    print(f"{'NUMA nodes':>10}{'inputs':>8}{'median ms':>11}{'99 % ms':>9}{'longest ms':>12}{'ended early':>13}  seed")
    for n, found in times.items():
        found.sort()
        middle, high = (found[int(len(found) * part)] if found else 0.0 for part in (0.5, 0.99))
        print(f"{n:>10}{len(found):>8}{middle:>11.2f}{high:>9.1f}{worst[n][0]:>12.1f}{early[n]:>13}  {worst[n][1]}")


if __name__ == "__main__":
    main()
