"""Metrics of containers with exclusive CPUs, computed from samples of the kernel (docs/isolation.md).

A value that could not be read has no series. Counters of threads and CPUs only grow: counts from before a thread or CPU
joined the container are left out, and its counts stay when it leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from podslice.isolation.facts import InterruptFacts, IsolationFacts, OwnedFacts
from podslice.isolation.report import NUMBERS, isolation_report
from podslice.values.cpuset import Bits, format_bits, iter_bits
from podslice.values.series import Labels

PREFIX: Final = "podslice_container_"
GRADE: Final = "podslice_isolation_grade"
HELP: Final = {
    "cpu_seconds_total": "CPU time of the container.",
    "throttled_periods_total": "Periods in which a quota stopped it.",
    "throttled_seconds_total": "Time for which a quota stopped it.",
    "cpu_pressure_seconds_total": "Time for which some or all of its tasks waited for a CPU.",
    "run_delay_seconds_total": "Time that its threads waited for a CPU.",
    "migrations_total": "How often its threads changed the CPU.",
    "involuntary_switches_total": "How often its threads were taken off a CPU.",
    "cpus_irq_total": "Interrupts on its CPUs, by kind.",
    "cpus_steal_seconds_total": "Time of its CPUs that the hypervisor took.",
    "foreign_cpu_seconds_total": "Busy time of its CPUs that was not its own.",
    "numa_memory_bytes": "Its memory, on the NUMA nodes of its CPUs or elsewhere.",
    "frequency_hertz": "Clock of its CPUs.",
    "llc_occupancy_bytes": "Last level cache that its CPUs use.",
    "memory_bandwidth_bytes_total": "What its CPUs moved from and to memory, all of it or that of their own domain.",
}
GAUGES: Final = frozenset({"numa_memory_bytes", "frequency_hertz", "llc_occupancy_bytes"})

Key = tuple[str, Labels]
"""Name of a metric and the labels beside those of the container."""
Who = tuple[str, str, str]
"""Namespace, pod and container."""


class ThreadSample(NamedTuple):
    """A thread's counters: seconds that it waited for a CPU, migrations, and involuntary context switches."""

    delay: float | None = None
    migrations: int | None = None
    switches: int | None = None


class CacheSample(NamedTuple):
    """Counters of resctrl for some CPUs by domain (a cache), without those that could not be read.

    `occupancy`: bytes of the cache in use. `total`, `local`: bytes moved in all, and within the domain.
    """

    occupancy: Mapping[str, int] = {}
    total: Mapping[str, int] = {}
    local: Mapping[str, int] = {}


class OwnedSample(NamedTuple):
    """A container with exclusive CPUs at one moment. Times in seconds, memory in bytes.

    `threads`: by id, one in `scale` of them. `some`, `full`: CPU pressure. `local`, `remote`: memory on NUMA nodes of
    its CPUs and on others. `hertz`: clocks of its CPUs. `cache`: None where no group of resctrl has its CPUs.
    """

    cpus: Bits
    usage: float | None = None
    periods: int | None = None
    throttled: float | None = None
    some: float | None = None
    full: float | None = None
    threads: Mapping[int, ThreadSample] = {}
    scale: float = 1.0
    local: int | None = None
    remote: int | None = None
    hertz: tuple[int, ...] = ()
    cache: CacheSample | None = None


class NodeSample(NamedTuple):
    """A node at one moment (`at`). `busy`, `stolen`: seconds by CPU. `interrupts`: counts by kind and CPU."""

    at: float
    containers: Mapping[Who, OwnedSample]
    busy: Mapping[int, float] = {}
    stolen: Mapping[int, float] = {}
    interrupts: Mapping[str, Mapping[int, int]] = {}


def add_sample(
    totals: Mapping[Who, Mapping[Key, float]], before: NodeSample | None, after: NodeSample
) -> dict[Who, dict[Key, float]]:
    """Return the series of each container of the later sample: `totals` plus the growth since the earlier one."""
    found = {}
    for who, one in after.containers.items():
        series = dict(totals.get(who, {}))
        series.update(_as_read(one))
        known = before.containers.get(who) if before is not None else None
        if before is not None and known is not None:
            for key, grown in (
                *_of_threads(known, one), *_of_cpus(known, one, before, after), *_of_memory(known.cache, one.cache)
            ):  # fmt: skip
                series[key] = series.get(key, 0.0) + max(0.0, grown)
        found[who] = series
    return found


def grades(before: NodeSample, after: NodeSample) -> dict[Who, int]:
    """Return the grade of each container between two samples: 0 pass, 1 warn, 2 fail, 3 unknown.

    Threads of others are not searched for, which would read all of `/proc`; the CPU time that they took is graded.
    """
    common = [who for who in after.containers if who in before.containers]
    facts = IsolationFacts(
        after.at - before.at,
        tuple(_facts(who, before.containers[who], after.containers[who]) for who in common),
        _differences(before.busy, after.busy),
        _differences(before.stolen, after.stolen),
        _devices(before, after),
    )
    found = {(one.pod, one.container): NUMBERS[one.grade] for one in isolation_report(facts).containers}
    return {who: found[f"{who[0]}/{who[1]}", who[2]] for who in common}


