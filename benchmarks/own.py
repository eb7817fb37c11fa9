"""Our own cases: every step of a decision by itself, and admission over machines from 2 to 64 NUMA nodes."""

from __future__ import annotations

import gc
import gzip
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from benchmarks.measure import Case, Result
from podslice import KubeletConfig, Node
from podslice.core.allocate.cpu_take import take_by_topology
from podslice.core.allocate.memory_static import default_machine_state
from podslice.core.config.kubelet import MemoryReservation
from podslice.core.hints.cpu import cpu_topology_hints
from podslice.core.hints.devices import Coverage
from podslice.core.hints.hint import ResourceHints
from podslice.core.hints.memory import memory_hints
from podslice.core.machine.devices import DeviceInventory, inventory_from_data
from podslice.core.machine.model import HugePages, Machine
from podslice.core.machine.synthetic import from_synthetic
from podslice.core.machine.topology import CPUTopology
from podslice.core.merge.merge import Merger
from podslice.core.pod.spec import Pod, pod_from_dict
from podslice.core.quirks import KUBELET_1_36, PODSLICE
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.cpuset import Bits, bits_of
from podslice.host.store import NodeStore
from podslice.replay.run import compare

Prepare = Callable[[], Callable[[], Any]]
CURVE_NODES = (2, 4, 8, 16, 32, 64)
GIB = 1 << 30
STRATEGIES = {
    "packed": CPUPolicyOptions(),
    "uncore": CPUPolicyOptions(prefer_align_cpus_by_uncorecache=True),
    "spread": CPUPolicyOptions(distribute_cpus_across_cores=True),
    "distributed": CPUPolicyOptions(distribute_cpus_across_numa=True),
    "distributed, whole cores": CPUPolicyOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
}


def machine(nodes: int, *, cpus_per_node: int = 16, without_cpus: int = 0, huge: bool = False) -> Machine:
    """A machine of two packages (one for a single node) with 64 GiB on every NUMA node."""
    packages = 1 if nodes == 1 else 2
    made = from_synthetic(f"pack:{packages} numa:{nodes // packages} core:{cpus_per_node // 2} pu:2")
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


# Steps


def picks() -> Iterator[Case]:
    """Half of the CPUs, fragmented, for a quarter of the machine."""
    for cpus in (16, 64, 256, 1024):
        shape = {16: "pack:1 numa:1 l3:2", 64: "pack:2 numa:1 l3:4", 256: "pack:2 numa:4 l3:4"}
        per_cache = {16: 4, 64: 4, 256: 4, 1024: 8}[cpus]
        made = from_synthetic(f"{shape.get(cpus, 'pack:4 numa:4 l3:4')} core:{per_cache} pu:2")
        for name, options in STRATEGIES.items():
            yield Case("pick", f"{cpus // 4} of {cpus} CPUs, {name}", partial(_pick, made, cpus, options))


