"""`python -m tools.mutations`: whether a test fails when one line of the deciding code is wrong.

Each of `MUTATIONS` changes one line in a copy of `src`. The tests beside that code run first, those that name its
module before the others, then all fast unit tests. A failure counts when the same test passes without the change.
Prints the failing test of each; exits 1 when more than `MOST_MISSED` were missed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = Path("podslice")
MOST_MISSED = 2
PATIENCE = ("--timeout", "600")
"""A test that is stopped while it draws examples ends all of pytest: only one that hangs is."""
UNIT = "not process and not conformance"
BESIDE = {
    "node/cpu": ("node/cpu", "node", "node/resize"),
    "node/topology": ("node/topology", "node/plugins", "node/memory", "node/devices", "node/cpu"),
    "node/memory": ("node/memory", "node/topology", "node/resize"),
    "node/devices": ("node/devices", "node/topology"),
    "node/resize": ("node/resize",),
    "node/effects": ("node/effects", "advise/inspect", "node/resize", "state_files"),
    "node": ("node", "node/memory", "node/devices", "node/plugins", "node/resize", "node/hotplug"),
    "api": ("api/pod", "api/server", "node/resize", "api"),
    "machine": ("machine",),
    "config": ("config",),
    "values": ("values", "config"),
}
"""The folders of tests that run first, by the folder of the changed line; the first entry that holds it counts."""
JUDGES = ("replay", "properties", "scenarios")
"""The folders of tests that follow a pod through all of admission."""


class Mutation(NamedTuple):
    """A change of one line: `before` in `file` becomes `after`."""

    file: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}: {self.before} → {self.after}"


MUTATIONS = tuple(
    Mutation(*one)
    for one in (
        ("node/cpu/picking/balance.py", "mean * mean - 2000", "mean * mean + 2000"),
        ("node/cpu/picking/bounded.py", "if len(rest) >= missing and (", "if len(rest) > missing and ("),
        ("node/cpu/picking/combinations.py", "if fullest < count:", "if fullest <= count:"),
        ("node/cpu/picking/packed.py", "topology.num_sockets >= len(", "topology.num_sockets > len("),
        ("node/cpu/resize.py", "chosen |= min(fitting)[2]", "chosen |= max(fitting)[2]"),
        ("node/cpu/pod_resize.py", "own = pod_cpus & ~sidecars", "own = pod_cpus & sidecars"),
        ("node/topology/intersect.py", "self._distance(node, other) + ", "self._distance(node, other) - "),
        ("node/topology/intersect.py", "if change < 0 or (change == 0", "if change <= 0 or (change == 0"),
        ("node/topology/merge.py", "hint.mask is None or hint.mask.bit_count() == 1", "hint.mask is None"),
        ("node/topology/scored.py", "self.smallest if self.smallest < size", "self.smallest if self.smallest > size"),
        ("node/topology/split.py", "if rest and min(rest) < 0:", "if rest and max(rest) < 0:"),
        (
            "node/topology/spreads.py",
            "return count * added + count * (count - 1)",
            "return count * added + count * (count + 1)",
        ),
        ("node/cpu/hints.py", "return there.bit_count() >= count and", "return there.bit_count() > count and"),
        ("node/devices/hints.py", "set(on_node) & set(machine_nodes)", "set(on_node) | set(machine_nodes)"),
        ("node/memory/hints.py", "short = short or free & U64 < amount", "short = short or free & U64 <= amount"),
        ("node/topology/search.py", "if not self.sockets[place] & ~touched]", "if not self.sockets[place] & touched]"),
        ("node/context.py", "if counted or metric in", "if counted and metric in"),
        ("node/cpu/manager.py", "there = held & ~self.state.offline", "there = held"),
        ("node/devices/manager.py", "written=not context.quirks.dev", "written=context.quirks.dev"),
        ("node/devices/manager.py", "return held is not None or count == 0", "return held is not None and count == 0"),
        ("node/memory/elastic.py", "and grows(held, request)", "and not grows(held, request)"),
        ("node/memory/state.py", "booked = min(size,", "booked = max(size,"),
        (
            "node/topology/manager.py",
            "if not again or self.context.quirks.running",
            "if again or self.context.quirks.running",
        ),
        (
            "api/server/limitrange_check.py",
            "request is not None and request > bound",
            "request is not None and request >= bound",
        ),
        ("api/server/resize.py", "!= len(ours.containers) or len(", "!= len(ours.containers) and len("),
        ("api/server/update.py", "return resources is not None and bool(", "return resources is not None or bool("),
        ("api/server/validate.py", "is_hugepages(name) and total > given", "is_hugepages(name) and total >= given"),
        ("api/server/validate_limitrange.py", "10**9) > largest", "10**9) >= largest"),
        ("machine/build.py", "pool.page_size_ki <= 0 or", "pool.page_size_ki < 0 or"),
        ("machine/readers/form.py", "if cpus > MAX_CPUS:", "if cpus >= MAX_CPUS:"),
        ("machine/model.py", "core_id = min(core.threads)", "core_id = max(core.threads)"),
        ("config/policy_options.py", "and limit < DEFAULT_NUMA_LIMIT", "and limit <= DEFAULT_NUMA_LIMIT"),
        ("config/validation.py", "not 0 < factor <= 1", "not 0 <= factor <= 1"),
        ("node/resize/allocation.py", "or not managed or pod_qos(", "or managed or pod_qos("),
        ("node/resize/exclusive.py", "if whole and bool(allocated.cpus)", "if whole or bool(allocated.cpus)"),
        ("node/effects/memory_qos.py", "top = limit or settings", "top = limit and settings"),
        ("node/effects/oom.py", "_memory_request(container) + share", "_memory_request(container) - share"),
        ("values/cpuset.py", "low <= merged[-1][1] + 1:", "low <= merged[-1][1]:"),
        ("values/quantity.py", "scale = min(self.scale, other.scale)", "scale = max(self.scale, other.scale)"),
        ("values/quantity.py", "if INT64_MIN <= _unscale(", "if INT64_MIN < _unscale("),
    )
)


def mutate(mutation: Mutation, source: str) -> str:
    """Return the file's text with the one line changed. Raises `ValueError` unless the line is there exactly once."""
    if source.count(mutation.before) != 1:
        raise ValueError(f"{mutation.file}: {source.count(mutation.before)} times {mutation.before!r}, not once")
    return source.replace(mutation.before, mutation.after)


