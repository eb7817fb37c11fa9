"""Read the `IsolationFacts` of a node: two samples of `/proc`, `/sys` and the cgroups of containers that own CPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.host.filesystem import FileSystem
from podslice.isolation.cache_counters import counting_groups, read_cache
from podslice.isolation.counters import CacheSample, bandwidth_growth
from podslice.isolation.facts import (
    InterruptFacts,
    IsolationFacts,
    OwnedFacts,
    SetFacts,
    ThreadFacts,
)
from podslice.values.cpuset import Bits, bits_of, format_bits, iter_bits, parse_bits_or_empty

_HERTZ = 100
"""Units of CPU time a second in `/proc/stat` (USER_HZ), which is 100 on every architecture that Kubernetes runs on."""
_NANO, _MICRO = 1e-9, 1e-6
_MOST_THREADS = 512
_MOST_PROCESSES = 200_000
_LONGEST = 24
# PF_KTHREAD and PF_NO_SETAFFINITY of the kernel's include/linux/sched.h.
_KERNEL_THREAD, _NO_AFFINITY = 0x00200000, 0x04000000
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
_SWITCHES = re.compile(r"^se\.nr_migrations\s*:\s*(\d+)", re.MULTILINE)
_SPACE_FIELDS = re.compile(r"\d+ \((.*)\) (.*)", re.DOTALL)


class OwnedCgroup(NamedTuple):
    """A container that owns CPUs, and its cgroup. `path` is empty where it has none."""

    pod: str
    container: str
    path: str
    cpus: Bits


class IsolationSources(NamedTuple):
    """The file systems of a node: `/proc`, the cgroup mount and `/sys`; and the cgroups that own no CPUs: kind
    (container, sandbox, other) by path."""

    proc: FileSystem
    cgroups: FileSystem
    sys: FileSystem
    others: Mapping[str, str]


class _Counters(NamedTuple):
    usage: float | None
    throttled: int | None
    waited: float | None
    delay: float | None
    migrations: int | None
    cache: CacheSample | None


class _Sample(NamedTuple):
    busy: dict[int, float]
    stolen: dict[int, float]
    interrupts: dict[str, tuple[str, dict[int, int]]] | None
    containers: list[_Counters]
    threads: dict[int, int]
    """Nanoseconds that each foreign thread has run."""


def read_isolation(
    owners: Iterable[OwnedCgroup],
    sources: IsolationSources,
    *,
    wait: Callable[[], float],
) -> IsolationFacts:
    """Take two samples. `wait` lets time pass between them and returns the seconds. What cannot be read is None."""
    known = [one for one in owners if one.cpus]
    exclusive = 0
    for one in known:
        exclusive |= one.cpus
    mine = [threads_of(one.path, sources.cgroups) for one in known]
    # Listed before the first sample: of a foreign thread that starts later only the CPU time is seen.
    strangers = list(_foreign_threads(sources.proc, exclusive, {tid for ids in mine for tid in ids or ()}))
    counting = counting_groups(sources.sys)
    groups = [counting.get(one.cpus) for one in known]
    first = _sample(known, mine, groups, strangers, sources)
    seconds = wait()
    second = _sample(known, mine, groups, strangers, sources)
    placed = _last_cpus(strangers, sources.proc)
    ran = {tid for tid, ns in second.threads.items() if ns > first.threads.get(tid, ns)}
    seen = {tid: cpu for tid, cpu in placed.items() if tid in ran}
    containers = tuple(
        _container(
            one, first.containers[at], second.containers[at], _others_on(one.cpus, strangers, seen), known, sources
        )
        for at, one in enumerate(known)
    )
    return IsolationFacts(
        seconds,
        containers,
        _growth(first.busy, second.busy),
        _growth(first.stolen, second.stolen),
        # Affinities are read after the second sample, so that reading them does not count as load.
        _interrupt_facts(first, second, sources.proc),
        1 / _HERTZ,
        # A kernel that was built with nohz_full and booted without it prints "(null)".
        (text_or_none(sources.sys, "devices/system/cpu/nohz_full") or "").strip().replace("(null)", ""),
    )


def text_or_none(fs: FileSystem, path: str) -> str | None:
    """Return a file's text, None where it cannot be read."""
    try:
        return fs.read(path)
    except OSError:
        return None


def _growth(before: Mapping[int, float], after: Mapping[int, float]) -> dict[int, float]:
    return {cpu: round(max(0.0, value - before[cpu]), 6) for cpu, value in after.items() if cpu in before}


