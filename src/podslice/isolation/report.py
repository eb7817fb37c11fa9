"""The isolation report: of each container with exclusive CPUs the promises, the observations, a grade and a remedy.

A pure function of `IsolationFacts`: the report of a node equals that of its capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from podslice.isolation.facts import InterruptFacts, IsolationFacts, OwnedFacts, ThreadFacts
from podslice.values.cpuset import Bits, format_bits, iter_bits, parse_bits_or_empty
from podslice.values.quantity import bytes_text

PASS, WARN, FAIL, UNKNOWN, INFO = "pass", "warn", "fail", "unknown", "info"
NUMBERS: Final = {PASS: 0, WARN: 1, FAIL: 2, UNKNOWN: 3}
"""Values of the metric `podslice_isolation_grade`."""
_WORST = (FAIL, WARN, UNKNOWN, PASS)
_FEW = 3
# Grades by share: pass below the first, warn below the second (docs/isolation.md).
_NOTICEABLE, _MUCH = 0.001, 0.01
_MANY_INTERRUPTS = 10.0
_LITTLE_STEAL = 0.005


class IsolationCheck(msgspec.Struct, frozen=True, rename="camel"):
    """The check of a promise. `evidence`: the file and its value. `remedy`: empty where nothing is needed."""

    check: str
    grade: str
    promised: str
    observed: str
    evidence: str
    remedy: str = ""


class ContainerIsolation(msgspec.Struct, frozen=True, rename="camel"):
    """A container with CPUs of its own; `grade` is the worst of its checks."""

    pod: str
    container: str
    cpus: str
    grade: str
    checks: tuple[IsolationCheck, ...]


class IsolationReport(msgspec.Struct, frozen=True, rename="camel"):
    """Whether exclusive CPUs were alone for so many seconds; `grade` is the worst of all containers."""

    seconds: float
    grade: str
    containers: tuple[ContainerIsolation, ...]


def worst(grades: Iterable[str]) -> str:
    """Return the worst of the grades without `info`; `pass` where there is none."""
    found = set(grades)
    return next((grade for grade in _WORST if grade in found), PASS)


def isolation_report(facts: IsolationFacts) -> IsolationReport:
    """Return the report of the facts, containers in order of their names."""
    containers = []
    for one in sorted(facts.containers, key=lambda one: (one.pod, one.container)):
        checks = tuple(_checks(one, facts))
        grade = worst(check.grade for check in checks)
        containers.append(ContainerIsolation(one.pod, one.container, one.cpus, grade, checks))
    return IsolationReport(round(facts.seconds, 1), worst(one.grade for one in containers), tuple(containers))


def _checks(one: OwnedFacts, facts: IsolationFacts) -> Iterator[IsolationCheck]:
    cpus = parse_bits_or_empty(one.cpus)
    yield _effective(one)
    yield _other_sets(one)
    yield _threads(one)
    yield _foreign_time(one, cpus, facts)
    yield _interrupts(cpus, facts)
    yield _throttling(one)
    yield _run_delay(one, facts)
    yield _pressure(one, facts)
    yield _migrations(one)
    yield _memory(one)
    yield _siblings(one, facts)
    yield _steal(cpus, facts)
    yield _tick(cpus, facts)
    # Only machines with resctrl monitoring have these counters; a row of unknowns would help no one.
    if one.cache_used is not None or one.moved:
        yield _cache(one, facts)


def _unknown(check: str, promised: str, file: str, why: str = "cannot be read") -> IsolationCheck:
    return IsolationCheck(check, UNKNOWN, promised, "unknown", f"{file} {why}", "run it as root on the node")


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _grade_share(share: float, *, worst_grade: str = FAIL) -> str:
    return PASS if share < _NOTICEABLE else WARN if share < _MUCH else worst_grade


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _effective(one: OwnedFacts) -> IsolationCheck:
    file = "cpuset.cpus.effective"
    if one.effective is None:
        return _unknown("cpus", one.cpus, file)
    # With `podslice.io/smt: hide` the container runs on the first threads of its cores only, which is as decided.
    allowed = {parse_bits_or_empty(one.cpus), parse_bits_or_empty(one.first_threads) or parse_bits_or_empty(one.cpus)}
    same = parse_bits_or_empty(one.effective) in allowed
    where = f"{file} is {one.effective or 'empty'}" + (f", partition {one.partition}" if one.partition else "")
    remedy = "" if same else "podslice audit says why; the agent repairs it in its next pass"
    return IsolationCheck("cpus", PASS if same else FAIL, one.cpus, one.effective or "none", where, remedy)


def _other_sets(one: OwnedFacts) -> IsolationCheck:
    containers = [other for other in one.others if other.kind == "container"]
    grade = FAIL if containers else WARN if one.others else PASS
    shown = containers or list(one.others)
    evidence = "; ".join(f"{other.path}: {other.cpus}" for other in shown[:_FEW]) or "no cpuset.cpus.effective has them"
    remedy = ""
    if containers:
        remedy = "podslice audit: a container's set is wrong"
    elif one.others:
        remedy = "guards.units and guards.sandboxes: enforce, or AllowedCPUs= of the system's slices"
    kinds = sorted({other.kind for other in one.others})
    observed = f"{len(one.others)} ({', '.join(kinds)})" if one.others else "none"
    return IsolationCheck("sets", grade, "no others", observed, evidence, remedy)


def _threads(one: OwnedFacts) -> IsolationCheck:
    if one.threads is None:
        return _unknown("threads", "none but its own", "/proc/TID/stat")
    # Kernel threads that are bound to a CPU stay there whatever is done, so they are no defect.
    movable = [thread for thread in one.threads if not thread.fixed]
    seen = [thread for thread in movable if thread.seen]
    grade = FAIL if any(not thread.kernel for thread in seen) else WARN if movable else PASS
    evidence = "; ".join(map(_thread_text, (seen or movable)[:_FEW])) or "/proc/TID/stat, Cpus_allowed_list"
    remedy = ""
    if any(not thread.kernel for thread in movable):
        remedy = "AllowedCPUs= of the unit that it belongs to, or its own affinity"
    elif movable:
        remedy = "boot with isolcpus or nohz_full, or move the kernel's threads with taskset"
    observed = f"{len(movable)} allowed, {len(seen)} seen"
    return IsolationCheck("threads", grade, "none but its own", observed, evidence, remedy)


def _thread_text(thread: ThreadFacts) -> str:
    where = f" in {thread.cgroup}" if thread.cgroup else ""
    return f"{thread.name} ({thread.id}){where} may run on {thread.allowed}"


def _foreign_time(one: OwnedFacts, cpus: Bits, facts: IsolationFacts) -> IsolationCheck:
    promised, count = "0", cpus.bit_count()
    busy = [facts.busy[cpu] for cpu in iter_bits(cpus) if cpu in facts.busy]
    if one.used is None or len(busy) < count:
        return _unknown("foreignTime", promised, "/proc/stat, cpu.stat")
    # Both readings of /proc/stat are cut to whole ticks, so the difference may be too large by up to two of them a CPU.
    foreign = max(0.0, sum(busy) - one.used - 2 * facts.tick * count)
    share = _share(foreign, facts.seconds * count)
    evidence = f"/proc/stat: {sum(busy):.2f} s busy, cpu.stat: {one.used:.2f} s its own"
    grade = _grade_share(share)
    remedy = "" if grade == PASS else "see threads and interrupts"
    return IsolationCheck("foreignTime", grade, promised, _percent(share), evidence, remedy)


def _rates(cpus: Bits, facts: IsolationFacts) -> list[tuple[float, int, InterruptFacts]]:
    """Return the device interrupts a second, the busiest first, each with the CPU that has most of them."""
    found = []
    for one in facts.interrupts or ():
        mine = {cpu: count for cpu, count in one.counts.items() if cpus >> cpu & 1 and count > 0}
        if one.is_device and mine:
            found.append((_share(sum(mine.values()), facts.seconds), max(mine, key=lambda cpu: mine[cpu]), one))
    return sorted(found, key=lambda one: (-one[0], one[2].number))


def _interrupts(cpus: Bits, facts: IsolationFacts) -> IsolationCheck:
    if facts.interrupts is None:
        return _unknown("interrupts", "no device's", "/proc/interrupts")
    found = _rates(cpus, facts)
    rate = _share(sum(rate for rate, _, _ in found), cpus.bit_count())
    grade = PASS if not found else WARN if rate < _MANY_INTERRUPTS else FAIL
    evidence = "; ".join(
        f"irq {one.number} ({one.name}) {each:.1f}/s, mostly on CPU {cpu}" for each, cpu, one in found[:_FEW]
    )
    remedy = ""
    if found:
        one = found[0][2]
        rest = format_bits(parse_bits_or_empty(one.affinity or "") & ~cpus)
        elsewhere = rest or "other CPUs"
        remedy = f"write {elsewhere} to /proc/irq/{one.number}/smp_affinity_list, or guards.irq: enforce"
    observed = f"{rate:.1f} a second and CPU"
    return IsolationCheck("interrupts", grade, "no device's", observed, evidence or "/proc/interrupts", remedy)


def _throttling(one: OwnedFacts) -> IsolationCheck:
    if one.throttled is None:
        return _unknown("throttling", "never", "cpu.stat nr_throttled")
    grade = FAIL if one.throttled > 0 else PASS
    remedy = "gate DisableCPUQuotaWithExclusiveCPUs, or cpu.max of the pod and its parents" if one.throttled else ""
    evidence = f"cpu.stat: nr_throttled grew by {one.throttled}"
    return IsolationCheck("throttling", grade, "never", f"{one.throttled} periods", evidence, remedy)


def _run_delay(one: OwnedFacts, facts: IsolationFacts) -> IsolationCheck:
    if one.run_delay is None or one.used is None:
        return _unknown("runDelay", "0", "/proc/TID/schedstat")
    share = _share(one.run_delay, max(one.used, facts.tick))
    # A thread that waited for less than a tick in all is not worth a warning, however little it ran.
    grade = _grade_share(share) if one.run_delay > facts.tick else PASS
    remedy = "" if grade == PASS else "as many threads as CPUs, each with its own affinity; see threads"
    evidence = f"/proc/TID/schedstat: {one.run_delay * 1000:.1f} ms waited, {one.used:.2f} s run"
    return IsolationCheck("runDelay", grade, "0", _percent(share), evidence, remedy)


def _pressure(one: OwnedFacts, facts: IsolationFacts) -> IsolationCheck:
    if one.waited is None:
        return _unknown("pressure", "0", "cpu.pressure", "cannot be read: a kernel without PSI, or without psi=1")
    share = _share(one.waited, facts.seconds)
    remedy = "" if share < _NOTICEABLE else "as many threads as CPUs; see foreignTime and throttling"
    evidence = f"cpu.pressure: some grew by {one.waited * 1000:.1f} ms"
    return IsolationCheck("pressure", _grade_share(share, worst_grade=WARN), "0", _percent(share), evidence, remedy)


def _migrations(one: OwnedFacts) -> IsolationCheck:
    if one.migrations is None:
        return IsolationCheck("migrations", INFO, "few", "unknown", "/proc/TID/sched needs CONFIG_SCHED_DEBUG")
    evidence = f"/proc/TID/sched: se.nr_migrations grew by {one.migrations}"
    return IsolationCheck("migrations", INFO, "few", str(one.migrations), evidence)


def _memory(one: OwnedFacts) -> IsolationCheck:
    if one.memory is None:
        return _unknown("memory", f"on NUMA nodes {one.local_nodes}", "memory.numa_stat")
    total, local = sum(one.memory.values()), parse_bits_or_empty(one.local_nodes)
    near = sum(size for node, size in one.memory.items() if local >> node & 1)
    share = _share(near, total) if total else 1.0
    grade = PASS if share >= 0.99 else WARN if share >= 0.9 else FAIL
    remedy = "" if grade == PASS else "memoryManagerPolicy: Static, or the policy's resize.memoryNodes: follow"
    evidence = "memory.numa_stat: " + (
        ", ".join(f"N{node} {bytes_text(size)}" for node, size in sorted(one.memory.items()) if size) or "nothing"
    )
    return IsolationCheck(
        "memory", grade, f"on NUMA nodes {one.local_nodes}", f"{_percent(share)} local", evidence, remedy
    )


def _siblings(one: OwnedFacts, facts: IsolationFacts) -> IsolationCheck:
    active = {
        kind: parse_bits_or_empty(cpus)
        for kind, cpus in sorted(one.siblings.items())
        if _busy(parse_bits_or_empty(cpus), facts)
    }
    grade = FAIL if "owner" in active else WARN if active else PASS
    names = {"owner": "another owner", "shared": "the shared pool"}
    observed = ", ".join(f"{format_bits(cpus)} of {names.get(kind, kind)}" for kind, cpus in active.items())
    remedy = "cpuManagerPolicyOptions full-pcpus-only, and whole cores in the requests" if active else ""
    evidence = "thread_siblings_list, /proc/stat"
    return IsolationCheck("siblings", grade, "its own or idle", observed or "its own or idle", evidence, remedy)


def _busy(cpus: Bits, facts: IsolationFacts) -> Bits:
    """Return the CPUs that were not idle, or of which nothing is known."""
    # Two ticks: both readings of /proc/stat are cut to whole ones.
    quiet = _NOTICEABLE * facts.seconds + 2 * facts.tick
    return sum(1 << cpu for cpu in iter_bits(cpus) if facts.busy.get(cpu, facts.seconds) > quiet)


def _steal(cpus: Bits, facts: IsolationFacts) -> IsolationCheck:
    stolen = [facts.stolen[cpu] for cpu in iter_bits(cpus) if cpu in facts.stolen]
    if len(stolen) < cpus.bit_count():
        return _unknown("steal", "0", "/proc/stat")
    share = _share(sum(stolen), facts.seconds * cpus.bit_count())
    grade = PASS if not sum(stolen) else WARN if share < _LITTLE_STEAL else FAIL
    remedy = "" if grade == PASS else "pin the virtual machine's CPUs on its host"
    evidence = f"/proc/stat: steal grew by {sum(stolen):.2f} s"
    return IsolationCheck("steal", grade, "0", _percent(share), evidence, remedy)


def _tick(cpus: Bits, facts: IsolationFacts) -> IsolationCheck:
    without = parse_bits_or_empty(facts.nohz_full) & cpus
    observed = f"none on {format_bits(without)}" if without else "regular"
    evidence = f"/sys/devices/system/cpu/nohz_full is {facts.nohz_full or 'empty'}"
    remedy = "" if without == cpus else f"boot with nohz_full={format_bits(cpus)} if the tick matters"
    return IsolationCheck("tick", INFO, "", observed, evidence, remedy)


def _cache(one: OwnedFacts, facts: IsolationFacts) -> IsolationCheck:
    """Return the use of cache and memory bandwidth, for information: only its neighbours show whether it is much."""
    seen = [] if one.cache_used is None else [f"{bytes_text(one.cache_used)} of L3"]
    seen += [f"{bytes_text(int(_share(size, facts.seconds)))}/s {kind}" for kind, size in sorted(one.moved.items())]
    files = ["llc_occupancy"] * (one.cache_used is not None) + [f"mbm_{kind}_bytes" for kind in sorted(one.moved)]
    evidence = f"resctrl: {', '.join(files)}"
    return IsolationCheck("cache", INFO, "", ", ".join(seen), evidence)
