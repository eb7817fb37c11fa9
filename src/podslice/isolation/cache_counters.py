"""Counters of resctrl: last level cache and memory bandwidth of groups of CPUs."""

from __future__ import annotations

from podslice.host.filesystem import FileSystem
from podslice.isolation.counters import CacheSample
from podslice.values.cpuset import Bits, parse_bits_or_empty

_RESCTRL = "fs/resctrl"


def counting_groups(sys: FileSystem) -> dict[Bits, str]:
    """Return the groups that count, by their CPUs. A monitoring group comes before a class with the same CPUs."""
    found: dict[Bits, str] = {}
    classes = [f"{_RESCTRL}/{name}" for name in sys.entries(_RESCTRL)]
    monitors = [
        f"{parent}/mon_groups/{name}" for parent in (_RESCTRL, *classes) for name in sys.entries(f"{parent}/mon_groups")
    ]
    for path in (*monitors, *classes):
        cpus = parse_bits_or_empty(_text(sys, f"{path}/cpus_list"))
        if cpus:
            found.setdefault(cpus, path)
    return found


def read_cache(sys: FileSystem, path: str) -> CacheSample:
    """Read the counters of a group by domain; those that read `Unavailable` or `Error` are left out."""
    counters: tuple[dict[str, int], ...] = ({}, {}, {})
    for domain in sys.entries(f"{path}/mon_data"):
        if domain.startswith("mon_L3_"):
            for name, counter in zip(("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"), counters, strict=True):
                text = _text(sys, f"{path}/mon_data/{domain}/{name}")
                if text.isdecimal() and len(text) < 20:
                    counter[domain] = int(text)
    return CacheSample(*counters)


def _text(sys: FileSystem, path: str) -> str:
    try:
        return sys.read(path).strip()
    except OSError:
        return ""
