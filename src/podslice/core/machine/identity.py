"""Which CPU of a machine is which, whatever number the kernel gives it.

The kernel numbers CPUs anew at every boot; firmware that turns SMT or cores off shifts the numbers. The place in the
hardware stays: package, die, core within the package as the hardware numbers it, and which of the core's threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.machine.model import Machine
from podslice.core.values.cpuset import Bits, bits_of, iter_bits


class CPUIdentity(NamedTuple):
    """`thread` is the rank among the threads of the core, lowest number first."""

    package: int
    die: int
    core: int
    thread: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


def parse_identity(text: str) -> CPUIdentity | None:
    """An identity as it prints, None for other text."""
    parts = text.split("/")
    if len(parts) != 4 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return None
    return CPUIdentity(*map(int, parts))


def identities(machine: Machine) -> dict[int, CPUIdentity]:
    """The identity of each CPU by its number."""
    die_of = {cpu: group.id for group in machine.groups_of("die") for cpu in group.cpus}
    found: dict[int, CPUIdentity] = {}
    for node in machine.nodes:
        for core in node.cores:
            for rank, cpu in enumerate(sorted(core.threads)):
                found[cpu] = CPUIdentity(core.socket, die_of.get(cpu, 0), core.core, rank)
    return found


def cpu_map(before: Mapping[int, CPUIdentity], after: Mapping[int, CPUIdentity]) -> dict[int, int]:
    """New numbers by old ones, of the CPUs that are still there. Identities that several CPUs of one side share map
    nothing: they do not say which CPU is which."""
    places = _unique(after)
    return {cpu: places[identity] for identity, cpu in _unique(before).items() if identity in places}


def _unique(cpus: Mapping[int, CPUIdentity]) -> dict[CPUIdentity, int]:
    found: dict[CPUIdentity, int] = {}
    doubles = set()
    for cpu, identity in sorted(cpus.items()):
        if identity in found:
            doubles.add(identity)
        found[identity] = cpu
    return {identity: cpu for identity, cpu in found.items() if identity not in doubles}


def renumbered(cpus: Bits, mapping: Mapping[int, int]) -> Bits | None:
    """A set under its new numbers, None where one of its CPUs is not there any more."""
    numbers = [mapping.get(cpu) for cpu in iter_bits(cpus)]
    known = [number for number in numbers if number is not None]
    return bits_of(known) if len(known) == len(numbers) else None
