"""`python -m benchmarks.isolation`: processor time of the isolation report of a node with 50 containers that own CPUs.

The node is plain files below a temporary folder: 50 containers of 20 threads on 200 CPUs, 1,500 threads of the system
that may run anywhere, 300 interrupts. The seconds for which the report looks are left out. The goal is 1.5 s.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from podslice.host.filesystem import DiskFileSystem
from podslice.isolation.kernel_facts import IsolationSources, OwnedCgroup, read_isolation
from podslice.isolation.report import IsolationReport, isolation_report
from podslice.values.cpuset import parse_bits

CONTAINERS, THREADS, SYSTEM, CPUS, LINES = 50, 20, 1500, 256, 300
GOAL_SECONDS = 1.5


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _thread(proc: Path, number: int, cgroup: str, cpus: str) -> None:
    stat = f"{number} (worker) S 1 0 0 0 0 0 {' '.join('0' for _ in range(29))} 5 0\n"
    for folder in (proc / str(number), proc / str(number) / "task" / str(number)):
        _write(folder / "stat", stat)
        _write(folder / "status", f"Name:\tworker\nCpus_allowed_list:\t{cpus}\n")
        _write(folder / "schedstat", "1000 5 7\n")
    _write(proc / str(number) / "sched", "se.nr_migrations   :   4\n")
    _write(proc / str(number) / "cgroup", f"0::/{cgroup}\n")


def make_node(root: Path) -> tuple[list[OwnedCgroup], IsolationSources]:
    """Write the files of a node, and return the cgroups with CPUs of their own and where to read."""
    proc, cgroups, sys = root / "proc", root / "cgroup", root / "sys"
    owners = []
    for at in range(CONTAINERS):
        path, cpus = f"kubepods/pod{at}/app", f"{4 * at}-{4 * at + 3}"
        ids = range(10_000 + at * THREADS, 10_000 + (at + 1) * THREADS)
        _write(cgroups / path / "cpuset.cpus.effective", cpus)
        _write(cgroups / path / "cpu.stat", "usage_usec 100\nnr_throttled 0\n")
        _write(cgroups / path / "memory.numa_stat", "anon N0=4096 N1=0\n")
        _write(cgroups / path / "cgroup.threads", "\n".join(map(str, ids)))
        for tid in ids:
            _thread(proc, tid, path, cpus)
        owners.append(OwnedCgroup(f"pod{at}", "app", path, parse_bits(cpus)))
    for tid in range(100, 100 + SYSTEM):
        _thread(proc, tid, "system.slice", f"0-{CPUS - 1}")
    counts = "".join("      1000" for _ in range(CPUS))
    head = "".join(f"      CPU{cpu}" for cpu in range(CPUS))
    lines = "\n".join(f" {number}:{counts}  PCI-MSI  {number}-edge  nvme{number}" for number in range(LINES))
    _write(proc / "interrupts", f"{head}\n{lines}\n")
    _write(proc / "stat", "\n".join(f"cpu{cpu} 1 0 0 0 0 0 0 0 0 0" for cpu in range(CPUS)))
    for cpu in range(CPUS):
        _write(sys / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", str(cpu))
    _write(sys / "devices/system/node/node0/cpulist", f"0-{CPUS - 1}\n")
    others = {"system.slice": "other"}
    return owners, IsolationSources(DiskFileSystem(proc), DiskFileSystem(cgroups), DiskFileSystem(sys), others)


def measure_report(root: Path) -> tuple[IsolationReport, float]:
    """Make the report, and return it with its processor time."""
    owners, sources = make_node(root)
    began = time.process_time()
    report = isolation_report(read_isolation(owners, sources, wait=lambda: 10.0))
    return report, time.process_time() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report, seconds = measure_report(Path(folder))
    print(f"{len(report.containers)} containers: {seconds:.2f} s of processor time, at most {GOAL_SECONDS} s wanted")


if __name__ == "__main__":
    main()
