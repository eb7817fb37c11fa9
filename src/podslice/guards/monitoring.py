"""Monitoring of the caches and the memory bandwidth of exclusive CPUs: resctrl's groups below `mon_groups`
(docs/guards.md).

A container has a group of its own with its CPUs, in the group of its cache class where it has one. A machine counts for
so many groups only (RMIDs): those with most CPUs come first.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.guards.holders import GuardedHolder
from podslice.guards.resctrl import OURS, RESCTRL
from podslice.node.checkpoints.guard_files import GuardedFile
from podslice.values.cpuset import Bits, format_bits

MON_GROUPS = "mon_groups"


class MonitorFacts(NamedTuple):
    """How many groups a machine can count for besides those that are there for other reasons; the CPUs of the
    agent's own groups by folder; the folders that others have made."""

    room: int = 0
    mine: Mapping[str, str] = {}
    foreign: frozenset[str] = frozenset()


def monitor_files(
    holders: Iterable[GuardedHolder], made: Container[str], others: Bits, facts: MonitorFacts
) -> Iterator[GuardedFile]:
    """Folders and CPUs of the groups; `made`: folders of classes that are there or will be, `others`: CPUs that
    somebody else has put into a group."""
    room = facts.room
    for one in sorted(holders, key=lambda one: -one.cpus.bit_count()):
        name = "-".join(filter(None, (one.uid, one.container)))
        if "/" in name or one.cpus & others:
            continue
        folder = f"{_parent(one, made)}/{MON_GROUPS}/{OURS}{name}/"
        if folder in facts.foreign:
            continue
        if not room:
            return
        room -= 1
        listed = facts.mine.get(folder)
        yield GuardedFile(folder, "value", "" if listed is None else "there", "cache", "there")
        yield GuardedFile(f"{folder}cpus_list", "list", listed or "", "cache", format_bits(one.cpus), made=True)


def _parent(one: GuardedHolder, made: Container[str]) -> str:
    mine = f"{RESCTRL}/{OURS}{one.cache}"
    return mine if one.cache and f"{mine}/" in made else RESCTRL
