"""A whole run: the cells of a scenario are made, each is kept as soon as it is there, and tables are made of all.

Whatever ends it (a key, a full disk, a worker that is lost), what is kept stays, and a later run makes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.cluster import ClassStartError
from podslice.fleet.scenario.scenario import FleetScenario
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import CELLS, CHECKPOINT, INPUTS, SCENARIO, RunStore
from podslice.fleet.workers.far import dask_executor
from podslice.fleet.workers.keeper import stoppable
from podslice.fleet.workers.pool import CellAnswer, Task, local_executor, run_tasks, simulate
from podslice.fleet.workers.shares import ShareListener
from podslice.reading.yaml import dump
from podslice.render.prose import counted
from podslice.values.errors import InputError
from podslice.version import running_version

_MOST_SENT = 256 << 20
_MOST_KEPT = 64 << 20
_MOST_NAMED = 3


class RunPlan(NamedTuple):
    """What a run is going to do: its cells, which of them are there already, configurations that do not start (in a
    line each), and what was assumed of machines."""

    cells: tuple[FleetCell, ...]
    missing: tuple[FleetCell, ...]
    not_started: tuple[str, ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def resolved(scenario: FleetScenario) -> dict[str, Any]:
    """The scenario with every default filled in, as plain data."""
    found = msgspec.to_builtins(scenario)
    assert isinstance(found, dict)
    return found


def resolved_text(scenario: FleetScenario) -> str:
    """The same as YAML."""
    return dump(resolved(scenario))


def startable(study: Study) -> tuple[tuple[FleetCell, ...], tuple[str, ...]]:
    """The cells whose kubelets start, and why the others' do not."""
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
    """What is to be done. Raises `InputError` where nothing is."""
    study.check_traces()
    cells, not_started = startable(study)
    chosen = tuple(cell for cell in cells if only in cell.key)
    if only and not chosen:
        keys = ", ".join(cell.key for cell in cells[:3])
        raise InputError(f"no cell's key has {only!r} in it", path="--only", remedy=f"keys are such as {keys}")
    missing, warnings = list(chosen), []
    if store is not None and resume:
        identity, missing = study.id, []
        for cell in chosen:
            problem = store.problem(cell.key, identity)
            if problem is None:
                continue
            missing.append(cell)
            if problem:
                warnings.append(f"cell {cell.key} {problem}; it is made again")
    return RunPlan(cells, tuple(missing), not_started, assumptions(study), (*warnings, *disagreements(study, cells)))


def disagreements(study: Study, cells: Sequence[FleetCell]) -> tuple[str, ...]:
    """Configurations whose kubelets leave other CPUs than the Node objects of a live cluster say, in a line each: the
    scheduler counts by the objects, the kubelet admits by its configuration."""
    if not any(one.allocatable for one in study.cluster.classes):
        return ()
    found: dict[str, list[str]] = {}
    for cell in {(one.alternative, one.configuration): one for one in cells}.values():
        for one in study.start(cell).classes[: len(study.cluster.classes)]:
            kept, told = one.kept["cpu"], one.allocatable["cpu"]
            if kept != told:
                found.setdefault(cell.configuration, []).append(f"{one.name}: {kept / 1000:g}, not {told / 1000:g}")
    return tuple(
        f"kubelet {name} leaves other CPUs than Node objects say, by which the scheduler counts ({_few(classes)})"
        for name, classes in found.items()
    )


def _few(words: Sequence[str]) -> str:
    more = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def assumptions(study: Study) -> tuple[str, ...]:
    """What is known of how many nodes, and what was assumed of the others, in a line each."""
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
    return (f"machines: {first}", *reasons, *compressed(study), *started_from(study))


def compressed(study: Study) -> tuple[str, ...]:
    """What it means that times of a trace are other than they were, in a line."""
    scenario = study.scenario
    scales = {work.reading.time.scale for work in scenario.workload if work.trace} - {1.0}
    if not scales:
        return ()
    told = ", ".join(f"{scale:g}" for scale in sorted(scales))
    return (f"times of traces are multiplied by {told}, the delay after a refusal ({scenario.refusals.delay}) is not: "
            "attempts of pods that loop are counted in this other time",)  # fmt: skip


