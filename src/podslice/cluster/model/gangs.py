"""Gangs: groups of pods of which the scheduler places all or none, so that their holds end together.

A scheduler tries a group by filtering one member after the other, each beside those before it. Then it binds all or
undoes all, and reports neither (cluster-integration D.1). So a member that is filtered again begins another simulation.
Where a member found no node the group most likely fails: the holds of the others end soon, and at once where another
pod needs the room. Otherwise a group without room would block others each time it is tried. If it is bound after all,
because fewer members are enough, bind checks again.
"""

from __future__ import annotations

from collections import OrderedDict


class Gang:
    """The latest simulation of a group: UIDs of the members that were filtered (`asked`), and of those that are
    `held`."""

    __slots__ = ("asked", "held")

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.held: dict[str, None] = {}


class Gangs:
    """The latest groups by name, at most `room`. `short`: those with a member that found no node."""

    def __init__(self, room: int) -> None:
        self.short: dict[str, None] = {}
        self._room = room
        self._known: OrderedDict[str, Gang] = OrderedDict()

    def __getitem__(self, group: str) -> Gang:
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = Gang()
            if len(self._known) > self._room:
                old, _ = self._known.popitem(last=False)
                self.short.pop(old, None)
        return known

    def start_simulation(self, uid: str, group: str) -> bool:
        """Note that a member is filtered; return whether that begins another simulation."""
        gang = self[group]
        again = uid in gang.asked
        if again:
            gang.asked.clear()
            self.short.pop(group, None)
        gang.asked.add(uid)
        return again

    def held_members(self, group: str) -> list[str]:
        """Return the UIDs of members with a hold."""
        gang = self._known.get(group)
        return [] if gang is None else list(gang.held)

    def hold(self, uid: str, group: str) -> None:
        """Note that a member has a hold."""
        if group:
            self[group].held[uid] = None

    def drop(self, uid: str, group: str) -> None:
        """Note that a member has no hold any more, or is bound."""
        gang = self._known.get(group)
        if gang is not None:
            gang.held.pop(uid, None)

    def mark_short(self, group: str) -> None:
        """Note that a member found no node."""
        if self[group].asked:
            self.short[group] = None
