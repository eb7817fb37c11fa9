"""Groups of pods whose scheduler places all of them or none: what is held for one that is not bound yet falls together.

A scheduler tries a group by asking for one member after the other, each beside those before it, and then either binds
all or undoes all, without a word (cluster-integration D.1). So the first member that is asked about again begins
another simulation. And where a member found no node the group most likely comes to nothing: what is held for the others
falls soon, and at once where another pod needs it, so that a group for which there is no room keeps nobody out while it
is tried again and again. If it is bound after all, because fewer members are enough, bind looks again.
"""

from __future__ import annotations

from collections import OrderedDict


class Gang:
    """One group's latest simulation: who was `asked` about, and for whom a node is `held_members`."""

    __slots__ = ("asked", "held")

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.held: dict[str, None] = {}


class Gangs:
    """The latest groups, at most `room`, by name. `short`: those in whose simulation a member found no node."""

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
        """A member is asked about: True where that begins another simulation."""
        gang = self[group]
        again = uid in gang.asked
        if again:
            gang.asked.clear()
            self.short.pop(group, None)
        gang.asked.add(uid)
        return again

    def held_members(self, group: str) -> list[str]:
        """UIDs of members for whom a node is held."""
        gang = self._known.get(group)
        return [] if gang is None else list(gang.held)

    def hold(self, uid: str, group: str) -> None:
        """A node is held for a member."""
        if group:
            self[group].held[uid] = None

    def drop(self, uid: str, group: str) -> None:
        """Nothing is held for a member any more, or it is bound."""
        gang = self._known.get(group)
        if gang is not None:
            gang.held.pop(uid, None)

    def mark_short(self, group: str) -> None:
        """A member of the simulation found no node."""
        if self[group].asked:
            self.short[group] = None
