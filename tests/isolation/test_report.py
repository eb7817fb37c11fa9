"""The isolation report: each promise is graded by what the kernel said twice, with evidence and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from podslice.isolation.facts import IsolationFacts, OwnedFacts
from podslice.isolation.report import (
    FAIL,
    PASS,
    UNKNOWN,
    WARN,
    IsolationCheck,
    IsolationReport,
    isolation_report,
    worst,
)
from podslice.isolation.table import isolation_page, isolation_text
from tests.isolation.node import FIXED, KERNEL, FakeKernel


def report(kernel: FakeKernel) -> IsolationReport:
    return isolation_report(kernel.facts())


def check(kernel: FakeKernel, name: str) -> IsolationCheck:
    (container,) = report(kernel).containers
    (found,) = (one for one in container.checks if one.check == name)
    return found


def test_alone() -> None:
    """A container that nobody disturbs passes, and says of each promise where it looked."""
    kernel = FakeKernel()
    kernel.later["proc/stat"] = FakeKernel.stat(dict.fromkeys(range(4, 8), 1000))
    kernel.later["cgroups/kubepods/pod1/app/cpu.stat"] = "usage_usec 41000000\nnr_throttled 5\n"
    found = report(kernel)
    assert (found.grade, found.containers[0].grade, found.seconds) == (PASS, PASS, 10.0)
    assert all(one.evidence for one in found.containers[0].checks)
    assert not [one for one in found.containers[0].checks if one.remedy and one.grade == PASS]


class Case(NamedTuple):
    name: str
    disturb: Callable[[FakeKernel], object]
    grade: str
    evidence: str


def _set(path: str, text: str) -> Callable[[FakeKernel], object]:
    return lambda kernel: kernel.later.__setitem__(path, text)


def _other_set(kind: str) -> Callable[[FakeKernel], object]:
    def disturb(kernel: FakeKernel) -> None:
        kernel.cgroups["system.slice/cpuset.cpus.effective"] = "0-4\n"
        kernel.others["system.slice"] = kind

    return disturb


def _thread(*, runs: bool, flags: int = 0, cpu: int = 6) -> Callable[[FakeKernel], object]:
    def disturb(kernel: FakeKernel) -> None:
        kernel.thread(300, "sshd", "0-7", "system.slice/ssh.service", cpu=cpu, flags=flags)
        if runs:
            kernel.ran(300)

    return disturb


APP = "cgroups/kubepods/pod1/app"
CASES = [
    Case("cpus", _set(f"{APP}/cpuset.cpus.effective", "0-7\n"), FAIL, "cpuset.cpus.effective is 0-7"),
    Case("sets", _other_set("container"), FAIL, "system.slice: 4"),
    Case("sets", _other_set("other"), WARN, "system.slice: 4"),
    Case("threads", _thread(runs=True), FAIL, "sshd (300) in system.slice/ssh.service may run on 0-7"),
    Case("threads", _thread(runs=False), WARN, "sshd (300)"),
    Case("threads", _thread(runs=True, cpu=1), WARN, "sshd (300)"),
    Case("threads", _thread(runs=True, flags=KERNEL), WARN, "sshd (300)"),
    Case("threads", _thread(runs=True, flags=KERNEL | FIXED), PASS, "Cpus_allowed_list"),
    Case("foreignTime", _set("proc/stat", FakeKernel.stat({4: 100})), FAIL, "1.00 s busy, cpu.stat: 0.00 s its own"),
    Case("foreignTime", _set("proc/stat", FakeKernel.stat({4: 20})), WARN, "0.20 s busy"),
    Case("foreignTime", _set("proc/stat", FakeKernel.stat({4: 8, 0: 1000})), PASS, "0.08 s busy"),
    Case("interrupts", _set("proc/interrupts", FakeKernel.interrupts({6: 120})), WARN, "12.0/s, mostly on CPU 6"),
    Case("interrupts", _set("proc/interrupts", FakeKernel.interrupts({6: 400})), FAIL, "irq 131 (eth0-rx-3) 40.0/s"),
    Case("interrupts", _set("proc/interrupts", FakeKernel.interrupts({1: 400})), PASS, "/proc/interrupts"),
    Case("throttling", _set(f"{APP}/cpu.stat", "usage_usec 1000000\nnr_throttled 6\n"), FAIL, "nr_throttled grew by 1"),
    Case("runDelay", lambda kernel: kernel.ran(100, delay=20_000_000), FAIL, "20.0 ms waited"),
    Case("pressure", _set(f"{APP}/cpu.pressure", "some avg10=1.00 total=500100\n"), WARN, "some grew by 500.0 ms"),
    Case("memory", _set(f"{APP}/memory.numa_stat", "anon N0=50 N1=950\n"), WARN, "N0 50, N1 950"),
    Case("memory", _set(f"{APP}/memory.numa_stat", "anon N0=500 N1=500\n"), FAIL, "N0 500"),
    Case("steal", _set("proc/stat", FakeKernel.stat({}, {5: 10})), WARN, "steal grew by 0.10 s"),
    Case("steal", _set("proc/stat", FakeKernel.stat({}, {5: 100})), FAIL, "steal grew by 1.00 s"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.grade}-{case.evidence[:20]}")
def test_what_disturbs(case: Case) -> None:
    """Each disturbance has its grade, and the evidence names the file or the culprit; what is not well has a remedy."""
    kernel = FakeKernel()
    case.disturb(kernel)
    found = check(kernel, case.name)
    assert found.grade == case.grade
    assert case.evidence in found.evidence
    assert bool(found.remedy) == (case.grade != PASS)


def test_other_sets_name_the_guard() -> None:
    """Services of the system are kept off by a guard, which the remedy names; a container's wrong set is not."""
    for kind, named in (("other", True), ("container", False)):
        kernel = FakeKernel()
        _other_set(kind)(kernel)
        assert ("guards.units" in check(kernel, "sets").remedy) is named