def find_failing_test(mutation: Mutation) -> str:
    """Return the first test that fails with the mutation and passes without it; empty when there is none."""
    near = _near(Path(mutation.file))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder, "src"), ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder, "src", SOURCE, mutation.file)
        target.write_text(mutate(mutation, target.read_text()))
        for tests, speed in ((near, "not slow"), (near, "slow"), (("tests",), "not slow")):
            unrelated: list[str] = []
            while test := _first_failure(Path(folder, "src"), *tests, "-m", f"{UNIT} and {speed}", *unrelated):
                if not _first_failure(ROOT / "src", test):
                    return test
                unrelated += ["--deselect", test]
    return ""


def _near(file: Path) -> tuple[str, ...]:
    folders = next(folders for room, folders in BESIDE.items() if file.is_relative_to(room))
    beside = [one for folder in folders for one in Path(ROOT, "tests", folder).glob("test_*.py")]
    beside.sort(key=lambda one: re.search(rf"\b{file.stem}\b", one.read_text()) is None)
    return (*map(str, beside), *(f"tests/{one}" for one in JUDGES))


def _first_failure(src: Path, *arguments: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-qx",
                *PATIENCE,
                "-p",
                "no:cacheprovider",
                "--basetemp",
                folder,
                *arguments,
            ],
            cwd=ROOT,
            # CI: the properties draw the same examples each time.
            env={**os.environ, "PYTHONPATH": str(src), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    found = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", run.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    return found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only mutations whose line in this list holds this")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    chosen = [one for one in MUTATIONS if arguments.only in str(one)]
    missed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for mutation, test in zip(chosen, pool.map(find_failing_test, chosen), strict=True):
            missed += not test
            print(f"{'noticed' if test else 'MISSED '}  {mutation}  {test}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} noticed")
    return 1 if missed > MOST_MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
