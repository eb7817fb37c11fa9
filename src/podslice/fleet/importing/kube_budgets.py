"""PodDisruptionBudgets: those written in a scenario, and objects in its files.

An object's `selector: {}` selects all pods of the namespace, a missing one no pod (the documentation's page on
PodDisruptionBudget, policy/v1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from podslice.fleet.engine.budgets import DisruptionBudget
from podslice.fleet.importing.kube_objects import name_of, part, read_objects
from podslice.fleet.scenario.inputs import Inputs
from podslice.fleet.scenario.scenario import BudgetEntry, FleetScenario
from podslice.scheduling.selectors import LabelSelector
from podslice.values.errors import InputError

BUDGET = "PodDisruptionBudget"
_REMEDY = 'pods, such as 2, or percent, such as "50%"'


def budgets_of(scenario: FleetScenario, inputs: Inputs) -> tuple[DisruptionBudget, ...]:
    """Return all budgets of a scenario. Raises `InputError`."""
    return tuple(one for index, entry in enumerate(scenario.budgets) for one in _budgets(entry, inputs, index))


def _budgets(entry: BudgetEntry, inputs: Inputs, index: int) -> Iterator[DisruptionBudget]:
    if not entry.file:
        if entry.selector is not None:
            yield _budget(entry.selector, entry.namespace, entry.min_available, entry.max_unavailable)
        return
    for path in inputs.paths(entry.file, where=f"budgets[{index}].file"):
        for data in read_objects(path, BUDGET):
            found = budget_of_object(data, path)
            if found is not None:
                yield found


def budget_of_object(data: Mapping[str, Any], path: Path) -> DisruptionBudget | None:
    """Return the budget of an object in a file, None where it selects no pod. Raises `InputError`."""
    spec, where = part(data, "spec"), f"{BUDGET} {name_of(data)}: spec"
    amounts = {name: spec[name] for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None}
    problems = amount_problems(amounts, where)
    if problems:
        raise InputError(problems[0].problem, source=str(path), path=problems[0].path, remedy=problems[0].remedy)
    if spec.get("selector") is None:
        return None
    try:
        selector = msgspec.convert(spec["selector"], LabelSelector)
    except msgspec.ValidationError as error:
        raise InputError(str(error), source=str(path), path=f"{where}.selector") from None
    namespace = str(part(data, "metadata").get("namespace") or "default")
    return _budget(selector, namespace, amounts.get("minAvailable"), amounts.get("maxUnavailable"))


def _budget(
    selector: LabelSelector, namespace: str, least: int | str | None, most_unavailable: int | str | None
) -> DisruptionBudget:
    return DisruptionBudget(
        selector=selector, namespace=namespace, min_available=least, max_unavailable=most_unavailable
    )


def amount_problems(amounts: dict[str, Any], where: str) -> list[InputError]:
    """Return the errors in the amounts of a budget."""
    found = []
    if len(amounts) != 1:
        found.append(InputError("needs exactly one of minAvailable and maxUnavailable", path=where))
    for field, amount in amounts.items():
        is_share = isinstance(amount, str) and re.fullmatch(r"(100|[0-9]{1,2})%", amount)
        is_number = isinstance(amount, int) and not isinstance(amount, bool) and amount >= 0
        if not (is_share or is_number):
            found.append(InputError(f"{amount!r} is not a number of pods", path=f"{where}.{field}", remedy=_REMEDY))
    return found
