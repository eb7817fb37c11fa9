"""`python -m e2e`: run scenarios in the virtual machine and print a table of ids by machine shape."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from e2e import (
    cluster_results,
    cpu_scenarios,
    defrag_scenarios,
    device_scenarios,
    failure_scenarios,
    guard_scenarios,
    hotplug_scenarios,
    memory_scenarios,
    metrics_scenarios,
    mixed_scenarios,
    pod_level_scenarios,
    pod_resources_scenarios,
    resize_scenarios,
    runtime_scenarios,
    topology_scenarios,
)
from e2e.cluster_run import choose, run_cluster
from e2e.cluster_scenarios import CLUSTER
from e2e.image import KERNEL_SUITE, checkout_disk, kernel, lock_cache, root_image, snapshot_name
from e2e.kubelet import RefusedError
from e2e.packages import FetchError
from e2e.programs import default_cache
from e2e.scenarios import SCENARIOS, Json, Scenario
from e2e.vm import KERNELS, SHAPES, GuestError, Shape, VirtualMachine
from e2e.world import CheckError, World

SUITES = (
    cpu_scenarios,
    pod_level_scenarios,
    memory_scenarios,
    topology_scenarios,
    pod_resources_scenarios,
    metrics_scenarios,
    device_scenarios,
    runtime_scenarios,
    mixed_scenarios,
    resize_scenarios,
    defrag_scenarios,
    failure_scenarios,
    guard_scenarios,
    hotplug_scenarios,
)
REPOSITORY = Path(__file__).resolve().parent.parent
SHORT = (
    "C03",
    "C08",
    "C16",
    "C25",
    "C32",
    "C39",
    "P03",
    "P07",
    "MP03",
    "T04",
    "X-agent-killed",
    "X-refusals",
    "X-stranger",
)


class Outcome(NamedTuple):
    """One scenario on one machine. An empty `problem` is a pass."""

    ident: str
    shape: str
    seconds: float
    problem: str


def main() -> int:
    """Exit 0 if all passed, 1 if not, 2 if the test cannot run here."""
    options = _options()
    try:
        return _run_cluster(options) if options.cluster else _run(options)
    except FetchError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="scenarios, wildcards allowed (default: a short set)")
    parser.add_argument("--full", action="store_true", help="all scenarios on all machines")
    parser.add_argument("--cluster", action="store_true", help="the scenarios of a cluster with a real kubelet instead")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this machine")
    parser.add_argument("--jobs", type=int, default=1, help="machines at a time, about a core each (default: 1)")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="write the table as Markdown; rows that did not run stay"
    )
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    chosen = [s for s in SCENARIOS.values() if options.full or _matches(s.ident, options.ids or SHORT)]
    if options.list or not chosen:
        for one in SCENARIOS.values():
            print(f"{one.ident:24} {', '.join(one.shapes)}")
        return 0 if options.list else 2
    named = options.shape or (SHAPES if options.full or options.ids else ["2x2x4x2"])
    shapes = [SHAPES[name] for name in named if any(name in one.shapes for one in chosen)]
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with lock_cache(cache):
        root, checkout = root_image(cache), checkout_disk(REPOSITORY, cache)
        suites = {KERNELS.get(shape.name, KERNEL_SUITE) for shape in shapes}
        built = {suite: Built(*kernel(cache, suite), root, checkout) for suite in suites}

    def on_shape(shape: Shape) -> list[Outcome]:
        mine = [s for s in chosen if shape.name in s.shapes]
        return _on_shape(shape, mine, cache, built[KERNELS.get(shape.name, KERNEL_SUITE)])

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [one for found in pool.map(on_shape, shapes) for one in found]
    table = _table(outcomes, [shape.name for shape in shapes])
    print("\n" + table)
    failed = [one for one in outcomes if one.problem]
    for outcome in failed:
        print(f"{outcome.ident} on {outcome.shape}: {outcome.problem}")
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} passed")
    if options.results:
        before = options.results.read_text() if options.results.exists() else ""
        options.results.write_text(markdown(outcomes, before, cluster_results.this_run().rpartition(" ")[2]))
    return 1 if failed else 0


def _run_cluster(options: argparse.Namespace) -> int:
    chosen = choose(options.ids, full=options.full)
    if options.list or not chosen:
        for one in CLUSTER.values():
            print(f"{one.ident:10} {'short' if one.short else '':6} {one.promise}")
        return 0 if options.list else 2
    cache = default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    outcomes = run_cluster(chosen, cache, options.jobs)
    failed = [one for one in outcomes if one.problem]
    print("\n" + "".join(f"{one.ident}: {one.problem}\n" for one in failed), end="")
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} passed")
    if options.results:
        promises = {one.ident: one.promise for one in CLUSTER.values()}
        before = options.results.read_text() if options.results.exists() else ""
        page = cluster_results.markdown(outcomes, promises, cluster_results.this_run(), before)
        options.results.write_text(page)
    return 1 if failed else 0


def _matches(ident: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(ident, pattern) for pattern in patterns)


class Built(NamedTuple):
    """Files that every machine starts from: three, and the disk with the checkout."""

    linux: Path
    initramfs: Path
    root: Path
    checkout: bytes


def _on_shape(shape: Shape, scenarios: list[Scenario], cache: Path, built: Built) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="run-", dir=cache) as name:
        checkout = Path(name) / "checkout.tar"
        checkout.write_bytes(built.checkout)
        snapshot = cache / snapshot_name(shape, built.initramfs, built.root)
        machine = VirtualMachine(shape, Path(name), built.linux, built.initramfs, built.root, checkout, snapshot)
        return _in_groups(machine, shape, scenarios)


def _in_groups(machine: VirtualMachine, shape: Shape, scenarios: list[Scenario]) -> list[Outcome]:
    """Scenarios with the same configuration share a resumed machine as long as they pass."""
    groups: dict[str, list[Scenario]] = {}
    for one in scenarios:
        config = one.config(shape) if callable(one.config) else one.config
        groups.setdefault(json.dumps([config, one.agent], sort_keys=True), []).append(one)
    outcomes: list[Outcome] = []
    for settings, members in groups.items():
        config, agent = json.loads(settings)
        waiting = list(members)
        while waiting:
            with machine as vm:
                outcomes += _group(vm, config, agent, waiting)
    return outcomes


def _group(vm: VirtualMachine, config: Json, agent: Json, waiting: list[Scenario]) -> Iterable[Outcome]:
    """Run scenarios until one fails; what ran is taken from `waiting`."""
    world: World | None = None
    while waiting:
        one = waiting.pop(0)
        begin = time.monotonic()
        problem = ""
        try:
            if world is None:
                world = World(vm, config, agent)
            one.run(world, **one.arguments)
            world.remove(*list(world.kubelet.pods.values()))
            world.nothing_left()
        except (CheckError, GuestError, RefusedError) as error:
            problem = str(error)
        seconds = time.monotonic() - begin
        print(
            f"{'FAILED' if problem else 'passed'}  {one.ident:20} {vm.shape.name:18} {seconds:5.1f} s  {problem}",
            flush=True,
        )
        yield Outcome(one.ident, vm.shape.name, seconds, problem)
        if problem:
            print(_log(vm), flush=True)
            return


def _log(vm: VirtualMachine) -> str:
    """Return the last output of the agent and the runtime."""
    nri = "grep -iE nri /run/containerd.log | tail -n 5"
    try:
        return str(vm.call("shell", command=f"tail -n 12 /run/agent.log; {nri}", timeout=30))
    except GuestError as error:
        return str(error)


Cells = dict[tuple[str, str], str]
"""Results by scenario and machine."""


def _results(outcomes: list[Outcome], commit: str = "") -> Cells:
    return {(one.ident, one.shape): f"{'FAIL' if one.problem else 'pass'} {commit}".strip() for one in outcomes}


def _rows(found: Cells, shapes: Iterable[str], idents: Iterable[str]) -> list[list[str]]:
    """A row for each of these scenarios."""

    def cell(one: Scenario, shape: str) -> str:
        return found.get((one.ident, shape), "not run" if shape in one.shapes else "-")

    return [[ident, *(cell(SCENARIOS[ident], shape) for shape in shapes)] for ident in idents]


def _table(outcomes: list[Outcome], shapes: list[str]) -> str:
    idents = dict.fromkeys(one.ident for one in outcomes)
    rows = [["ID", *shapes], *_rows(_results(outcomes), shapes, idents)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def markdown(outcomes: list[Outcome], before: str = "", commit: str = "") -> str:
    """The page: what ran now, at this commit of the checkout, and what the page `before` has of the others."""
    found = _cells(before) | _results(outcomes, commit)
    rows = [["id", *SHAPES], ["---"] * (len(SHAPES) + 1), *_rows(found, SHAPES, SCENARIOS)]
    passed = f"{sum(result.startswith('pass') for result in found.values())} of {len(found)} that ran passed."
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    said = "Behind a result stands the commit that it is of; one without is of 2026-11-22 or earlier."
    return f"# End-to-end results\n\n{passed} {said} `-`:\nthe machine lacks what the row is about.\n\n{table}\n"


def _cells(page: str) -> Cells:
    """Return the content of a page."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return {
        (row[0], shape): result
        for row in rows[2:]
        for shape, result in zip(rows[0][1:], row[1:], strict=False)
        if result.partition(" ")[0] in ("pass", "FAIL") and row[0] in SCENARIOS
    }


if __name__ == "__main__":
    sys.exit(main())
