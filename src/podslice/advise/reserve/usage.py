"""The use of resources by the system beside the pods: reading it, and loading what an agent has recorded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from podslice.advise.reserve.measured import SystemUsage
from podslice.host.filesystem import FileSystem
from podslice.isolation.kernel_facts import read_pairs, text_or_none


class UsageSample(NamedTuple):
    """Counters at time `at` in seconds: `usage` in microseconds of CPU of the cgroups beside the pods, `softirq` in
    hundredths of a second, `memory` in bytes."""

    at: float
    usage: int
    softirq: int
    memory: int


def read_system(cgroups: FileSystem, proc: FileSystem, at: float) -> UsageSample:
    """Read all cgroups at the top but those of pods. Half of the inactive file pages can be reclaimed and do not
    count."""
    usage = memory = 0
    for name in cgroups.entries(""):
        # Also kubepods.slice of the systemd driver.
        if name.startswith("kubepods"):
            continue
        usage += read_pairs(text_or_none(cgroups, f"{name}/cpu.stat")).get("usage_usec", 0)
        current = (text_or_none(cgroups, f"{name}/memory.current") or "").strip()
        if current.isdecimal():
            files = read_pairs(text_or_none(cgroups, f"{name}/memory.stat")).get("inactive_file", 0)
            memory += max(0, int(current) - files // 2)
    line = (text_or_none(proc, "stat") or "").partition("\n")[0].split()
    softirq = int(line[7]) if len(line) > 7 and line[7].isdecimal() else 0
    return UsageSample(at, usage, softirq, memory)


def load_usage(path: Path) -> SystemUsage | None:
    """Load what an agent has recorded; None where it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SystemUsage)
    except (OSError, msgspec.MsgspecError):
        return None