def test_stacked_rows_name_their_cells() -> None:
    """Where a narrow screen hides the head of the table, evidence and remedy of every check say what they are."""
    text, checks = isolation_page(report(FakeKernel())), len(report(FakeKernel()).containers[0].checks)
    assert "@media (max-width:600px){thead{display:none}" in text
    for title in ("Promised", "Seen", "Evidence", "Remedy"):
        assert text.count(f'data-title="{title}"') == checks


def test_cache_neighbours() -> None:
    """resctrl's counters of its CPUs are reported for information, and left out where there are none."""
    kernel = FakeKernel()
    assert "cache" not in {one.check for one in report(kernel).containers[0].checks}
    group = "fs/resctrl/mon_groups/podslice-u1-app"
    kernel.sys |= {
        f"{group}/cpus_list": "4-7\n",
        f"{group}/mon_data/mon_L3_00/llc_occupancy": "2097152\n",
        f"{group}/mon_data/mon_L3_00/mbm_total_bytes": "1048576\n",
    }
    kernel.later[f"sys/{group}/mon_data/mon_L3_00/mbm_total_bytes"] = str(1048576 * 31)
    found = check(kernel, "cache")
    assert (found.grade, found.observed) == ("info", "2Mi of L3, 3Mi/s total")
    assert found.evidence == "resctrl: llc_occupancy, mbm_total_bytes"
    del kernel.sys[f"{group}/mon_data/mon_L3_00/llc_occupancy"]
    kernel.sys[f"{group}/mon_data/mon_L3_00/mbm_total_bytes"] = "1048576\n"
    assert check(kernel, "cache").observed == "3Mi/s total"


def test_siblings() -> None:
    """Half a core beside the shared pool warns while the other half is busy, beside another owner it fails."""
    kernel = FakeKernel("5-7")
    assert check(kernel, "siblings").grade == PASS
    kernel.later["proc/stat"] = FakeKernel.stat({4: 500})
    found = check(kernel, "siblings")
    assert (found.grade, found.observed) == (WARN, "4 of the shared pool")
    facts = kernel.facts()
    owned = msgspec.structs.replace(facts.containers[0], siblings={"owner": "4"})
    facts = msgspec.structs.replace(facts, containers=(owned,), busy={4: 5.0})
    assert next(c for c in isolation_report(facts).containers[0].checks if c.check == "siblings").grade == FAIL


def test_what_cannot_be_read_is_unknown() -> None:
    """Without rights nothing passes: every promise that needs a file is unknown, and so is the container."""
    facts = IsolationFacts(10.0, (OwnedFacts(pod="p", container="c", cpus="4-7"),))
    (container,) = isolation_report(facts).containers
    assert container.grade == UNKNOWN
    assert {one.check for one in container.checks if one.grade == PASS} == {"sets", "siblings"}
    assert worst((PASS, UNKNOWN, WARN)) == WARN
    assert worst(()) == PASS


def test_the_report_of_a_capture_is_the_report() -> None:
    """Facts that were written down and read again give the same report (P5)."""
    kernel = FakeKernel()
    for case in CASES:
        case.disturb(kernel)
    facts = kernel.facts()
    again = msgspec.json.decode(msgspec.json.encode(facts), type=IsolationFacts)
    assert isolation_report(again) == isolation_report(facts)
    assert isolation_report(facts).grade == FAIL


def test_for_people() -> None:
    """Text and page name the container, its grade, the culprit and the remedy."""
    kernel = FakeKernel()
    kernel.later["proc/interrupts"] = FakeKernel.interrupts({6: 400})
    found = report(kernel)
    for text in (isolation_text(found, None), isolation_page(found)):
        assert "eth0-rx-3" in text
        assert "smp_affinity_list" in text
        assert "1 container with exclusive CPUs" in text
    assert isolation_text(isolation_report(IsolationFacts(1.0, ())), None) == "No container has CPUs of its own."
