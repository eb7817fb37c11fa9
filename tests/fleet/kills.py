"""Runs that are killed again and again, at any moment, and taken up again: `python -m tests.fleet.kills --kills 200`.

A moment is a pod that comes or goes in the simulation, or a call that a file is written with. Each attempt is a fork
that kills itself at one of them, drawn from the seed; when an attempt gets to the end, every file must be that of a run
which was left alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from podslice.fleet.scheduler.queue import PodQueue
from podslice.fleet.workers import checkpoint_file
from tests.fleet.test_runs import files_of, fleet

_EVENTS, _CALLS = 2500, 24
"""Moments of a kind, one of which is drawn: about as many as an attempt has of them."""
SCENARIO = """
apiVersion: podslice.dev/fleet/v1
name: long
seeds: [1, 2]
machines: {small: {from: 'pack:2 numa:1(memory=16GiB) core:8 pu:1'}}
nodes: [{class: small, count: 12}]
workload:
  - synthetic:
      shapes: [{cpu: 1}, {cpu: 3}, {cpu: 5, memory: 2Gi}]
      arrivals: {poisson: 2/s}
      lifetime: {exponential: 25s}
      pods: PODS
kubelets:
  now: {set: {cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node, reservedSystemCPUs: '0'}}
"""


def write_scenario(folder: Path, *, pods: int = 1500) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "scenario.yaml").write_text(SCENARIO.replace("PODS", str(pods)))
    return folder / "scenario.yaml"


class _Countdown:
    """Kills this process when so many moments have passed."""

    def __init__(self, left: int) -> None:
        self._left = left

    def before(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, each call of which is a moment."""

        def count_down(*words: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return own(*words, **named)

        return count_down


def _attempt(file: Path, out: Path, chance: Random) -> bool:
    """A process that makes what is missing and is killed somewhere, unless it is done before; whether it is."""
    in_files = chance.random() < 0.5
    countdown = _Countdown(chance.randrange(1, _CALLS if in_files else _EVENTS))
    child = os.fork()
    if not child:
        checkpoint_file.EVERY = 0.0
        if in_files:
            for name in ("open", "write", "fsync", "replace"):
                setattr(os, name, countdown.before(getattr(os, name)))
        else:
            for name in ("arrive", "end"):
                setattr(PodQueue, name, countdown.before(getattr(PodQueue, name)))
        result = fleet("run", file, "--out", out, "--workers", 1, "--resume")
        print(result.output, result.exception or "", file=sys.stderr) if result.exit_code else None
        os._exit(bool(result.exit_code))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status):
        raise AssertionError(f"an attempt ended with exit code {os.WEXITSTATUS(status)}")
    return True


def campaign(folder: Path, *, kills: int, seed: int) -> tuple[int, int]:
    """So many kills, and how many runs they were in. Raises `AssertionError` where a run ends with other files."""
    chance, file = Random(seed), write_scenario(folder, pods=700)
    assert fleet("run", file, "--out", folder / "whole", "--workers", 1).exit_code == 0
    whole = files_of(folder / "whole")
    killed = runs = 0
    while killed < kills:
        runs += 1
        out = folder / f"run{runs}"
        while not _attempt(file, out, chance):
            killed += 1
        assert files_of(out) == whole, f"seed {seed}, run {runs}"
    return killed, runs


def main() -> int:
    """Run it once."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    found = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killed, runs = campaign(Path(folder), kills=found.kills, seed=found.seed)
    print(f"{killed} kills in {runs} runs: every run ended with the same bytes as one that was left alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