def sum_counters(found: Mapping[Who, Mapping[Key, float]]) -> dict[Key, float]:
    """Return the sums of the counters of all containers, without gauges."""
    total: dict[Key, float] = {}
    for series in found.values():
        for key, value in series.items():
            if key[0] not in GAUGES:
                total[key] = total.get(key, 0.0) + value
    return total


def _as_read(one: OwnedSample) -> Iterable[tuple[Key, float]]:
    """Return the values that the kernel counts by cgroup, which are taken as they are."""
    values: list[tuple[str, Labels, float | None]] = [
        ("cpu_seconds_total", (), one.usage),
        ("throttled_periods_total", (), one.periods),
        ("throttled_seconds_total", (), one.throttled),
        ("cpu_pressure_seconds_total", (("kind", "some"),), one.some),
        ("cpu_pressure_seconds_total", (("kind", "full"),), one.full),
        ("numa_memory_bytes", (("local", "true"),), one.local),
        ("numa_memory_bytes", (("local", "false"),), one.remote),
    ]
    if one.hertz:
        stats = {"min": min(one.hertz), "max": max(one.hertz), "mean": sum(one.hertz) / len(one.hertz)}
        values += [("frequency_hertz", (("stat", stat),), value) for stat, value in stats.items()]
    if one.cache is not None and one.cache.occupancy:
        values.append(("llc_occupancy_bytes", (), sum(one.cache.occupancy.values())))
    return (((name, labels), float(value)) for name, labels, value in values if value is not None)


def _of_threads(before: OwnedSample, after: OwnedSample) -> Iterable[tuple[Key, float]]:
    for name, field in (
        ("run_delay_seconds_total", "delay"),
        ("migrations_total", "migrations"),
        ("involuntary_switches_total", "switches"),
    ):
        grown, seen = 0.0, False
        for tid, thread in after.threads.items():
            now, first = getattr(thread, field), getattr(before.threads.get(tid), field, None)
            seen = seen or now is not None
            if now is not None and first is not None:
                grown += max(0.0, now - first)
        if seen:
            yield (name, ()), grown * after.scale


def bandwidth_growth(before: CacheSample | None, after: CacheSample | None) -> dict[str, int]:
    """Return the bytes moved between two samples, by kind, of the domains that both have."""
    found = {}
    for kind in ("total", "local") if before is not None and after is not None else ():
        first, now = getattr(before, kind), getattr(after, kind)
        # A domain that is missing in one sample could not be read then, and would count as a jump.
        common = [domain for domain in now if domain in first]
        if common:
            found[kind] = sum(max(0, now[domain] - first[domain]) for domain in common)
    return found


def _of_memory(before: CacheSample | None, after: CacheSample | None) -> Iterable[tuple[Key, float]]:
    for kind, grown in bandwidth_growth(before, after).items():
        yield ("memory_bandwidth_bytes_total", (("kind", kind),)), float(grown)


def _of_cpus(
    known: OwnedSample, one: OwnedSample, before: NodeSample, after: NodeSample
) -> Iterable[tuple[Key, float]]:
    """Yield the growth on CPUs that the container had in both samples."""
    cpus = list(iter_bits(known.cpus & one.cpus))
    for kind, counts in after.interrupts.items():
        first = before.interrupts.get(kind, {})
        grown = sum(counts[cpu] - first[cpu] for cpu in cpus if cpu in counts and cpu in first)
        yield ("cpus_irq_total", (("kind", kind),)), float(grown)
    stolen, busy = _differences(before.stolen, after.stolen), _differences(before.busy, after.busy)
    if all(cpu in stolen for cpu in cpus):
        yield ("cpus_steal_seconds_total", ()), sum(stolen[cpu] for cpu in cpus)
    # Foreign time is a difference of CPU times, which is only right while the container has had the same CPUs.
    if known.cpus == one.cpus and known.usage is not None and one.usage is not None and all(c in busy for c in cpus):
        foreign = sum(busy[cpu] for cpu in cpus) - (one.usage - known.usage)
        yield ("foreign_cpu_seconds_total", ()), foreign


def _differences(before: Mapping[int, float], after: Mapping[int, float]) -> dict[int, float]:
    return {cpu: max(0.0, value - before[cpu]) for cpu, value in after.items() if cpu in before}


def _growth(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _facts(who: Who, before: OwnedSample, after: OwnedSample) -> OwnedFacts:
    cpus = format_bits(after.cpus)
    periods = _growth(before.periods, after.periods)
    delay = dict(_of_threads(before, after)).get(("run_delay_seconds_total", ()))
    memory = None if after.local is None or after.remote is None else {0: after.local, 1: after.remote}
    return OwnedFacts(
        pod=f"{who[0]}/{who[1]}",
        container=who[2],
        cpus=cpus,
        effective=cpus,
        used=_growth(before.usage, after.usage),
        throttled=None if periods is None else int(periods),
        waited=_growth(before.some, after.some),
        run_delay=delay if after.threads else 0.0 if after.usage is not None else None,
        memory=memory,
        local_nodes="0",
        threads=(),
    )


def _devices(before: NodeSample, after: NodeSample) -> tuple[InterruptFacts, ...] | None:
    """Return the interrupts of all devices as those of one."""
    if "device" not in after.interrupts:
        return None
    first = before.interrupts.get("device", {})
    grown = {
        cpu: count - first[cpu] for cpu, count in after.interrupts["device"].items() if count > first.get(cpu, count)
    }
    return (InterruptFacts("0", "all devices", grown),)
