"""The file with the result of `fleet plan` beside a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from podslice.values.errors import InputError

PLAN_FILE = "plan.json"


class PlannedClass(msgspec.Struct, frozen=True, rename="camel"):
    """Of the `nodes` of a class, how many `fewer` are enough: the median over seeds, the `least` and `most` of any
    seed, and `p90`, enough for nine of ten seeds."""

    name: str
    nodes: int
    fewer: int
    least: int
    most: int
    p90: int
    by_seed: tuple[int, ...]


class PlannedConfiguration(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that a configuration needs, over seeds; `by_seed` in the order of the scenario's seeds.

    - `enough`: whether all nodes of the scenario are; `never`: shapes of pods that did not run on them where they are
      not.
    - `growth`: how many percent more pods all nodes would take, by seed, -1 where not even as many; empty where it was
      not asked for.
    - `classes`: how many fewer of each class, where that was asked for: of one class alone, or with `weights` of all
      together.
    """

    name: str
    median: int
    least: int
    most: int
    p90: int
    by_seed: tuple[int, ...]
    enough: bool
    never: tuple[str, ...]
    growth: tuple[int, ...] = ()
    classes: tuple[PlannedClass, ...] = ()


class PlannedNodes(msgspec.Struct, frozen=True, rename="camel"):
    """The least nodes for each configuration, and the tolerated unmet demand in percent. `weights`: in which proportion
    classes were removed, empty for at random. `assumed` are lines about the machines of the nodes."""

    name: str
    nodes: int
    tolerance: float
    configurations: tuple[PlannedConfiguration, ...]
    anomalies: tuple[str, ...]
    weights: dict[str, int] = {}
    assumed: tuple[str, ...] = ()


def read_plan(path: Path) -> PlannedNodes | None:
    """Return a saved plan; None where there is none. Raises `InputError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from None
    try:
        return msgspec.convert(data, PlannedNodes)
    except msgspec.ValidationError as error:
        raise InputError(f"is not a plan: {error}", source=str(path)) from None


def encode_plan(plan: PlannedNodes) -> bytes:
    """Encode a plan for its file."""
    return (json.dumps(msgspec.to_builtins(plan), indent=1, ensure_ascii=False) + "\n").encode()
