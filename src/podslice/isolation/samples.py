"""Samples of the kernel for the metrics of containers with exclusive CPUs."""

from __future__ import annotations

import re
from typing import NamedTuple

from podslice.host.filesystem import FileSystem
from podslice.isolation.cache_counters import read_cache
from podslice.isolation.counters import OwnedSample, ThreadSample
from podslice.isolation.kernel_facts import (
    IsolationSources,
    cpu_times,
    interrupt_counts,
    memory_by_node,
    migration_count,
    nodes_of,
    read_pairs,
    run_delay,
    text_or_none,
)
from podslice.values.cpuset import Bits, iter_bits

_MICRO = 1e-6
_MOST_THREADS = 32
_TIMERS, _IPIS = frozenset({"LOC"}), frozenset({"RES", "CAL", "TLB", "IWI", "RTR"})
_TAKEN_OFF = re.compile(r"^nonvoluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_TOTAL = re.compile(r"^(some|full) .*total=(\d+)", re.MULTILINE)


class CPUCounters(NamedTuple):
    """Counters of all CPUs: seconds busy and stolen by CPU, interrupts by kind and CPU."""

    busy: dict[int, float]
    stolen: dict[int, float]
    interrupts: dict[str, dict[int, int]]


def read_cpus(proc: FileSystem) -> CPUCounters:
    """Read `/proc/stat`, `/proc/interrupts` and `/proc/softirqs`; files that cannot be read are left out."""
    busy, stolen = cpu_times(proc)
    kinds: dict[str, dict[int, int]] = {}
    for number, (_, counts) in (interrupt_counts(proc) or {}).items():
        kind = "device" if number.isdecimal() else "timer" if number in _TIMERS else "ipi" if number in _IPIS else ""
        if kind:
            _add(kinds.setdefault(kind, {}), counts)
    for _, counts in (interrupt_counts(proc, "softirqs") or {}).values():
        _add(kinds.setdefault("softirq", {}), counts)
    return CPUCounters(busy, stolen, kinds)


def _add(total: dict[int, int], counts: dict[int, int]) -> None:
    for cpu, count in counts.items():
        total[cpu] = total.get(cpu, 0) + count


def read_owned(
    path: str, cpus: Bits, sources: IsolationSources, *, threads: bool = True, counting: str | None = None
) -> OwnedSample:
    """Read the sample of a container by its cgroup; of more than 32 threads an even selection.

    `threads` False: `/proc` has the processes of another machine. `counting`: the group of resctrl with its CPUs.
    """
    cgroups = sources.cgroups
    stat = read_pairs(text_or_none(cgroups, f"{path}/cpu.stat"))
    pressure = dict(_TOTAL.findall(text_or_none(cgroups, f"{path}/cpu.pressure") or ""))
    tids = [int(word) for word in (text_or_none(cgroups, f"{path}/cgroup.threads") or "").split() if word.isdecimal()]
    tids = tids if threads else []
    looked = tids[:: -(-len(tids) // _MOST_THREADS) or 1]
    memory = memory_by_node(path, cgroups)
    near = nodes_of(cpus, sources.sys)
    local = None if memory is None else sum(size for node, size in memory.items() if near >> node & 1)
    return OwnedSample(
        cpus,
        stat["usage_usec"] * _MICRO if "usage_usec" in stat else None,
        stat.get("nr_throttled"),
        stat["throttled_usec"] * _MICRO if "throttled_usec" in stat else None,
        int(pressure["some"]) * _MICRO if "some" in pressure else None,
        int(pressure["full"]) * _MICRO if "full" in pressure else None,
        {tid: _thread(sources.proc, tid) for tid in looked},
        # The factor by which counters of the selected threads are scaled up to all of them.
        len(tids) / len(looked) if looked else 1.0,
        local,
        None if memory is None or local is None else sum(memory.values()) - local,
        tuple(hertz for cpu in iter_bits(cpus) if (hertz := _clock(sources.sys, cpu)) is not None),
        None if counting is None else read_cache(sources.sys, counting),
    )


def _thread(proc: FileSystem, tid: int) -> ThreadSample:
    taken_off = _TAKEN_OFF.search(text_or_none(proc, f"{tid}/status") or "")
    return ThreadSample(
        run_delay(tid, proc),
        migration_count(tid, proc),
        int(taken_off[1]) if taken_off else None,
    )


def _clock(sys: FileSystem, cpu: int) -> int | None:
    text = (text_or_none(sys, f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq") or "").strip()
    # cpufreq reports kHz.
    return int(text) * 1000 if text.isdecimal() else None
