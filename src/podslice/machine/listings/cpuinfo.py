"""/proc/cpuinfo: which CPUs there are, and on x86 their sockets and cores by the kernel's numbers."""

from __future__ import annotations

import re

from podslice.machine.listings.facts import MachineFacts, Totals
from podslice.values.cpuset import bits_of
from podslice.values.errors import InputError

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9 _]*?)\s*:\s?(.*)\Z")


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
        match = _FIELD.match(line)
        if match is None:
            continue
        key, value = match[1].strip(), match[2].strip()
        if key == "processor" and value.isdigit() and len(value) < 7:
            cpus.append(int(value))
        elif cpus and key == "physical id" and value.isdigit():
            packages[cpus[-1]] = int(value)
        elif cpus and key == "core id" and value.isdigit():
            cores[cpus[-1]] = (packages.get(cpus[-1], 0), int(value))
        elif key == "model name":
            name, architecture = value, architecture or "x86_64"
        elif key == "CPU implementer":
            architecture = "aarch64"
    if not cpus:
        raise InputError("lists no processor", source=source)
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
