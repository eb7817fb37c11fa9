"""What it costs to make the cells of a fleet on two processes, or on Dask workers, instead of on one: processor time.

`python -m benchmarks.fleet_workers` runs one scenario three ways and adds up the processor time of every process that
each way needs (a Dask scheduler's too; what its start took is told apart, because a Dask cluster is there before a run
and after it). Wall time is no measure on a machine that others use; what two workers spend beside the cells is. Two
workers are then as many times faster, on two idle processors, as the printed figure says, and half of that is their
efficiency.
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

_TICK = 0.1
_STAT_UTIME = 11
"""The field of utime in /proc/PID/stat after the command's name; stime comes next."""
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
    """Processor time of all processes of some sessions, in seconds; who is gone counts with what it had at last."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self.sessions: set[int] = set()

    def look(self) -> None:
        """Read what every process has."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[_STAT_SESSION]) in self.sessions:
                ticks = int(fields[_STAT_UTIME]) + int(fields[_STAT_UTIME + 1])
                self._seen[int(path.parent.name)] = ticks / os.sysconf("SC_CLK_TCK")

    @property
    def seconds(self) -> float:
        """Of all of them."""
        return sum(self._seen.values())


def begun(command: list[str], spent: Spent, stack: ExitStack, folder: Path) -> subprocess.Popen[bytes]:
    """A command in a session of its own, ended with the stack."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    spent.sessions.add(process.pid)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def dask(folder: Path, workers: int, spent: Spent, stack: ExitStack) -> str:
    """The address of a Dask scheduler with so many workers."""
    about = folder / "scheduler.json"
    common = [sys.executable, "-m", "dask"]
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(about)]
    begun([*common, "scheduler", *words], spent, stack, folder)
    while not about.exists() or not about.read_text():
        time.sleep(_TICK)
    address = str(json.loads(about.read_text())["address"])
    told = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(folder)]
    for _ in range(workers):
        begun([*common, "worker", address, *told], spent, stack, folder)
    while (folder / "log").read_text().count("Registered to") < workers:
        time.sleep(_TICK)
    return address


def timed(folder: Path, name: str, *, workers: int, on_dask: bool) -> tuple[float, float, str]:
    """Processor seconds of a run and of what was started before it, and a digest of its tables."""
    out, spent = folder / name, Spent()
    with ExitStack() as stack:
        how = ["--dask", dask(folder, workers, spent, stack)] if on_dask else ["--workers", str(workers)]
        spent.look()
        before = spent.seconds
        command = [sys.executable, "-m", "podslice", "fleet", "run", str(folder / "s.yaml"), "--out", str(out), *how]
        process = begun(command, spent, stack, folder)
        while process.poll() is None:
            spent.look()
            time.sleep(_TICK)
        spent.look()
        if process.returncode:
            raise SystemExit((folder / "log").read_text()[-2000:])
    digest = hashlib.sha256()
    for path in sorted((out / "tables").iterdir()):
        digest.update(path.read_bytes())
    return spent.seconds - before, before, digest.hexdigest()[:12]


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_workers", description=__doc__)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--pods", type=int, default=40_000, help="of a cell")
    told = parser.parse_args()
    ways = [("one process", 1, False), ("two processes", 2, False), ("two Dask workers", 2, True)]
    one = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "s.yaml").write_text(scenario(told.cells, told.pods))
        for number, (name, workers, on_dask) in enumerate(ways):
            seconds, before, digest = timed(folder, f"run{number}", workers=workers, on_dask=on_dask)
            one = one or seconds
            gain = f"; {workers * one / seconds:.2f} times as fast on as many processors" if workers > 1 else ""
            gain += f"; their start {before:.1f} s" if before else ""
            load = os.getloadavg()[0]
            print(
                f"{told.cells} cells on {name}: {seconds:.1f} s CPU, tables {digest}, load {load:.0f}{gain}", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
