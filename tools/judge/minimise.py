"""Minimise a case: leave out parts as long as the difference stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tools.judge.chance import Json

_Path = tuple[str | int | slice, ...]
_ROUNDS = 40
_AT_ONCE = 60


def minimise(case: Json, still_different: Callable[[list[Json]], list[bool]]) -> Json:
    """Return the smallest case found. `still_different` returns for each of several cases whether it still differs."""
    for _ in range(_ROUNDS):
        smaller = _first_that_keeps(case, still_different)
        if smaller is None:
            break
        case = smaller
    return case


def _first_that_keeps(case: Json, still_different: Callable[[list[Json]], list[bool]]) -> Json | None:
    candidates = list(_smaller(case))
    for start in range(0, len(candidates), _AT_ONCE):
        some = candidates[start : start + _AT_ONCE]
        for one, kept in zip(some, still_different(some), strict=True):
            if kept:
                return one
    return None


def _smaller(case: Json) -> Iterator[Json]:
    """Yield the case without each one of its parts, large parts first."""
    for path in _parts(case):
        yield _without(case, path)


def _parts(case: Json) -> Iterator[_Path]:
    """Yield the paths of the parts that can be left out."""
    operations = case.get("ops", [])
    for size in sorted({len(operations) // 2, len(operations) // 4, 1} - {0}, reverse=True):
        for start in range(0, len(operations), size):
            yield "ops", slice(start, start + size)
    yield from ((key,) for key in ("devices", "recordHints") if key in case)
    for place, operation in enumerate(operations):
        yield from (("ops", place, *path) for path in _parts_of_operation(operation))
    kubelet = case.get("kubelet", {})
    yield from (("kubelet", key) for key in kubelet)
    yield from (("kubelet", "featureGates", key) for key in kubelet.get("featureGates", {}))
    for place, provider in enumerate(case.get("providers", [])):
        yield "providers", place
        for key, hints in (provider or {}).items():
            yield "providers", place, key
            yield from (("providers", place, key, index) for index in range(len(hints or ())))
    for place, node in enumerate(case.get("machine", {}).get("nodes", [])):
        yield "machine", "nodes", place
        yield from (("machine", "nodes", place, "cores", index) for index in range(len(node.get("cores", ()))))


def _parts_of_operation(operation: Json) -> Iterator[_Path]:
    yield from ((key,) for key in operation if key not in ("op", "pod", "podUID", "container"))
    spec = operation.get("pod", {}).get("spec", {})
    for key in ("initContainers", "containers"):
        containers = spec.get(key, ())
        if key == "initContainers" or len(containers) > 1:
            yield from (("pod", "spec", key, index) for index in range(len(containers)))


def _without(case: Json, path: _Path) -> Json:
    copied = copy.deepcopy(case)
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return copied
