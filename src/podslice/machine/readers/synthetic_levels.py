"""Levels of a synthetic description, and the tree of objects that they make.

The objects of a level are numbered from 0 in the order of the tree: hwloc's logical indexes. A count or a size that
differs from object to object is a list, which starts again at its end: `core:43,43,42` below six NUMA nodes gives the
third and the sixth of them 42 cores. hwloc has no such lists; everything else is its own syntax.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from podslice.machine.build import MAX_CPUS, MAX_NODES
from podslice.values.errors import InputError

REMEDY = "write levels from the outside in, such as pack:2 numa:2 core:8 pu:2"
_MOST_LEVELS = 32


class Attributes(NamedTuple):
    """Attributes in parentheses: `memory` and `size` in bytes, a value or several that take turns; empty where they are
    not given."""

    memory: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    indexes: str = ""


class Level(msgspec.Struct):
    """A level such as `core:8`. `counts`: how many objects each object around them has, one count or several that take
    turns; `attached`: the NUMA nodes of each object of this level."""

    type: str
    counts: tuple[int, ...]
    attributes: Attributes
    attached: list[Attributes]

    @property
    def word(self) -> str:
        """The level as it is written, without its attributes."""
        return f"{self.type}:{','.join(map(str, self.counts))}"


class Tree:
    """The objects of all levels. `parents[level][object]` is an object of the level around it."""

    def __init__(self, levels: Sequence[Level], source: str) -> None:
        """Raises `InputError` for more objects than Linux supports, and for a list that does not fit the objects."""
        if len(levels) > _MOST_LEVELS:
            raise InputError(f"{len(levels)} levels", source=source, remedy=f"at most {_MOST_LEVELS}")
        self.levels = levels
        self.source = source
        self.parents: list[list[int]] = [[0]]
        nodes = len(levels[0].attached)
        for depth, level in enumerate(levels[1:], 1):
            self.parents.append(self._children(depth, level))
            nodes += self.count(depth) * (len(level.attached) + (level.type == "numa"))
        if nodes > MAX_NODES:
            problem = f"{nodes} NUMA nodes are more than Linux supports"
            raise InputError(problem, source=source, remedy=f"at most {MAX_NODES}")

    def _children(self, depth: int, level: Level) -> list[int]:
        around = self.count(depth - 1)
        if around % len(level.counts):
            problem = f"{level.word} has {len(level.counts)} counts for {around} {self.levels[depth - 1].type} objects"
            remedy = f"write {around} counts, or a number of them that divides {around}"
            raise InputError(problem, source=self.source, remedy=remedy)
        total = sum(level.counts) * (around // len(level.counts))
        if total > MAX_CPUS:
            problem = f"{total} {level.type} objects are more than Linux supports"
            raise InputError(problem, source=self.source, remedy=f"at most {MAX_CPUS}")
        return [parent for parent in range(around) for _ in range(take_turns(level.counts, parent))]

    def count(self, depth: int) -> int:
        """Return the number of objects of a level."""
        return len(self.parents[depth])

    def path(self, depth: int, place: int) -> list[int]:
        """Return the objects around an object and the object itself, from the outermost level to its own."""
        places = [place]
        for level in range(depth, 0, -1):
            places.append(self.parents[level][places[-1]])
        return places[::-1]

    def depth_of(self, kind: str) -> int | None:
        """Return the level of a type, None where there is none."""
        return next((depth for depth, level in enumerate(self.levels) if level.type == kind), None)


def take_turns(values: Sequence[int], place: int) -> int:
    """Return the value of an object where the values take turns."""
    return values[place % len(values)]


def check_order(levels: Sequence[Level], source: str) -> None:
    """Raise `InputError` where no machine has these levels in this order."""
    types = [level.type for level in levels]
    if types[-1] != "pu":
        raise InputError(f"the last level is {types[-1]}, not pu", source=source, remedy=REMEDY)
    for kind in ("pu", "core", "package", "numa"):
        if types.count(kind) > 1:
            raise InputError(f"the level {kind} is there twice", source=source, remedy=REMEDY)
    if "core" in types and "package" in types and types.index("core") < types.index("package"):
        raise InputError("packages inside a core", source=source, remedy=REMEDY)
    if "core" in types and "numa" in types and types.index("core") < types.index("numa"):
        raise InputError("NUMA nodes inside a core", source=source, remedy=REMEDY)
    if "numa" in types and any(level.attached for level in levels):
        raise InputError("NUMA nodes both as a level and attached", source=source, remedy="use one of them")
