"""Identities of CPUs that survive a renumbering by the kernel.

The kernel numbers CPUs anew at every boot; firmware that turns SMT or cores off shifts the numbers. The place in the
hardware stays: package, die, core within the package as the hardware numbers it, and rank among the core's threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from podslice.machine.model import Machine
from podslice.values.cpuset import Bits, bits_of, iter_bits


class CPUIdentity(NamedTuple):
    """The place of a CPU in the hardware. `thread` is the rank among the threads of the core, lowest number first."""

    package: int
    die: int
    core: int
    thread: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


def parse_identity(text: str) -> CPUIdentity | None:
    """Parse an identity as it prints; None for other text."""
    parts = text.split("/")
    if len(parts) != 4 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return None
    return CPUIdentity(*map(int, parts))


def identities(machine: Machine) -> dict[int, CPUIdentity]:
    """Return the identity of each CPU by its number."""
    die_of = {cpu: group.id for group in machine.groups_of("die") for cpu in group.cpus}
    found: dict[int, CPUIdentity] = {}
    for node in machine.nodes:
        for core in node.cores:
            for rank, cpu in enumerate(sorted(core.threads)):
                found[cpu] = CPUIdentity(core.socket, die_of.get(cpu, 0), core.core, rank)
    return found


def cpu_map(before: Mapping[int, CPUIdentity], after: Mapping[int, CPUIdentity]) -> dict[int, int]:
    """Return the new CPU numbers by the old ones, for CPUs that are still there. An identity that several CPUs of one
    side share maps nothing: it does not say which CPU is which."""
    places = _drop_ambiguous(after)
    return {cpu: places[identity] for identity, cpu in _drop_ambiguous(before).items() if identity in places}


def _drop_ambiguous(cpus: Mapping[int, CPUIdentity]) -> dict[CPUIdentity, int]:
    found: dict[CPUIdentity, int] = {}
    doubles = set()
    for cpu, identity in sorted(cpus.items()):
        if identity in found:
            # Two CPUs in one place: neither can be matched with a CPU of the other side.
            doubles.add(identity)
        found[identity] = cpu
    return {identity: cpu for identity, cpu in found.items() if identity not in doubles}


def renumber(cpus: Bits, mapping: Mapping[int, int]) -> Bits | None:
    """Return a set of CPUs under its new numbers, None where one of them is gone."""
    numbers = [mapping.get(cpu) for cpu in iter_bits(cpus)]
    known = [number for number in numbers if number is not None]
    return bits_of(known) if len(known) == len(numbers) else None


class NodeRecord(msgspec.Struct, frozen=True):
    """A NUMA node: its CPUs, and its memory in bytes."""

    cpus: Bits
    memory: int


class MachineRecord(msgspec.Struct, frozen=True):
    """The record of a machine kept over a reboot: identities of its CPUs, and the NUMA nodes of CPUs and memory."""

    cpus: dict[int, CPUIdentity]
    nodes: dict[int, NodeRecord]

    @classmethod
    def of(cls, machine: Machine) -> MachineRecord:
        """Return the record of a machine as it is."""
        nodes = {
            node.id: NodeRecord(bits_of(cpu for core in node.cores for cpu in core.threads), node.memory)
            for node in machine.nodes
        }
        return cls(identities(machine), nodes)

    def advance(self, machine: Machine, offline: Bits) -> MachineRecord:
        """Return the record of the same machine later. CPUs keep their identity: those that are `offline` now stay in
        the record, and a thread does not become the first of its core because the first one is offline."""
        now = MachineRecord.of(machine)
        kept = {cpu: self.cpus[cpu] for cpu in self.cpus if offline >> cpu & 1}
        cpus = {**kept, **{cpu: self.cpus.get(cpu, identity) for cpu, identity in now.cpus.items()}}
        nodes = {
            id: NodeRecord(node.cpus | (self.nodes[id].cpus & bits_of(kept) if id in self.nodes else 0), node.memory)
            for id, node in now.nodes.items()
        }
        return MachineRecord(dict(sorted(cpus.items())), nodes)

    @property
    def all_cpus(self) -> Bits:
        return bits_of(self.cpus)

    @property
    def cores(self) -> list[Bits]:
        """The CPUs of each core."""
        found: dict[tuple[int, int, int], Bits] = {}
        for cpu, identity in self.cpus.items():
            found[identity[:3]] = found.get(identity[:3], 0) | 1 << cpu
        return list(found.values())

    def node_of(self, cpu: int) -> int | None:
        """Return the NUMA node of a CPU."""
        return next((id for id, node in self.nodes.items() if node.cpus >> cpu & 1), None)
