"""Find out which program printed a text, and read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from podslice.machine.listings.cpuinfo import from_cpuinfo, is_cpuinfo
from podslice.machine.listings.facts import MachineFacts
from podslice.machine.listings.lscpu import from_lscpu, is_lscpu
from podslice.machine.listings.lstopo import from_lstopo, is_lstopo
from podslice.machine.listings.numactl import from_numactl, is_numactl
from podslice.values.errors import InputError

_READERS: tuple[tuple[Callable[[str], bool], Callable[[str, str], MachineFacts]], ...] = (
    (is_lscpu, from_lscpu),
    (is_numactl, from_numactl),
    (is_cpuinfo, from_cpuinfo),
    (is_lstopo, from_lstopo),
)


class _Foreign(NamedTuple):
    program: str
    start: re.Pattern[str]


_CPUS = "give lscpu -e, and numactl -H for the memory"
_FOREIGN = (
    _Foreign("free", re.compile(r"\s+total\s+used\s+free")),
    _Foreign("/proc/meminfo", re.compile(r"MemTotal:")),
    _Foreign("numactl --show", re.compile(r"policy: \w+\n")),
    _Foreign("numastat", re.compile(r"\s+node0\s+(?:node1|\n)")),
    _Foreign("dmidecode", re.compile(r"# dmidecode")),
    _Foreign("lspci", re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d ")),
    _Foreign("lshw", re.compile(r"\S+\n\s+description: ")),
    _Foreign("nvidia-smi", re.compile(r"\w{3} \w{3} +\d+ [\d:]+ \d{4}\s+\+-+|\+-+\+\n\| NVIDIA-SMI")),
    _Foreign("kubectl get nodes", re.compile(r"NAME\s+STATUS\s+ROLES\s+AGE")),
    _Foreign("top", re.compile(r"top - ")),
)
"""Programs whose output says nothing of where CPUs are, and how it begins."""
_TYPED = re.compile(
    r"\s*(?:[^\n]{0,200}[$#>%~] *)?(?:sudo +)?(?:/\S{1,100}/)?"
    r"(?:lscpu|numactl|lstopo(?:-no-graphics)?|hwloc-ls|cat +/proc/cpuinfo)(?: [^\n]{0,200})?\n"
)
"""The line of a terminal on which the command was typed, as a ticket has it above what was printed."""


def read_listing(text: str, source: str = "") -> MachineFacts | None:
    """Return what a text of a known program says, None for a text that none of them printed. Raises `InputError`, also
    for the output of a program that says nothing of where CPUs are."""
    typed = _TYPED.match(text)
    printed = text[typed.end() :] if typed else text
    for recognises, read in _READERS:
        if recognises(printed):
            return read(printed, source)
    for foreign in _FOREIGN:
        if foreign.start.match(printed):
            problem = f"is the output of {foreign.program}, which does not say where CPUs are"
            raise InputError(problem, source=source, remedy=_CPUS)
    return None
