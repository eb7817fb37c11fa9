"""Scenario files: read and checked; all errors of a file are reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from podslice.fleet.importing.kube_budgets import amount_problems
from podslice.fleet.scenario.scenario import AS_WRITTEN, BudgetEntry, ContainerShare, FleetScenario
from podslice.fleet.scenario.scenario_values import value_problems
from podslice.fleet.scenario.strict import convert
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError, raise_all

API_VERSION = "podslice.dev/fleet/v1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}\Z")
_MOST_SEEDS = 1000


def load_scenario(path: Path) -> FleetScenario:
    """Read the scenario of a file. Raises `InputError` with all errors in it."""
    source = str(path)
    documents = load_documents(read_text(source), source)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("holds no scenario", source=source, remedy="podslice fleet init writes one that runs")
    return scenario_from_data(documents[0], source)


def scenario_from_data(data: dict[str, Any], source: str) -> FleetScenario:
    """Return the scenario of plain data. Raises `InputError`."""
    version = data.get("apiVersion")
    if version != API_VERSION:
        raise InputError(f"{version!r} is not supported", source=source, path="apiVersion",
                         remedy=f"apiVersion: {API_VERSION}")  # fmt: skip
    scenario = convert(data, FleetScenario, source=source)
    raise_all(problem.at(source=source) for problem in scenario_problems(scenario))
    return scenario


def scenario_problems(scenario: FleetScenario) -> list[InputError]:
    """Return all errors in a scenario."""
    return [*_name_problems(scenario), *_entry_problems(scenario), *_list_problems(scenario), *value_problems(scenario)]


def _name_problems(scenario: FleetScenario) -> list[InputError]:
    named: dict[str, Mapping[str, object]] = {
        "machines": scenario.machines,
        "kubelets": scenario.kubelets,
        "schedulers": scenario.schedulers,
        "transforms": scenario.transforms,
    }
    remedy = "letters, digits and _.+- only, at most 63"
    found = [
        InputError(f"{name!r} is not a name", path=field, remedy=remedy)
        for field, names in named.items()
        for name in names
        if not _NAME.match(name)
    ]
    empty = [
        InputError("is empty", path=field, remedy="name at least one, or leave it out")
        for field, names in named.items()
        if not names and field != "machines"
    ]
    known = {AS_WRITTEN, *(name for one in scenario.machines.values() for name in one.alternatives)}
    # Classes by shape take alternatives from their table, which is not read yet.
    by_shape = any(entry.of == "by-shape" for entry in scenario.nodes)
    unknown = [
        InputError(f"no class has an alternative {name!r}", path="alternatives", remedy=f"one of {', '.join(known)}")
        for name in scenario.alternatives
        if name not in known and not by_shape
    ]
    return [*found, *empty, *unknown]


def _entry_problems(scenario: FleetScenario) -> list[InputError]:
    found = []
    for index, node in enumerate(scenario.nodes):
        path = f"nodes[{index}]"
        if sum(map(bool, (node.csv, node.count, node.is_live))) != 1:
            found.append(InputError("needs exactly one of csv, count and kubernetes", path=path))
        elif not node.is_live and node.of != "by-shape" and node.of not in scenario.machines:
            remedy = f"one of {', '.join(('by-shape', *scenario.machines))}"
            found.append(InputError(f"{node.of!r} is not a class of machines", path=f"{path}.class", remedy=remedy))
        elif node.count and node.of == "by-shape":
            found.append(InputError("names no class", path=f"{path}.class", remedy="one of machines"))
    for index, work in enumerate(scenario.workload):
        if sum(map(bool, (work.trace, work.cluster, work.synthetic, work.manifests))) != 1:
            path = f"workload[{index}]"
            found.append(InputError("needs exactly one of trace, cluster, synthetic and manifests", path=path))
    lists: dict[str, tuple[object, ...]] = {
        "nodes": scenario.nodes,
        "workload": scenario.workload,
        "seeds": scenario.seeds,
    }
    found += [InputError("is empty", path=field) for field, entries in lists.items() if not entries]
    return found


def _list_problems(scenario: FleetScenario) -> list[InputError]:
    found = []
    if len(set(scenario.seeds)) != len(scenario.seeds) or len(scenario.seeds) > _MOST_SEEDS:
        found.append(InputError("names a seed twice, or too many", path="seeds", remedy=f"at most {_MOST_SEEDS}"))
    for index, work in enumerate(scenario.workload):
        found += container_problems(work.reading.containers, f"workload[{index}].reading.containers")
    for index, event in enumerate(scenario.node_events):
        if sum(value is not None for value in (event.drain, event.fail, event.add, event.restart)) != 1:
            path = f"nodeEvents[{index}]"
            found.append(InputError("needs exactly one of drain, fail, add and restart", path=path))
        if event.kubelet and event.kubelet not in scenario.kubelets:
            found.append(InputError(f"no kubelet {event.kubelet!r}", path=f"nodeEvents[{index}].kubelet"))
    return [*found, *_budget_problems(scenario)]


def _budget_problems(scenario: FleetScenario) -> list[InputError]:
    found = []
    for index, budget in enumerate(scenario.budgets):
        path = f"budgets[{index}]"
        if budget.file:
            if budget != BudgetEntry(file=budget.file):
                found.append(InputError("has a file and a budget of its own", path=path, remedy="make it two entries"))
            continue
        if budget.selector is None:
            found.append(InputError("is missing", path=f"{path}.selector", remedy="{} means all pods of a namespace"))
        both = {"minAvailable": budget.min_available, "maxUnavailable": budget.max_unavailable}
        found += amount_problems({field: amount for field, amount in both.items() if amount is not None}, path)
    return found


def container_problems(containers: Literal["one"] | tuple[ContainerShare, ...], path: str) -> list[InputError]:
    """Return the errors in a template of containers."""
    if isinstance(containers, str):
        return []
    found = []
    together = [one for one in containers if one.run != "init"]
    names = [one.name for one in containers]
    if len(set(names)) < len(names):
        found.append(InputError("two containers have the same name", path=path, remedy="give other names"))
    if not any(one.run == "app" for one in containers):
        found.append(InputError("none is an app container", path=path, remedy="run: app is the default"))
    for field in ("cpu", "memory"):
        if sum(getattr(one, field) is None for one in together) != 1:
            remedy = f"leave {field} out of the container that gets the rest"
            found.append(InputError(f"not exactly one container gets the rest of {field}", path=path, remedy=remedy))
        found += [
            InputError("is missing", path=f"{path}[{place}].{field}", remedy="an init container says its amounts")
            for place, one in enumerate(containers)
            if one.run == "init" and getattr(one, field) is None
        ]
    if sum(one.gpus for one in containers) > 1:
        found.append(InputError("two containers have the GPUs", path=path, remedy="gpus: true for one"))
    return found
