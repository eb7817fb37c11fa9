"""A whole run: the cells of a scenario are simulated, each is saved as soon as it is done, and tables are made of all.

Whatever ends it (a key, a full disk, a lost worker), saved cells stay, and a later run makes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.config.kubelet import KubeletConfig
from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.cluster import ClassStartError, kubelet_profile
from podslice.fleet.scenario.scenario import FleetScenario
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import CELLS, CHECKPOINT, INPUTS, SCENARIO, RunStore
from podslice.fleet.workers.checkpoint_file import stoppable
from podslice.fleet.workers.dask_client import dask_executor
from podslice.fleet.workers.pool import CellAnswer, Task, local_executor, run_tasks, simulate
from podslice.fleet.workers.progress import ProgressListener
from podslice.reading.yaml import dump
from podslice.values.errors import InputError
from podslice.values.quantity import plural
from podslice.values.quirks import PROFILE_RELEASES
from podslice.version import running_version

# Limits of the inputs sent to remote workers and copied into a run, in bytes.
_MOST_SENT = 256 << 20
_MOST_KEPT = 64 << 20
_MOST_NAMED = 3


class RunPlan(NamedTuple):
    """The plan of a run.

    - `cells`: all cells that can run; `missing`: those that are not saved yet.
    - `not_started`: configurations whose kubelets do not start, a line each.
    - `assumed`: assumptions about machines; `warnings`: a line each.
    """

    cells: tuple[FleetCell, ...]
    missing: tuple[FleetCell, ...]
    not_started: tuple[str, ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def resolve_defaults(scenario: FleetScenario) -> dict[str, Any]:
    """Return the scenario with every default filled in, as plain data."""
    found = msgspec.to_builtins(scenario)
    assert isinstance(found, dict)
    return found


def resolved_yaml(scenario: FleetScenario) -> str:
    """Return the same as YAML."""
    return dump(resolve_defaults(scenario))


def find_startable(study: Study) -> tuple[tuple[FleetCell, ...], tuple[str, ...]]:
    """Return the cells whose kubelets start, and why the others' do not."""
    problems: dict[tuple[str, str], str] = {}
    known: set[tuple[str, str]] = set()
    for cell in study.cells:
        place = (cell.alternative, cell.configuration)
        if place in known:
            continue
        known.add(place)
        try:
            study.start(cell)
        except ClassStartError as error:
            problems[place] = str(error)
    cells = tuple(cell for cell in study.cells if (cell.alternative, cell.configuration) not in problems)
    return cells, tuple(dict.fromkeys(problems.values()))


def plan_run(study: Study, store: RunStore | None, *, only: str = "", resume: bool = False) -> RunPlan:
    """Return what is to be done; `only`: cells with this in their key. Raises `InputError` where nothing is."""
    notes = study.check_traces()
    cells, not_started = find_startable(study)
    chosen = tuple(cell for cell in cells if only in cell.key)
    if only and not chosen:
        keys = ", ".join(cell.key for cell in cells[:3])
        raise InputError(f"no cell's key has {only!r} in it", path="--only", remedy=f"keys are such as {keys}")
    missing, warnings = list(chosen), list(notes)
    if store is not None and resume:
        identity, missing = study.id, []
        for cell in chosen:
            problem = store.find_problem(cell.key, identity)
            if problem is None:
                continue
            missing.append(cell)
            if problem:
                warnings.append(f"cell {cell.key} {problem}; it is made again")
    return RunPlan(cells, tuple(missing), not_started, assumptions(study), (*warnings, *disagreements(study, cells)))


def disagreements(study: Study, cells: Sequence[FleetCell]) -> tuple[str, ...]:
    """Return a line for each configuration whose kubelets have other allocatable CPUs than the Node objects of a live
    cluster: the scheduler counts by the objects, the kubelet admits by its configuration."""
    if not any(one.allocatable for one in study.cluster.classes):
        return ()
    found: dict[str, list[str]] = {}
    for cell in {(one.alternative, one.configuration): one for one in cells}.values():
        for one in study.start(cell).classes[: len(study.cluster.classes)]:
            own, reported = one.kubelet_allocatable["cpu"], one.allocatable["cpu"]
            if own != reported:
                found.setdefault(cell.configuration, []).append(f"{one.name}: {own / 1000:g}, not {reported / 1000:g}")
    return tuple(
        f"kubelet {name} leaves other CPUs than Node objects say, by which the scheduler counts ({_few(classes)})"
        for name, classes in found.items()
    )


