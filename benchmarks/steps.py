"""Every step of a decision by itself: picks, hints and merges on machines from 2 to 64 NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.measure import Case
from benchmarks.nodes import CURVE_NODES, GIB, Prepare, machine
from podslice.machine.memory_accounts import default_machine_state
from podslice.machine.model import CPUTopology, Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.cpu.picking.picker import Picker
from podslice.node.devices.hints import Coverage
from podslice.node.memory.hints import memory_hints
from podslice.node.topology.hintset import ResourceHints
from podslice.node.topology.merge import Merger
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of
from podslice.values.quirks import PODSLICE

STRATEGIES = {
    "packed": CPUPolicyOptions(),
    "uncore": CPUPolicyOptions(prefer_align_cpus_by_uncorecache=True),
    "spread": CPUPolicyOptions(distribute_cpus_across_cores=True),
    "distributed": CPUPolicyOptions(distribute_cpus_across_numa=True),
    "distributed, whole cores": CPUPolicyOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
}


def cases() -> Iterator[Case]:
    yield from picks()
    yield from merges()


def picks() -> Iterator[Case]:
    """Half of the CPUs, fragmented, for a quarter of the machine."""
    for cpus in (16, 64, 256, 1024):
        shape = {16: "pack:1 numa:1 l3:2", 64: "pack:2 numa:1 l3:4", 256: "pack:2 numa:4 l3:4"}
        per_cache = {16: 4, 64: 4, 256: 4, 1024: 8}[cpus]
        made = from_synthetic(f"{shape.get(cpus, 'pack:4 numa:4 l3:4')} core:{per_cache} pu:2(indexes=pu)")
        for name, options in STRATEGIES.items():
            yield Case("pick", f"{cpus // 4} of {cpus} CPUs, {name}", partial(_pick, made, cpus, options))


def _pick(made: Machine, cpus: int, options: CPUPolicyOptions) -> Prepare:
    topology = CPUTopology(made)
    free = bits_of(cpu for cpu in range(cpus) if cpu * 7 % 64 < 45)
    picker = Picker(topology, options, PODSLICE)
    return lambda: lambda: picker.take(free, cpus // 4)


def _sets(nodes: int, number: int, *, preferred: bool) -> list[ResourceHints]:
    """Hints of `number` resources. Preferred: one node would do; otherwise the first one needs two."""
    topology = CPUTopology(machine(nodes))
    wide = 16 if preferred else 24
    hints: list[ResourceHints] = [cpu_topology_hints(topology, topology.all_cpus, 0, wide, align_by_socket=False) or []]
    on_node: dict[int, Bits] = {node: 0b1111 << 4 * node for node in range(nodes)}
    free = bits_of(range(4 * nodes))
    for place in range(1, number):
        hints.append(Coverage(on_node, tuple(range(nodes))).hints(free, 1 + place % 3) or [])
    return hints


def merges() -> Iterator[Case]:
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
    return lambda: lambda: cpu_topology_hints(topology, topology.all_cpus, 0, 4, align_by_socket=False)


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
