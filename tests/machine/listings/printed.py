"""Output of programs about a machine, made from a `Machine`: enough of each to read it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from podslice.machine.model import Machine
from podslice.values.cpuset import bits_of, format_bits


class Row(NamedTuple):
    cpu: int
    core: int
    socket: int
    node: int
    l3: int


def rows(machine: Machine) -> list[Row]:
    """Return a row with the place of each CPU. Cores and caches are counted anew, as lscpu does."""
    caches = [cache.cpus for cache in machine.caches if cache.level == 3]
    found, core = [], 0
    for node in sorted(machine.nodes, key=lambda node: node.id):
        for one in sorted(node.cores, key=lambda core: min(core.threads)):
            for cpu in one.threads:
                l3 = next((number for number, cpus in enumerate(caches) if cpu in cpus), one.socket)
                found.append(Row(cpu, core, one.socket, node.id, l3))
            core += 1
    return sorted(found)


def lscpu_e(machine: Machine) -> str:
    lines = [
        f"{r.cpu:3} {r.node:4} {r.socket:6} {r.core:4} {r.core}:{r.core}:{r.core}:{r.l3} yes 4000.0000 1200.0000"
        for r in rows(machine)
    ]
    return "\n".join(["CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ", *lines]) + "\n"


def lscpu_p(machine: Machine) -> str:
    lines = [f"{r.cpu},{r.core},{r.socket},{r.node},,{r.core},{r.core},{r.core},{r.l3}" for r in rows(machine)]
    head = "# The following is the parsable format, which can be fed to other\n# programs.\n"
    return head + "\n".join(["# CPU,Core,Socket,Node,,L1d,L1i,L2,L3", *lines]) + "\n"


def lscpu_json(machine: Machine) -> str:
    cpus = [
        {"cpu": r.cpu, "node": r.node, "socket": r.socket, "core": r.core,
         "l1d:l1i:l2:l3": f"{r.core}:{r.core}:{r.core}:{r.l3}", "online": True}
        for r in rows(machine)
    ]  # fmt: skip
    return json.dumps({"cpus": cpus}, indent=3)


def lscpu(machine: Machine) -> str:
    """The summary, of a machine with equal cores."""
    threads = len(machine.nodes[0].cores[0].threads)
    l3 = len([cache for cache in machine.caches if cache.level == 3])
    fields = [
        ("Architecture", "x86_64"),
        ("CPU(s)", str(machine.cpu_count)),
        ("On-line CPU(s) list", str(machine.cpus)),
        ("Model name", "Some CPU @ 2.00GHz"),
        ("Thread(s) per core", str(threads)),
        ("Core(s) per socket", str(machine.cpu_count // threads // machine.socket_count)),
        ("Socket(s)", str(machine.socket_count)),
        *([("L3 cache", f"256 MiB ({l3} instances)")] if l3 else []),
        ("NUMA node(s)", str(len(machine.nodes))),
        *((f"NUMA node{node} CPU(s)", cpus) for node, cpus in node_cpus(machine)),
        ("Vulnerability Meltdown", "Not affected"),
    ]
    return "".join(f"{name + ':':24} {value}\n" for name, value in fields)


def numactl(machine: Machine) -> str:
    ids = sorted(node.id for node in machine.nodes)
    memory = {node.id: node.memory >> 20 for node in machine.nodes}
    lines = [f"available: {len(ids)} nodes ({format_bits(bits_of(ids))})"]
    for node, cpus in node_cpus(machine):
        listed = " ".join(str(r.cpu) for r in rows(machine) if r.node == node)
        lines.append(f"node {node} cpus: {listed}" if cpus else f"node {node} cpus:")
        lines += [f"node {node} size: {memory[node]} MB", f"node {node} free: {memory[node] // 2} MB"]
    lines += ["node distances:", "node " + " ".join(f"{one:3}" for one in ids)]
    lines += [f"{one:3}: " + " ".join(f"{10 if one == other else 21:3}" for other in ids) for one in ids]
    return "\n".join(lines) + "\n"


def cpuinfo(machine: Machine) -> str:
    return "\n".join(
        f"processor\t: {r.cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU\nphysical id\t: {r.socket}\n"
        f"core id\t\t: {r.core}\ncpu cores\t: 4\nflags\t\t: fpu vme\n"
        for r in rows(machine)
    )


def node_cpus(machine: Machine) -> Iterator[tuple[int, str]]:
    """The CPUs of each NUMA node, by id."""
    for node in sorted(machine.nodes, key=lambda node: node.id):
        yield node.id, format_bits(bits_of(r.cpu for r in rows(machine) if r.node == node.id))
