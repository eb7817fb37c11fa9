"""Writes that bring the slices of a pool up to date as upstream's drivers do it (cluster-integration A.2): readers
never see a pool that is half old and half new under one generation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
Same = Callable[[int, Json], bool]


class SliceNames(NamedTuple):
    """Names of the slices of a node's pool, by their place in it, which is the order of allocation."""

    driver: str
    node: str

    def prefix(self, index: int, count: int) -> str:
        """Return the `generateName`, which the API server completes."""
        width = len(f"{max(count - 1, 0):x}")
        return f"{index:0{width}x}-{self.driver}-{self.node}-"

    def place(self, name: str, count: int) -> int | None:
        """Return the place of a slice of this name in a pool of `count` slices, None where it has none."""
        match = re.match(r"([0-9a-f]+)-", name)
        if match is None:
            return None
        index = int(match[1], 16)
        return index if index < count and name.startswith(self.prefix(index, count)) else None


class SliceWrites(NamedTuple):
    """Slices to delete, to replace and to create, in this order."""

    deletes: tuple[Json, ...] = ()
    replaces: tuple[Json, ...] = ()
    creates: tuple[Json, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletes or self.replaces or self.creates)


def plan_writes(wanted: Sequence[Json], there: Sequence[Json], name: SliceNames, same: Same) -> SliceWrites:
    """Return the writes that turn the stored slices into the desired ones.

    - `wanted`: the specs of the pool's slices in order, without generation
    - `there`: the server's slices of the driver on this node
    - `same(index, spec)`: whether the stored spec is what was sent for that slice
    """
    # Another publisher of the same driver may have written a higher one; readers use the highest only.
    generation = max((_pool(one).get("generation", 0) for one in there), default=0)
    kept: dict[int, Json] = {}
    deletes = []
    for one in sorted(there, key=lambda one: str(one["metadata"]["name"])):
        index = name.place(str(one["metadata"]["name"]), len(wanted))
        fits = _pool(one).get("generation", 0) == generation and index is not None and index not in kept
        if index is not None and fits and _pool(one).get("name") == wanted[index]["pool"]["name"]:
            kept[index] = one
        else:
            deletes.append(one)
    count = len(wanted)
    # v1.36 trusts the count of the first slice it meets, so all slices must state the same (cluster-integration A.2).
    complete = len(kept) == count and all(_pool(one).get("resourceSliceCount") == count for one in kept.values())
    changed = [index for index, one in kept.items() if not same(index, one["spec"])]
    # One slice changes atomically, so the pool can keep its generation; readers ignore slices of an older one.
    if complete and len(changed) <= 1:
        return SliceWrites(tuple(deletes), tuple(_replace(wanted[n], kept[n], generation) for n in changed))
    replaces = tuple(_replace(wanted[index], one, generation + 1) for index, one in sorted(kept.items()))
    creates = tuple(
        # The scheduler sorts a pool's slices by name, so the padded index makes the order of allocation
        # (cluster-integration A.2).
        {"metadata": {"generateName": name.prefix(index, count)}, "spec": _set_generation(spec, generation + 1)}
        for index, spec in enumerate(wanted)
        if index not in kept
    )
    return SliceWrites(tuple(deletes), replaces, creates)


def _pool(one: Json) -> Mapping[str, Any]:
    pool: Mapping[str, Any] = one.get("spec", {}).get("pool", {})
    return pool


def _replace(spec: Json, there: Json, generation: int) -> Json:
    return {"metadata": there["metadata"], "spec": _set_generation(spec, generation)}


def _set_generation(spec: Json, generation: int) -> Json:
    return spec | {"pool": spec["pool"] | {"generation": generation}}
