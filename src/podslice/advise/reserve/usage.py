"""What the system beside the pods uses: reading it, and what an agent has recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from podslice.advise.reserve.measured import SystemUsage
from podslice.host.filesystem import FileSystem
from podslice.isolation.kernel_facts import pairs_in, text_or_none


class UsageSample(NamedTuple):
    """At one moment: microseconds that cgroups beside the pods have used, hundredths of a second of softirqs, bytes."""

    at: float
    usage: int
    softirq: int
    memory: int


def read_system(cgroups: FileSystem, proc: FileSystem, at: float) -> UsageSample:
    """All cgroups at the top but those of pods; half of the pages of files can be had back and do not count."""
    usage = memory = 0
    for name in cgroups.entries(""):
        if name.startswith("kubepods"):
            continue
        usage += pairs_in(text_or_none(cgroups, f"{name}/cpu.stat")).get("usage_usec", 0)
        current = (text_or_none(cgroups, f"{name}/memory.current") or "").strip()
        if current.isdecimal():
            files = pairs_in(text_or_none(cgroups, f"{name}/memory.stat")).get("inactive_file", 0)
            memory += max(0, int(current) - files // 2)
    line = (text_or_none(proc, "stat") or "").partition("\n")[0].split()
    softirq = int(line[7]) if len(line) > 7 and line[7].isdecimal() else 0
    return UsageSample(at, usage, softirq, memory)


def load_usage(path: Path) -> SystemUsage | None:
    """What an agent has recorded; None where nothing can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SystemUsage)
    except (OSError, msgspec.MsgspecError):
        return None
