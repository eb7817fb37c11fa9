"""Monitoring groups of resctrl (`mon_groups`) for caches and memory bandwidth of exclusive CPUs (docs/isolation.md).

A container has a group of its own with its CPUs, inside the group of its cache class where it has one. A machine has a
fixed number of monitoring ids (RMIDs), so containers with most CPUs come first.
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
    """The monitoring groups of a machine.

    `room`: how many groups the agent may have, beside those of other programs and of cache classes.
    `mine`: CPU lists of the agent's own groups by folder. `foreign`: folders that other programs have made.
    """

    room: int = 0
    mine: Mapping[str, str] = {}
    foreign: frozenset[str] = frozenset()


def monitor_files(
    holders: Iterable[GuardedHolder], made: Container[str], others: Bits, facts: MonitorFacts
) -> Iterator[GuardedFile]:
    """Yield the folder and the CPU list of each group.

    `made`: folders of cache classes that exist or will. `others`: CPUs that other programs have put into a group.
    """
    room = facts.room
    for one in sorted(holders, key=lambda one: -one.cpus.bit_count()):
        name = "-".join(filter(None, (one.uid, one.container)))
        # A CPU is in one group of resctrl at a time, and those of other programs stay theirs.
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
