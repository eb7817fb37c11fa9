"""/proc/cpuinfo: which CPUs there are, and on x86 their sockets and cores by the kernel's numbers."""

from __future__ import annotations

import re

from podslice.machine.listings.facts import MachineFacts, Totals, parse_cpu, parse_number
from podslice.values.cpuset import bits_of


def is_cpuinfo(text: str) -> bool:
    """Whether the text looks like /proc/cpuinfo."""
    return bool(re.match(r"\s*processor\s*:\s*\d+\s*\n", text))


def from_cpuinfo(text: str, source: str = "") -> MachineFacts:
    """Read /proc/cpuinfo. It knows no NUMA nodes; on arm64 it knows neither sockets nor cores. Raises `InputError`."""
    cpus: list[int] = []
    packages: dict[int, int] = {}
    cores: dict[int, tuple[int, int]] = {}
    name = architecture = ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        number = parse_number(value)
        if key == "processor":
            cpus.append(parse_cpu(value, source))
        elif cpus and key == "physical id" and number is not None:
            packages[cpus[-1]] = number
        elif cpus and key == "core id" and number is not None:
            cores[cpus[-1]] = (packages.get(cpus[-1], 0), number)
        elif key == "model name":
            name, architecture = value, architecture or "x86_64"
        elif key == "CPU implementer":
            architecture = "aarch64"
    numbered = {pair: number for number, pair in enumerate(sorted(set(cores.values())))}
    whole = len(packages) == len(cores) == len(cpus)
    return MachineFacts(
        source=source,
        program="/proc/cpuinfo",
        online=bits_of(cpus),
        places={"core": {cpu: numbered[pair] for cpu, pair in cores.items()}, "socket": packages} if whole else {},
        numbers=frozenset({"socket"}) if whole else frozenset(),
        totals=Totals(cpus=len(cpus)),
        architecture=architecture,
        name=name,
    )