def _pick(made: Machine, cpus: int, options: CPUPolicyOptions) -> Prepare:
    topology = CPUTopology(made)
    free = bits_of(cpu for cpu in range(cpus) if cpu * 7 % 64 < 45)
    return lambda: lambda: take_by_topology(topology, free, cpus // 4, options, PODSLICE)


def _sets(nodes: int, number: int, *, preferred: bool) -> list[ResourceHints]:
    """Hints of `number` resources. Preferred: one node would do; otherwise the first one needs two."""
    topology = CPUTopology(machine(nodes))
    wide = 16 if preferred else 24
    hints: list[ResourceHints] = [cpu_topology_hints(topology, topology.all_cpus, 0, wide, False) or []]
    on_node: dict[int, Bits] = {node: 0b1111 << 4 * node for node in range(nodes)}
    free = bits_of(range(4 * nodes))
    for place in range(1, number):
        hints.append(Coverage(on_node, tuple(range(nodes))).hints(free, 1 + place % 3) or [])
    return hints


def steps() -> Iterator[Case]:
    for nodes in CURVE_NODES:
        yield Case("hints", f"CPU, {nodes} NUMA nodes", partial(_cpu_hints, nodes))
        yield Case("hints", f"memory and two huge page sizes, {nodes} NUMA nodes", partial(_memory_hints, nodes))
        yield Case("hints", f"devices, {nodes} NUMA nodes", partial(_device_hints, nodes))
    for nodes in CURVE_NODES:
        for providers in (2, 4, 6):
            for preferred in (True, False):
                kind = "preferred" if preferred else "none preferred"
                name = f"{nodes} NUMA nodes, {providers} resources, {kind}"
                yield Case("merge", name, partial(_merge, nodes, providers, preferred))


def _cpu_hints(nodes: int) -> Prepare:
    topology = CPUTopology(machine(nodes))
    return lambda: lambda: cpu_topology_hints(topology, topology.all_cpus, 0, 4, False)


def _memory_hints(nodes: int) -> Prepare:
    state = default_machine_state(machine(nodes, huge=True), {})
    request = {"memory": GIB, "hugepages-2Mi": 64 << 20, "hugepages-1Gi": GIB}
    return lambda: lambda: memory_hints(state, request, {}, crash=True)


def _device_hints(nodes: int) -> Prepare:
    coverage = Coverage({node: 0b1111 << 4 * node for node in range(nodes)}, tuple(range(nodes)))
    return lambda: lambda: coverage.hints(bits_of(range(4 * nodes)), 2)


def _merge(nodes: int, providers: int, preferred: bool) -> Prepare:
    made = machine(nodes)
    merger = Merger("best-effort", [(node.id, node.distances) for node in made.nodes], closest=True)
    answer = {str(i): hints for i, hints in enumerate(_sets(nodes, providers, preferred=preferred))}
    return lambda: lambda: merger.merge([answer])


# Admission


def _machines(nodes: int) -> tuple[Machine, Machine]:
    """Without and with huge pages; 34 nodes are two with 72 CPUs each and 32 without CPUs, as on GB200."""
    if nodes == 34:
        wide = partial(machine, 2, cpus_per_node=72, without_cpus=32)
    else:
        wide = partial(machine, nodes, cpus_per_node=32 if nodes <= 2 else 16)
    return wide(huge=False), wide(huge=True)


def admissions() -> Iterator[Case]:
    for nodes in (2, 4, 8, 16, 32, 34, 64):
        made, huge = _machines(nodes)
        for scope in ("container", "pod"):
            kinds = {
                "CPU": partial(admission, made, config(memory=False, scope=scope), pod()),
                "CPU + memory": partial(admission, made, config(memory=True, scope=scope), pod()),
                "six resources": partial(
                    admission, huge, config(memory=True, scope=scope), pod(further=ALL_RESOURCES), devices(nodes)
                ),
            }
            for kind, setup in kinds.items():
                yield Case(
                    "admit",
                    f"{nodes} NUMA, {kind}, {scope} scope",
                    setup,
                    target_us=5000 if nodes == 34 and kind == "CPU + memory" else None,
                    curve=kind,
                    nodes=nodes if scope == "pod" and nodes != 34 else 0,
                )
    big = machine(64, cpus_per_node=8)
    wanted = pod(cpus=4, containers=2, further={"example.com/gpu": "1", "example.com/nic": "1"})
    for policy in ("restricted", "best-effort", "single-numa-node"):
        yield Case("admit", f"64 NUMA x 512 CPUs, CPU + memory + 2 devices, pod scope, {policy}",
                   partial(admission, big, config(memory=True, scope="pod", policy=policy), wanted, devices(64)),
                   None, 50_000)  # fmt: skip
    yield Case("admit", "64 NUMA x 512 CPUs, wide pod over 40 nodes, best-effort",
               partial(admission, big, config(memory=True, scope="pod", policy="best-effort"), pod(cpus=320)),
               None, 50_000)  # fmt: skip


def admission(
    made: Machine, settings: KubeletConfig, one: Pod, inventory: DeviceInventory | None = None, kept: int = 0
) -> Prepare:
    """Admission of one pod beside `kept` others; its removal is not timed."""
    node = Node(made, settings, devices=inventory, predicates=False)
    for i in range(kept):
        assert node.admit(pod(f"kept-{i}")).admitted
    decision = node.kubelet.admit(one)
    assert decision is None, decision

    def prepare() -> Callable[[], Any]:
        node.kubelet.remove_pod(one.metadata.uid)
        node.kubelet.collect()
        return lambda: node.kubelet.admit(one)

    return prepare


def _cycle(profile: str) -> Prepare:
    node = Node(machine(2, cpus_per_node=32), config(memory=True), profile=profile, predicates=False)
    kubelet = node.kubelet
    pods = [pod(f"p{i}") for i in range(16)]
    turn = count()

    def cycle() -> None:
        one = pods[next(turn) % len(pods)]
        assert kubelet.admit(one) is None
        kubelet.remove_pod(one.metadata.uid)

    return lambda: cycle


def _readmission(number: int) -> Prepare:
    """Pods after a restart, state files included."""
    made = machine(8, cpus_per_node=64)
    settings = config(memory=True, policy="best-effort")
    node = Node(made, settings)
    pods = [pod(f"p{i}", cpus=1) for i in range(number)]
    assert all(node.admit(one).admitted for one in pods)
    files = dict(node.files)
    return lambda: lambda: Node(made, settings, files=files).readmit(pods)


def _writing(folder: Path) -> Prepare:
    """One more pod admitted and written beside fifty."""
    made = machine(8, cpus_per_node=32)
    store = NodeStore(folder, made, config(memory=True, policy="best-effort"))
    for i in range(50):
        store.admit(pod(f"p{i}", cpus=2))
    one = pod(cpus=2)

    def prepare() -> Callable[[], Any]:
        store.remove("bench")
        return lambda: store.admit(one)

    return prepare


def lives() -> Iterator[Case]:
    for profile in ("podslice", "kubelet-1.36"):
        yield Case("life", f"admit + remove, 2 NUMA x 64 CPUs, CPU + memory, {profile}", partial(_cycle, profile),
                   None, 1e6 / 6000)  # fmt: skip
    yield Case("life", "re-admit 250 pods after a restart", partial(_readmission, 250))
    with tempfile.TemporaryDirectory() as folder:
        yield Case("life", "decide and write both state files, 50 pods", partial(_writing, Path(folder)))


# Figures that are no time of a call


def figures() -> Iterator[Result]:
    yield _memory_of_a_node()
    yield _import_time()
    yield from _replay_rate()


def _memory_of_a_node(number: int = 200) -> Result:
    """Idle simulated nodes that share their machine."""
    made, settings = machine(2, cpus_per_node=32), config(memory=True)
    nodes = [Node(made, settings)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    nodes += [Node(made, settings) for _ in range(number)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = (after - before) / 1024 / number
    return Result("figures", "idle node, 2 NUMA x 64 CPUs, shared machine", round(size, 1), target=20, unit="KiB")


def _import_time() -> Result:
    script = "import time; start = time.perf_counter(); import podslice; print(time.perf_counter() - start)"
    times = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)
        for _ in range(5)
    ]
    return Result("figures", "import podslice", round(min(times) * 1e3, 1), unit="ms")


def _replay_rate() -> Iterator[Result]:
    folder = Path(__file__).parent.parent / "tests" / "vectors"
    for name in ("take", "merge", "managers"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt") as lines:
            records = [json.loads(line) for line in lines]
        start = perf_counter()
        for record in records:
            assert not compare(record, KUBELET_1_36).difference
        rate = len(records) / (perf_counter() - start)
        yield Result("figures", f"replay of recorded decisions, {name}", round(rate), unit="cases/s")