def started_from(study: Study) -> tuple[str, ...]:
    """How it is known where the pods of a live cluster are, with the first configuration that starts."""
    if not study.cluster.told:
        return ()
    cell = next(iter(startable(study)[0]), None)
    counts = study.begun(cell).counts if cell else {}
    names = {
        "exact": "as state files say",
        "zones": "so that the sums of NodeResourceTopology agree (approximate)",
        "again": "admitted again in order of their start",
    }
    told = ", ".join(f"{names[how]} on {counted(count, 'node')}" for how, count in sorted(counts.items()))
    return (f"pods at the beginning: {told}",) if told else ()


def identity(study: Study, plan: RunPlan) -> dict[str, Any]:
    """What a run is of: enough to know whether another one is the same."""
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


def executor_of(study: Study, workers: int, dask: str) -> AbstractContextManager[Any]:
    """Who simulates: None for this very process. Raises `InputError`."""
    if dask:
        return dask_executor(dask, *contents(study))
    return local_executor(workers) if workers > 1 else stoppable()


def tasks_of(
    study: Study, cells: tuple[FleetCell, ...], store: RunStore, *, verify: int | None, sent: bool
) -> list[Task]:
    """A task for each cell. `sent`: workers do not see our files, and keep no checkpoints."""
    folder = study.inputs.folder.absolute()
    scenario = json.dumps(resolved(study.scenario))
    place = "" if sent else str((store.folder / CELLS).absolute())
    identity, release = study.id, running_version() if sent else ""
    return [
        Task(scenario, str(folder), cell.key, verify, place and f"{place}/{cell.key}{CHECKPOINT}", identity, release)
        for cell in cells
    ]


def contents(study: Study) -> tuple[list[tuple[str, bytes]], int]:
    """The files of a scenario by the names that it has for them, and how many folders these go up. Raises
    `InputError`."""
    found: list[tuple[str, bytes]] = []
    depth = 0
    for name, path in sorted(study.inputs.named.items()):
        if not path.is_file():
            raise InputError(f"{name} is no file", path="--dask", remedy="workers elsewhere take files only")
        if Path(name).is_absolute():
            raise InputError(f"{name} is an absolute path", path="--dask", remedy="name it from the scenario's folder")
        depth = max(depth, Path(name).parts.count(".."))
        found.append((name, path.read_bytes()))
    if sum(len(data) for _, data in found) > _MOST_SENT:
        raise InputError(f"the inputs are more than {_MOST_SENT >> 20} MiB", path="--dask", remedy="compress them")
    return found, depth


def keep_inputs(study: Study, store: RunStore) -> None:
    """Copy the scenario's files into the run, so that it can be looked at by itself; not those of more than 64 MiB.
    Raises `InputError`."""
    kept = 0
    for name, path in sorted(study.inputs.named.items()):
        place = Path(name)
        if place.is_absolute() or ".." in place.parts or not path.is_file():
            continue
        kept += path.stat().st_size
        if kept <= _MOST_KEPT and not (store.folder / INPUTS / name).exists():
            store.write(f"{INPUTS}/{name}", path.read_bytes())


def kept_study(store: RunStore) -> Study | None:
    """The study of a run, from its own copies; None where some are not there."""
    try:
        return Study(load_scenario(store.folder / SCENARIO), store.folder / INPUTS)
    except InputError:
        return None


def make_cells(
    executor: Any,
    tasks: list[Task],
    store: RunStore,
    identity: str,
    listener: ShareListener,
    same: Mapping[str, Sequence[FleetCell]],
) -> Iterator[CellAnswer]:
    """Make the cells and keep each, with those that come to the `same`; `listener` is told how far they are. Raises
    `InputError` for what a cell cannot be made of, or kept."""
    answers: Iterator[CellAnswer]
    if executor is None:
        answers = (simulate(task, listener.share) for task in tasks)
    else:
        answers = run_tasks(executor, simulate, tasks, listener)
    for answer in answers:
        if answer.problem:
            raise InputError(f"cell {answer.key}: {answer.problem}")
        for cell in same[answer.key]:
            page = {"key": cell.key, "scenario": identity, "summary": dict(answer.summary)}
            store.keep(cell.key, answer.data, page)
            store.drop_checkpoint(cell.key)
            yield answer._replace(key=cell.key, warning=answer.warning if cell.key == answer.key else "")