def _sample(
    known: list[OwnedCgroup],
    mine: list[list[int] | None],
    groups: list[str | None],
    strangers: list[_ForeignThread],
    sources: IsolationSources,
) -> _Sample:
    busy, stolen = cpu_times(sources.proc)
    counters = [_counters(one.path, tids, at, sources) for one, tids, at in zip(known, mine, groups, strict=True)]
    threads = {one.tid: ns for one in strangers if (ns := _ran(sources.proc, one)) is not None}
    return _Sample(busy, stolen, interrupt_counts(sources.proc), counters, threads)


def cpu_times(proc: FileSystem) -> tuple[dict[int, float], dict[int, float]]:
    """Return the seconds that each CPU was busy (user, nice, system, interrupts), and that its hypervisor took."""
    busy, stolen = dict[int, float](), dict[int, float]()
    for line in (text_or_none(proc, "stat") or "").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and len(fields) >= 8:
            user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields[:8])
            busy[int(name[3:])] = (user + nice + system + irq + softirq) / _HERTZ
            stolen[int(name[3:])] = steal / _HERTZ
    return busy, stolen


def interrupt_counts(proc: FileSystem, file: str = "interrupts") -> dict[str, tuple[str, dict[int, int]]] | None:
    """Return the device's name and the counts by CPU of each interrupt, by its line."""
    text = text_or_none(proc, file)
    if text is None:
        return None
    # The head line names the online CPUs only; their columns are in that order.
    head, *lines = text.splitlines() or [""]
    cpus = [int(word[3:]) for word in head.split() if word[3:].isdecimal() and len(word) < _LONGEST]
    found = {}
    for line in lines:
        number, _, rest = line.strip().partition(":")
        words = rest.split(maxsplit=len(cpus))
        counts = words[: len(cpus)]
        if len(counts) == len(cpus) and all(word.isdecimal() and len(word) < _LONGEST for word in counts):
            name = words[len(cpus)].split()[-1] if len(words) > len(cpus) else ""
            found[number] = name, dict(zip(cpus, map(int, counts), strict=True))
    return found


def _interrupt_facts(first: _Sample, second: _Sample, proc: FileSystem) -> tuple[InterruptFacts, ...] | None:
    if first.interrupts is None or second.interrupts is None:
        return None
    facts = []
    for number, (name, after) in second.interrupts.items():
        _, before = first.interrupts.get(number, ("", {}))
        # A line or CPU that was not there before has no growth: its count is of all time.
        counts = {cpu: count - before.get(cpu, count) for cpu, count in after.items() if count > before.get(cpu, count)}
        if counts and number.isdecimal():
            affinity = text_or_none(proc, f"irq/{number}/smp_affinity_list")
            facts.append(InterruptFacts(number, name, counts, None if affinity is None else affinity.strip()))
    return tuple(facts)


