"""lstopo's console output (hwloc 1 and 2): the tree of objects, by indentation."""

from __future__ import annotations

import re
from typing import NamedTuple

from podslice.machine.listings.facts import LEVELS, Level, MachineFacts, NodeFacts, Totals
from podslice.machine.model import group_cpus
from podslice.values.cpuset import bits_of
from podslice.values.errors import InputError

_OBJECT = re.compile(r"(?P<type>[A-Za-z][A-Za-z0-9]*)(?: L#(?P<logical>\d{1,7}))?(?: P#(?P<plain>\d{1,7}))?"
                     r"(?: \((?P<more>[^()]*)\))?\s*\Z")  # fmt: skip
_PHYSICAL = re.compile(r"P#(\d{1,7})")
_AMOUNT = re.compile(r"(\d{1,9})\s?([KMGT]i?B)\b")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEVELS: dict[str, Level] = {"Core": "core", "Package": "socket", "Socket": "socket", "L3": "l3", "L3Cache": "l3"}
_NUMA = "NUMANode"


class _Object(NamedTuple):
    """A word of a line; `parent` is its index in the list of all, −1 for none; `memory` in bytes with its unit."""

    type: str
    number: int
    parent: int
    memory: int
    unit: int


class _Place(NamedTuple):
    """The nearest objects around an object, by index in the list of all; `node` by the kernel's number."""

    core: int | None = None
    socket: int | None = None
    l3: int | None = None
    node: int | None = None


def is_lstopo(text: str) -> bool:
    """Whether the text looks like lstopo's console output."""
    return bool(re.match(r"\s*(?:Machine|System)(?: [LP]#\d+)? ?\([^\n]*\)[^\n]*\n", text))


def from_lstopo(text: str, source: str = "") -> MachineFacts:
    """Read lstopo's tree. Amounts of memory are rounded to the unit that is printed. Raises `InputError`."""
    objects = _objects(text)
    attached = _attached_nodes(objects)
    above: list[_Place] = []
    threads: dict[int, _Place] = {}
    for index, one in enumerate(objects):
        place = _inside(one, index, attached.get(index), above[one.parent] if one.parent >= 0 else _Place())
        above.append(place)
        if one.type == "PU":
            threads[one.number] = place
    if not threads:
        raise InputError("has no PU", source=source, remedy="lstopo prints them unless --only or --ignore is given")
    places: dict[Level, dict[int, int]] = {
        level: {cpu: number for cpu, place in threads.items() if (number := getattr(place, level)) is not None}
        for level in LEVELS
    }
    node_of = {cpu: place.node for cpu, place in threads.items() if place.node is not None}
    members = group_cpus(node_of)
    total = next((one for one in objects if one.parent < 0), objects[0])
    nodes = {
        one.number: NodeFacts(members.get(one.number, 0), one.memory or None, one.unit)
        for one in objects
        if one.type == _NUMA
    }
    return MachineFacts(
        source=source,
        program="lstopo",
        online=bits_of(threads),
        # A level that only some CPUs have, as with --only or on hybrid machines, would group the others wrongly.
        places={level: found for level, found in places.items() if len(found) == len(threads)},
        nodes=dict(sorted(nodes.items())),
        totals=Totals(cpus=len(threads), memory=total.memory, unit=total.unit),
    )


def _objects(text: str) -> list[_Object]:
    """Return all objects, each after its parent; words joined by `+` contain each other from left to right."""
    found: list[_Object] = []
    open_lines: list[tuple[int, int]] = []
    for line in text.splitlines():
        words = line.strip()
        if not words:
            continue
        indent = len(line) - len(line.lstrip())
        # An object contains the lines below it that are indented more than its own.
        while open_lines and open_lines[-1][0] >= indent:
            open_lines.pop()
        parent = open_lines[-1][1] if open_lines else -1
        for word in words.split(" + "):
            match = _OBJECT.match(word)
            if match is None:
                break  # a device, a comment
            found.append(_object(match, parent))
            parent = len(found) - 1
        open_lines.append((indent, parent))
    return found


def _object(match: re.Match[str], parent: int) -> _Object:
    more = match["more"] or ""
    # P# is the number that the kernel uses; L# only counts in the tree, and is all that some versions print.
    physical = match["plain"] or (found[1] if (found := _PHYSICAL.search(more)) else match["logical"] or "0")
    amount = _AMOUNT.search(more)
    unit = _UNITS[amount[2][0]] if amount else 1
    return _Object(match["type"], int(physical), parent, int(amount[1]) * unit if amount else 0, unit)


def _inside(one: _Object, index: int, attached: int | None, above: _Place) -> _Place:
    """Return the place of everything below an object at `above`. `attached`: the NUMA node that stands beside it."""
    if (level := _LEVELS.get(one.type)) is not None:
        above = above._replace(**{level: index})
    node = one.number if one.type == _NUMA else attached
    return above if node is None else above._replace(node=node)


def _attached_nodes(objects: list[_Object]) -> dict[int, int]:
    """Return NUMA nodes without anything below them, by the object they stand in: hwloc 2 prints memory beside the
    cores that it is local to. Of several the first has the CPUs, as in the kernel."""
    parents = {one.parent for one in objects}
    found: dict[int, int] = {}
    for index, one in enumerate(objects):
        if one.type == _NUMA and index not in parents:
            found.setdefault(one.parent, one.number)
    return found