def _few(words: Sequence[str]) -> str:
    more = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def assumptions(study: Study) -> tuple[str, ...]:
    """Return lines about the source of each node's machine, and about what was assumed."""
    counts: dict[int, int] = {}
    for node in study.cluster.nodes:
        counts[node.kind] = counts.get(node.kind, 0) + 1
    by_source: dict[str, int] = {}
    by_reason: dict[str, int] = {}
    for number, found in enumerate(study.cluster.classes):
        by_source[found.source] = by_source.get(found.source, 0) + counts.get(number, 0)
        if found.assumed:
            by_reason[found.assumed] = by_reason.get(found.assumed, 0) + counts.get(number, 0)
    names = {"captured": "captured or written down", "nrt": "from NodeResourceTopology", "assumed": "assumed"}
    first = ", ".join(f"{names[source]} for {count} nodes" for source, count in sorted(by_source.items()))
    reasons = (f"{count} nodes: {reason}" for reason, count in by_reason.items())
    lines = (f"machines: {first}", *reasons, *release_notes(study, counts))
    return (*lines, *time_scale_notes(study), *initial_pod_notes(study))


def release_notes(study: Study, counts: Mapping[int, int]) -> Iterator[str]:
    """Yield a line for each configuration whose kubelets are of several releases, or of one that is named. `counts`:
    nodes by class."""
    base = PROFILE_RELEASES[study.scenario.profile]
    for name in study.scenario.kubelets:
        by_release: dict[int, int] = {}
        for number, found in enumerate(study.cluster.classes):
            minor = PROFILE_RELEASES[kubelet_profile(study.scenario, name, found)].minor
            by_release[minor] = by_release.get(minor, 0) + counts.get(number, 0)
        if by_release.keys() != {base.minor}:
            said = ", ".join(f"1.{minor} for {plural(count, 'node')}" for minor, count in sorted(by_release.items()))
            yield f"Kubernetes, kubelet {name}: {said}"


def time_scale_notes(study: Study) -> tuple[str, ...]:
    """Return a line about times of traces that are scaled, if any are."""
    scenario = study.scenario
    scales = {work.reading.time.scale for work in scenario.workload if work.trace} - {1.0}
    if not scales:
        return ()
    by = ", ".join(f"{scale:g}" for scale in sorted(scales))
    return (f"times of traces are multiplied by {by}, the delay after a refusal ({scenario.refusals.delay}) is not: "
            "attempts of pods that loop are counted in this other time",)  # fmt: skip


def initial_pod_notes(study: Study) -> tuple[str, ...]:
    """Return a line about how the resources of a live cluster's pods are known, from the first configuration that
    starts."""
    if not study.cluster.starts:
        return ()
    cell = next(iter(find_startable(study)[0]), None)
    counts = study.initial_fleet(cell).counts if cell else {}
    names = {
        "exact": "as state files say",
        "zones": "so that the sums of NodeResourceTopology agree (approximate)",
        "again": "admitted again in order of their start",
    }
    sources = ", ".join(f"{names[how]} on {plural(count, 'node')}" for how, count in sorted(counts.items()))
    return (f"pods at the beginning: {sources}",) if sources else ()


_FILTER_COST = {"kube": 1.0, "kube-nrt": 1.5, "exact": 1.5}
_ALIGNMENT_COST = {"none": 0, "best-effort": 2, "restricted": 2, "single-numa-node": 3}


def sort_longest_first(study: Study, cells: Sequence[FleetCell]) -> tuple[FleetCell, ...]:
    """Return the cells by estimated duration, the longest first, so that workers end at about the same time.

    Nothing but the order depends on the estimate. Equal ones keep their order.
    """
    known: dict[tuple[str, str], float] = {}
    for cell in cells:
        place = cell.alternative, cell.configuration
        if place not in known:
            known[place] = max(map(_admission_cost, study.configs(cell).values()), default=0.0)

    def cost(cell: FleetCell) -> float:
        filtering = _FILTER_COST[study.scenario.schedulers[cell.scheduler].filter]
        return -filtering * known[cell.alternative, cell.configuration]

    return tuple(sorted(cells, key=cost))


def _admission_cost(config: KubeletConfig) -> float:
    """Return the cost of an admission, in those of a kubelet without managers."""
    managed = (config.cpu_manager_policy != "none") + 2 * (config.memory_manager_policy != "None")
    return 1.0 + managed + _ALIGNMENT_COST.get(config.topology_manager_policy, 0)


