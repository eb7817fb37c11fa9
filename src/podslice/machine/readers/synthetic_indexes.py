"""Numbers of objects in a synthetic description: `indexes=` in hwloc's three forms, and Linux' numbering of CPUs.

- a list: `indexes=0,2,1,3`
- loops `step*count`, the fastest first: with `2*3:1*2` object i is number i/2%3 + i/1%2*3. A last loop that is left out
  is added: `2*3` of six objects means the same.
- types of levels, which take turns, the fastest first: `core` numbers one CPU of each core, then the next of each,
  `numa:core` does so with the NUMA nodes in turns. Where nodes have different numbers of cores, one that has no more is
  passed over. `pu` alone means one after another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from podslice.machine.build import MAX_CPUS
from podslice.machine.readers.synthetic_levels import Tree
from podslice.machine.readers.synthetic_text import parse_type
from podslice.values.errors import InputError

_MOST_LOOPS = 16
_LIST = re.compile(r"[0-9]{1,9}(?:,[0-9]{1,9})*")
_LOOP = r"[0-9]{1,9}\*[0-9]{1,9}"
_LOOPS = re.compile(f"{_LOOP}(?::{_LOOP}){{0,{_MOST_LOOPS - 1}}}")
_TYPES = re.compile(r"[A-Za-z]\w{0,15}(?::[A-Za-z]\w{0,15}){0,31}")
_REMEDY = "write a list such as 0,2,1,3, loops such as 2*48:1*2, or types of levels such as numa:core"


def number_objects(tree: Tree, depth: int, text: str) -> list[int]:
    """Return the number of each object of a level, from the text of `indexes=`. Raises `InputError` where the text does
    not number every object once."""
    total = tree.count(depth)
    if _LIST.fullmatch(text):
        indexes = list(map(int, text.split(",")))
    elif _LOOPS.fullmatch(text):
        indexes = _by_loops([(int(step), int(count)) for step, _, count in _pairs(text)], total)
    elif _TYPES.fullmatch(text):
        indexes = number_by_turns(tree, depth, _depths(tree, depth, text))
    else:
        raise InputError(f"cannot read indexes={text[:40]}", source=tree.source, remedy=_REMEDY)
    if len(set(indexes)) != total or len(indexes) != total:
        problem = f"indexes={text[:40]} does not number {total} objects"
        remedy = f"write {total} different numbers, or loops whose counts make {total}"
        raise InputError(problem, source=tree.source, remedy=remedy)
    if max(indexes) > MAX_CPUS:
        problem = f"indexes={text[:40]} has the number {max(indexes)}"
        raise InputError(problem, source=tree.source, remedy=f"numbers up to {MAX_CPUS}")
    return indexes


def number_by_turns(tree: Tree, depth: int, turns: Sequence[int]) -> list[int]:
    """Return the number of each object of a level where the levels of `turns` take turns, the first the fastest; the
    objects within the innermost of them are the slowest."""
    total = tree.count(depth)
    if not turns:
        return list(range(total))
    around = {level: max((other for other in turns if other < level), default=0) for level in turns}
    around[depth] = max(turns)
    paths = [tree.path(depth, place) for place in range(total)]
    firsts: dict[tuple[int, int], int] = {}
    for path in paths:
        for level, outer in around.items():
            firsts.setdefault((level, path[outer]), path[level])
    slowest_first = (depth, *reversed(turns))

    def key(place: int) -> list[int]:
        path = paths[place]
        return [path[level] - firsts[level, path[around[level]]] for level in slowest_first]

    numbers = [0] * total
    for number, place in enumerate(sorted(range(total), key=key)):
        numbers[place] = number
    return numbers


def _depths(tree: Tree, depth: int, text: str) -> list[int]:
    """Return the levels that take turns."""
    names = text.split(":")
    kinds = [parse_type(name, tree.source) for name in names]
    if kinds == [tree.levels[depth].type]:
        return []
    outer = [level.type for level in tree.levels[:depth]]
    known = f"levels outside are {', '.join(outer[1:])}" if outer[1:] else "there is no level outside"
    for name, kind in zip(names, kinds, strict=True):
        if kind == tree.levels[depth].type:
            raise InputError(f"indexes={text[:40]}: {name} is last anyway", source=tree.source, remedy="leave it out")
        if outer.count(kind) != 1:
            there = "more than one level" if kind in outer else "no level outside"
            raise InputError(f"indexes={text[:40]}: {name} names {there}", source=tree.source, remedy=known)
    if len(set(kinds)) != len(kinds):
        raise InputError(f"indexes={text[:40]} names a level twice", source=tree.source, remedy=known)
    return [outer.index(kind) for kind in kinds]


def _pairs(text: str) -> list[tuple[str, str, str]]:
    return [loop.partition("*") for loop in text.split(":")]


def _by_loops(loops: list[tuple[int, int]], total: int) -> list[int]:
    product = 1
    for step, count in loops:
        product *= count
        if not step or not 0 < product <= total:
            return []
    smallest = min(total, *(step for step, _ in loops))
    if product != total and product * smallest == total:
        loops = [*loops, (1, smallest)]
    indexes = [0] * total
    multiplier = 1
    for step, count in loops:
        for place in range(total):
            indexes[place] += place // step % count * multiplier
        multiplier *= count
    return indexes