def threads_of(path: str, cgroups: FileSystem) -> list[int] | None:
    """Return the thread ids of a cgroup, an even selection of more than 512, None where it cannot be read."""
    text = text_or_none(cgroups, f"{path}/cgroup.threads") if path else None
    if text is None:
        return None
    # Every n-th thread, so that a process with thousands of them is seen as a whole at a bounded cost.
    ids = [int(word) for word in text.split() if word.isdecimal()]
    return ids[:: -(-len(ids) // _MOST_THREADS) or 1]


def _counters(path: str, tids: list[int] | None, counting: str | None, sources: IsolationSources) -> _Counters:
    stat = read_pairs(text_or_none(sources.cgroups, f"{path}/cpu.stat") if path else None)
    pressure = text_or_none(sources.cgroups, f"{path}/cpu.pressure") if path else None
    some = re.search(r"^some .*total=(\d+)", pressure or "", re.MULTILINE)
    delay, migrations = _of_threads(tids, sources.proc)
    return _Counters(
        stat["usage_usec"] * _MICRO if "usage_usec" in stat else None,
        stat.get("nr_throttled"),
        int(some[1]) * _MICRO if some else None,
        delay,
        migrations,
        None if counting is None else read_cache(sources.sys, counting),
    )


def _of_threads(tids: list[int] | None, proc: FileSystem) -> tuple[float | None, int | None]:
    if tids is None:
        return None, None
    delay, migrations = 0.0, 0
    delays, moves = 0, 0
    for tid in tids:
        if (waited := run_delay(tid, proc)) is not None:
            delay += waited
            delays += 1
        if (moved := migration_count(tid, proc)) is not None:
            migrations += moved
            moves += 1
    return (delay if delays or not tids else None), (migrations if moves or not tids else None)


def run_delay(tid: int, proc: FileSystem) -> float | None:
    """Return the seconds that a thread was ready to run and waited, None where the kernel does not say."""
    fields = (text_or_none(proc, f"{tid}/schedstat") or "").split()
    return int(fields[1]) * _NANO if len(fields) >= 2 and fields[1].isdecimal() else None


def migration_count(tid: int, proc: FileSystem) -> int | None:
    """Return how often a thread moved to another CPU, None where the kernel does not say."""
    found = _SWITCHES.search(text_or_none(proc, f"{tid}/sched") or "")
    return int(found[1]) if found else None


def read_pairs(text: str | None) -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line."""
    return {
        name: int(value)
        for name, _, value in (line.partition(" ") for line in (text or "").splitlines())
        if value.isdecimal()
    }


class _ForeignThread(NamedTuple):
    tid: int
    pid: int
    name: str
    cgroup: str
    allowed: Bits
    allowed_text: str
    kernel: bool
    fixed: bool


def _foreign_threads(proc: FileSystem, exclusive: Bits, mine: set[int]) -> Iterator[_ForeignThread]:
    """Yield the threads of no owner that may run on exclusive CPUs."""
    for entry in proc.entries("")[:_MOST_PROCESSES]:
        if not entry.isdecimal() or int(entry) in mine:
            continue
        cgroup = _cgroup(proc, entry)
        for tid in proc.entries(f"{entry}/task") or [entry]:
            if not tid.isdecimal() or int(tid) in mine:
                continue
            folder = f"{entry}/task/{tid}"
            allowed = _ALLOWED.search(text_or_none(proc, f"{folder}/status") or "")
            cpus = parse_bits_or_empty(allowed[1]) if allowed else 0
            if cpus & exclusive and (stat := _stat(proc, folder)) is not None:
                kernel = bool(stat.flags & _KERNEL_THREAD)
                yield _ForeignThread(
                    int(tid),
                    int(entry),
                    stat.name,
                    cgroup,
                    cpus,
                    format_bits(cpus),
                    kernel,
                    bool(stat.flags & _NO_AFFINITY) and kernel,
                )


class _Stat(NamedTuple):
    name: str
    flags: int
    cpu: int


def _stat(proc: FileSystem, folder: str) -> _Stat | None:
    """Read name, flags (field 9) and last CPU (field 39) of `/proc/TID/stat`."""
    # A name may hold blanks and parentheses, so the fields are counted from the last parenthesis.
    match = _SPACE_FIELDS.match(text_or_none(proc, f"{folder}/stat") or "")
    fields = match[2].split() if match else []
    if match is None or len(fields) < 37 or not (fields[6].isdecimal() and fields[36].isdecimal()):
        return None
    return _Stat(match[1], int(fields[6]), int(fields[36]))


def _cgroup(proc: FileSystem, entry: str) -> str:
    for line in (text_or_none(proc, f"{entry}/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/")
    return ""


def _ran(proc: FileSystem, one: _ForeignThread) -> int | None:
    fields = (text_or_none(proc, f"{one.pid}/task/{one.tid}/schedstat") or "").split()
    return int(fields[0]) if fields and fields[0].isdecimal() else None


def _last_cpus(strangers: list[_ForeignThread], proc: FileSystem) -> dict[int, int]:
    """Return the CPU that each thread was on last."""
    stats = ((one.tid, _stat(proc, f"{one.pid}/task/{one.tid}")) for one in strangers)
    return {tid: stat.cpu for tid, stat in stats if stat is not None}


def _others_on(cpus: Bits, strangers: list[_ForeignThread], seen: Mapping[int, int]) -> tuple[ThreadFacts, ...]:
    return tuple(
        ThreadFacts(
            one.tid,
            one.name,
            one.cgroup,
            one.allowed_text,
            one.tid in seen and bool(cpus >> seen[one.tid] & 1),
            one.kernel,
            one.fixed,
        )
        for one in strangers
        if one.allowed & cpus
    )


def _container(
    one: OwnedCgroup,
    before: _Counters,
    after: _Counters,
    threads: tuple[ThreadFacts, ...],
    known: list[OwnedCgroup],
    sources: IsolationSources,
) -> OwnedFacts:
    effective = text_or_none(sources.cgroups, f"{one.path}/cpuset.cpus.effective") if one.path else None
    nodes = nodes_of(one.cpus, sources.sys)
    return OwnedFacts(
        pod=one.pod,
        container=one.container,
        cpus=format_bits(one.cpus),
        effective=None if effective is None else effective.strip(),
        partition=(text_or_none(sources.cgroups, f"{one.path}/cpuset.cpus.partition") or "").strip()
        if one.path
        else "",
        used=_difference(before.usage, after.usage),
        throttled=None if before.throttled is None or after.throttled is None else after.throttled - before.throttled,
        waited=_difference(before.waited, after.waited),
        run_delay=_difference(before.delay, after.delay),
        migrations=None
        if before.migrations is None or after.migrations is None
        else max(0, after.migrations - before.migrations),
        memory=memory_by_node(one.path, sources.cgroups),
        local_nodes=format_bits(nodes),
        siblings=_siblings(one, known, sources),
        first_threads=_first_threads(one, sources),
        others=tuple(_sets_on(one, sources)),
        threads=threads if sources.proc.entries("") else None,
        cache_used=sum(after.cache.occupancy.values()) if after.cache is not None and after.cache.occupancy else None,
        moved=bandwidth_growth(before.cache, after.cache),
    )


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else round(max(0.0, after - before), 6)


def nodes_of(cpus: Bits, sys: FileSystem) -> Bits:
    """Return the NUMA nodes of CPUs; node 0 where the kernel has no such folders."""
    found = 0
    for entry in sys.entries("devices/system/node"):
        if (
            entry[4:].isdecimal()
            and parse_bits_or_empty((text_or_none(sys, f"devices/system/node/{entry}/cpulist") or "").strip()) & cpus
        ):
            found |= 1 << int(entry[4:])
    return found or 1


def memory_by_node(path: str, cgroups: FileSystem) -> dict[int, int] | None:
    """Return the bytes of a cgroup on each NUMA node, None where that cannot be read."""
    text = text_or_none(cgroups, f"{path}/memory.numa_stat") if path else None
    if text is None:
        return None
    found: dict[int, int] = {}
    for line in text.splitlines():
        # Other kinds (file_mapped, shmem, inactive_anon …) are parts of these and would count twice.
        kind, *counts = line.split()
        for node, _, size in (one.partition("=") for one in counts if kind in ("anon", "file", "kernel_stack")):
            if node[1:].isdecimal() and size.isdecimal():
                found[int(node[1:])] = found.get(int(node[1:]), 0) + int(size)
    return found


def _first_threads(one: OwnedCgroup, sources: IsolationSources) -> str:
    """Return the lowest hardware thread of each core, on which alone a container with `podslice.io/smt: hide` runs;
    empty where its cores have one."""
    first = bits_of(
        cpu for cpu in iter_bits(one.cpus) if not _threads_beside(cpu, sources) & one.cpus & ((1 << cpu) - 1)
    )
    return "" if first == one.cpus else format_bits(first)


def _threads_beside(cpu: int, sources: IsolationSources) -> Bits:
    path = f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    return parse_bits_or_empty((text_or_none(sources.sys, path) or "").strip())


def _siblings(one: OwnedCgroup, known: list[OwnedCgroup], sources: IsolationSources) -> dict[str, str]:
    """Return the hardware threads of its cores that are not its own, by owner."""
    beside = 0
    for cpu in iter_bits(one.cpus):
        beside |= _threads_beside(cpu, sources)
    beside &= ~one.cpus
    owners = 0
    for other in known:
        owners |= other.cpus
    parts = {"owner": beside & owners, "shared": beside & ~owners}
    return {kind: format_bits(cpus) for kind, cpus in parts.items() if cpus}


def _sets_on(one: OwnedCgroup, sources: IsolationSources) -> Iterator[SetFacts]:
    for path, kind in sources.others.items():
        # A cgroup inside the container, or around it, has its CPUs by right.
        if path == one.path or path.startswith(f"{one.path}/") or one.path.startswith(f"{path}/"):
            continue
        cpus = parse_bits_or_empty((text_or_none(sources.cgroups, f"{path}/cpuset.cpus.effective") or "").strip())
        if cpus & one.cpus:
            yield SetFacts(path, format_bits(cpus & one.cpus), kind)