def identity(study: Study, plan: RunPlan) -> dict[str, Any]:
    """Return what identifies a run, enough to recognize another run of the same."""
    return {
        "id": study.id,
        "name": study.scenario.name,
        "podslice": running_version(),
        "inputs": study.inputs.digests(),
        "workload": study.workload_id,
        "cells": [cell.key for cell in plan.cells],
        "notStarted": list(plan.not_started),
        "assumed": list(plan.assumed),
        "ties": {name: one.ties for name, one in study.scenario.schedulers.items()},
        "nodes": len(study.cluster.nodes),
    }


def open_executor(study: Study, workers: int, dask: str) -> AbstractContextManager[Any]:
    """Return a context with the executor that simulates, None for this very process. Raises `InputError`."""
    if dask:
        return dask_executor(dask, *read_inputs(study))
    return local_executor(workers) if workers > 1 else stoppable()


def make_tasks(
    study: Study, cells: tuple[FleetCell, ...], store: RunStore, *, verify: int | None, sent: bool
) -> list[Task]:
    """Return a task for each cell. `sent`: workers do not see our files, and keep no checkpoints."""
    folder = study.inputs.folder.absolute()
    scenario = json.dumps(resolve_defaults(study.scenario))
    place = "" if sent else str((store.folder / CELLS).absolute())
    identity, release = study.id, running_version() if sent else ""
    return [
        Task(scenario, str(folder), cell.key, verify, place and f"{place}/{cell.key}{CHECKPOINT}", identity, release)
        for cell in cells
    ]


def read_inputs(study: Study) -> tuple[list[tuple[str, bytes]], int]:
    """Return the scenario's files by the names it has for them, and how many folders up these names go. Raises
    `InputError`."""
    found: list[tuple[str, bytes]] = []
    depth = 0
    for name, path in sorted(study.inputs.named.items()):
        if not path.is_file():
            raise InputError(f"{name} is not a file", path="--dask", remedy="workers elsewhere take files only")
        if Path(name).is_absolute():
            raise InputError(f"{name} is an absolute path", path="--dask", remedy="name it from the scenario's folder")
        depth = max(depth, Path(name).parts.count(".."))
        found.append((name, path.read_bytes()))
    if sum(len(data) for _, data in found) > _MOST_SENT:
        raise InputError(f"the inputs are more than {_MOST_SENT >> 20} MiB", path="--dask", remedy="compress them")
    return found, depth


def copy_inputs(study: Study, store: RunStore) -> None:
    """Copy the scenario's files into the run, so that it is complete by itself; up to 64 MiB of them. Raises
    `InputError`."""
    kept = 0
    for name, path in sorted(study.inputs.named.items()):
        place = Path(name)
        # A copy must stay inside the folder of the run.
        if place.is_absolute() or ".." in place.parts or not path.is_file():
            continue
        kept += path.stat().st_size
        if kept <= _MOST_KEPT and not (store.folder / INPUTS / name).exists():
            store.write(f"{INPUTS}/{name}", path.read_bytes())


def open_study(store: RunStore) -> Study | None:
    """Return the study of a run from its own copies; None where some are missing."""
    try:
        return Study(load_scenario(store.folder / SCENARIO), store.folder / INPUTS)
    except InputError:
        return None


def simulate_cells(
    executor: Any,
    tasks: list[Task],
    store: RunStore,
    identity: str,
    listener: ProgressListener,
    same: Mapping[str, Sequence[FleetCell]],
) -> Iterator[CellAnswer]:
    """Simulate cells and save each, with its equivalent ones (`same`); report progress to `listener`. Raises
    `InputError` for a cell that cannot be simulated or saved."""
    answers: Iterator[CellAnswer]
    if executor is None:
        answers = (simulate(task, listener.report) for task in tasks)
    else:
        answers = run_tasks(executor, simulate, tasks, listener)
    for answer in answers:
        if answer.problem:
            raise InputError(f"cell {answer.key}: {answer.problem}")
        for cell in same[answer.key]:
            page = {"key": cell.key, "scenario": identity, "summary": dict(answer.summary)}
            store.write_cell(cell.key, answer.data, page)
            store.drop_checkpoint(cell.key)
            yield answer._replace(key=cell.key, warning=answer.warning if cell.key == answer.key else "")
