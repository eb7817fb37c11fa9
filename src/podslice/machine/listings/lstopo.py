"""lstopo's console output (hwloc 1 and 2): the tree of objects, by indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from podslice.machine.listings.facts import Level, MachineFacts, NodeFacts, Totals
from podslice.values.cpuset import bits_of
from podslice.values.errors import InputError

_OBJECT = re.compile(r"(?P<type>[A-Za-z][A-Za-z0-9]*)(?: L#(?P<logical>\d{1,7}))?(?: P#(?P<plain>\d{1,7}))?"
                     r"(?: \((?P<more>[^()]*)\))?\s*\Z")  # fmt: skip
_PHYSICAL = re.compile(r"P#(\d{1,7})")
_AMOUNT = re.compile(r"(\d{1,9})\s?([KMGT]i?B)\b")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEVELS: dict[str, Level] = {"Core": "core", "Package": "socket", "Socket": "socket", "L3": "l3", "L3Cache": "l3"}
_NUMA = ("NUMANode",)


class _Object(NamedTuple):
    """A word of a line; `parent` is its index in the list of all, −1 for none; `memory` in bytes with its unit."""

    type: str
    number: int
    parent: int
    memory: int
    unit: int


def is_lstopo(text: str) -> bool:
    """Whether the text looks like lstopo's console output."""
    return bool(re.match(r"\s*(?:Machine|System)(?: [LP]#\d+)? ?\([^\n]*\)[^\n]*\n", text))


def from_lstopo(text: str, source: str = "") -> MachineFacts:
    """Read lstopo's tree. Amounts of memory are rounded to the unit that is printed. Raises `InputError`."""
    objects = _objects(text)
    threads = [index for index, one in enumerate(objects) if one.type == "PU"]
    if not threads:
        raise InputError("has no PU", source=source, remedy="lstopo prints them unless --only or --ignore is given")
    places: dict[Level, dict[int, int]] = {"core": {}, "socket": {}, "l3": {}}
    members: dict[int, list[int]] = {one.number: [] for one in objects if one.type in _NUMA}
    attached = _attached_nodes(objects)
    for index in threads:
        cpu, node = objects[index].number, None
        for above in _ancestors(objects, index):
            one = objects[above]
            if (level := _LEVELS.get(one.type)) is not None:
                places[level].setdefault(cpu, above)
            if node is None:
                node = one.number if one.type in _NUMA else attached.get(above)
        if node is not None:
            members[node].append(cpu)
    total = next((one for one in objects if one.parent < 0), objects[0])
    nodes = {
        one.number: NodeFacts(bits_of(members[one.number]), one.memory or None, one.unit)
        for one in objects
        if one.type in _NUMA
    }
    return MachineFacts(
        source=source,
        program="lstopo",
        online=bits_of(objects[index].number for index in threads),
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
    physical = match["plain"] or (found[1] if (found := _PHYSICAL.search(more)) else match["logical"] or "0")
    amount = _AMOUNT.search(more)
    unit = _UNITS[amount[2][0]] if amount else 1
    return _Object(match["type"], int(physical), parent, int(amount[1]) * unit if amount else 0, unit)


def _ancestors(objects: list[_Object], index: int) -> Iterator[int]:
    while (index := objects[index].parent) >= 0:
        yield index


def _attached_nodes(objects: list[_Object]) -> dict[int, int]:
    """Return NUMA nodes without anything below them, by the object they stand in: hwloc 2 prints memory beside the
    cores that it is local to. Of several the first has the CPUs, as in the kernel."""
    parents = {one.parent for one in objects}
    found: dict[int, int] = {}
    for index, one in enumerate(objects):
        if one.type in _NUMA and index not in parents:
            found.setdefault(one.parent, one.number)
    return found
