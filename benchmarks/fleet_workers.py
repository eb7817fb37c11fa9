"""Cost in processor time of making the cells of a fleet on two processes, or on Dask workers, instead of on one.

`python -m benchmarks.fleet_workers` runs one scenario three ways and adds up the processor time of every process that
each way needs (a Dask scheduler's too; its start is reported separately, because a Dask cluster is there before a run
and after it). Wall time is not a measure on a machine that others use; what two workers spend beside the cells is. The
efficiency is the processor time of one process over that of all processes of the other way; two workers are then twice
that many times as fast, on two idle processors. Equal work takes more or less time from one minute to the next on most
machines, so `--rounds` takes turns, and the sums of all rounds count. Programs are compiled before, as if installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

_TICK = 0.25
_STAT_UTIME = 11
"""The field of utime in /proc/PID/stat after the command's name; stime comes next."""
_ROLES = {
    b"scheduler": "Dask's scheduler",
    b"worker": "Dask's workers",
    b"podslice.fleet.workers.helper": "cells of workers",
    b"fleet": "the run itself",
}
_STAT_SESSION = 3


def scenario(seeds: int, pods: int) -> str:
    """Cells of some seconds each."""
    settings = {
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0,48",
        "systemReserved": {"memory": "1Gi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    }
    shapes = [{"cpu": cpus, "memory": f"{3 * cpus}Gi"} for cpus in (1, 2, 4, 8, 16)]
    made = {"shapes": shapes, "arrivals": {"poisson": "40/s"}, "lifetime": {"exponential": "200s"}, "pods": pods}
    data = {
        "apiVersion": "podslice.dev/fleet/v1",
        "name": "workers",
        "seeds": list(range(1, seeds + 1)),
        "machines": {"m": {"from": "pack:2 numa:1(memory=192GiB) l3:1 core:24 pu:2"}},
        "nodes": [{"class": "m", "count": 500}],
        "workload": [{"synthetic": made}],
        "kubelets": {"single": {"set": settings}},
    }
    return json.dumps(data)


class Spent:
    """Processor seconds of all processes of some sessions; an ended process counts with its last reading."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._roles: dict[int, str] = {}
        self._before: dict[int, float] = {}
        self.sessions: set[int] = set()

    def look(self) -> None:
        """Read the processor time of every process."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            number = int(path.parent.name)
            try:
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[_STAT_SESSION]) not in self.sessions:
                    continue
                self._roles[number] = role_of((path.parent / "cmdline").read_bytes()) or self._roles.get(number, "")
            except OSError:
                continue
            ticks = int(fields[_STAT_UTIME]) + int(fields[_STAT_UTIME + 1])
            self._seen[number] = ticks / os.sysconf("SC_CLK_TCK")

    def begin(self) -> None:
        """Count the time until now as that of the start."""
        self.look()
        self._before = dict(self._seen)

    @property
    def start(self) -> float:
        """Return the seconds of the start."""
        return sum(self._before.values())

    def by_role(self) -> dict[str, float]:
        """Return the seconds since then, by role of the processes."""
        found: dict[str, float] = {}
        for number, seconds in sorted(self._seen.items()):
            role = self._roles[number]
            found[role] = found.get(role, 0.0) + seconds - self._before.get(number, 0.0)
        return found


def role_of(command: bytes) -> str:
    """Return the role of a process, by its command line."""
    words = command.split(b"\0")
    for word, role in _ROLES.items():
        if word in words:
            return role
    return "other" if command else ""


def start_command(command: list[str], spent: Spent, stack: ExitStack, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; it ends with the stack."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
    spent.sessions.add(process.pid)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def dask(folder: Path, workers: int, spent: Spent, stack: ExitStack) -> str:
    """Start a Dask scheduler with `workers` workers and return its address."""
    log, about = folder / "log", folder / "scheduler.json"
    about.unlink(missing_ok=True)
    registered = log.read_text().count("Registered to") if log.exists() else 0
    common = [sys.executable, "-m", "dask"]
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(about)]
    start_command([*common, "scheduler", *words], spent, stack, folder)
    while not about.exists() or not about.read_text():
        time.sleep(_TICK)
    address = str(json.loads(about.read_text())["address"])
    options = [
        "--nthreads",
        "1",
        "--no-nanny",
        "--no-dashboard",
        "--host",
        "127.0.0.1",
        "--local-directory",
        str(folder),
    ]
    for _ in range(workers):
        start_command([*common, "worker", address, *options], spent, stack, folder)
    while log.read_text().count("Registered to") < registered + workers:
        time.sleep(_TICK)
    return address


class Took(NamedTuple):
    """Seconds of a run: by the clock, of processors (of its start separately, and by role), and a digest of its
    tables."""

    wall: float
    start: float
    roles: dict[str, float]
    digest: str

    @property
    def seconds(self) -> float:
        """Processor seconds of all processes together."""
        return sum(self.roles.values())


def time_run(folder: Path, *, workers: int, on_dask: bool, scenario: str = "s.yaml") -> Took:
    """Make a run."""
    out, spent = Path(tempfile.mkdtemp(dir=folder)) / "run", Spent()
    with ExitStack() as stack:
        how = ["--dask", dask(folder, workers, spent, stack)] if on_dask else ["--workers", str(workers)]
        spent.begin()
        command = [sys.executable, "-m", "podslice", "fleet", "run", str(folder / scenario), "--out", str(out), *how]
        began = time.monotonic()
        process = start_command(command, spent, stack, folder)
        while process.poll() is None:
            spent.look()
            time.sleep(_TICK)
        wall = time.monotonic() - began
        spent.look()
        if process.returncode:
            raise SystemExit((folder / "log").read_text()[-2000:])
    digest = hashlib.sha256()
    for path in sorted((out / "tables").iterdir()):
        digest.update(path.read_bytes())
    return Took(wall, spent.start, spent.by_role(), digest.hexdigest()[:12])


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_workers", description=__doc__)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--pods", type=int, default=40_000, help="of a cell")
    parser.add_argument("--only", choices=["processes", "dask"], help="beside one process")
    parser.add_argument("--rounds", type=int, default=1, help="times that each way takes its turn")
    arguments = parser.parse_args()
    ways = [("one process", 1, False), ("two processes", 2, False), ("two Dask workers", 2, True)]
    if arguments.only:
        ways.pop(2 if arguments.only == "processes" else 1)
    found: dict[str, list[Took]] = {name: [] for name, _, _ in ways}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "s.yaml").write_text(scenario(arguments.cells, arguments.pods))
        (folder / "small.yaml").write_text(scenario(2, 100))
        for _, workers, on_dask in ways:
            time_run(folder, workers=workers, on_dask=on_dask, scenario="small.yaml")
        for _ in range(arguments.rounds):
            for name, workers, on_dask in ways:
                took = time_run(folder, workers=workers, on_dask=on_dask)
                print(f"{arguments.cells} cells on {name}: {describe(took)}", flush=True)
                found[name].append(took)
    one, wall = sum(took.seconds for took in found["one process"]), sum(took.wall for took in found["one process"])
    for name, workers, _ in ways[1:]:
        efficiency = one / sum(took.seconds for took in found[name])
        by_clock = wall / sum(took.wall for took in found[name]) / workers
        print(f"{name}: efficiency {efficiency:.3f} ({workers * efficiency:.2f} times as fast on {workers} idle "
              f"processors); by the clock {by_clock:.3f}")  # fmt: skip
    return 0


def describe(took: Took) -> str:
    """Describe the time of a run, by role."""
    text = f"{took.seconds:.1f} s CPU, {took.wall:.1f} s by the clock, tables {took.digest}, "
    text += f"load {os.getloadavg()[0]:.1f}"
    if took.start:
        text += f"; their start {took.start:.1f} s"
    return text + "".join(f"\n  {role}: {seconds:.2f} s" for role, seconds in took.roles.items())


if __name__ == "__main__":
    sys.exit(main())
