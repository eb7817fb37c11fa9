"""Who must get what: running containers whose sets are no longer what they were given last.

The runtime is told in the answers to its own calls, never unasked. A plugin's UpdateContainers takes the runtime's
locks in the opposite order from its own calls; containerd (issue 13733) and CRI-O (pull request 9835) can then hang for
ever. What cannot wait for an answer is written into the containers' cgroups, and the runtime's ledgers follow with
later answers, a few containers at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from podslice.agent.contract import NodeEvents
from podslice.agent.placing import Placing
from podslice.agent.records import ContainerRecord, Pinning
from podslice.agent.runtime.translate import same_effect, update_of
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits

_LATE_PER_ANSWER = 4
"""The runtime takes tens of milliseconds for each update in an answer."""

T = TypeVar("T")


class Contained(Protocol):
    """Does a step for a container; None when it failed, which is then its pod's failure only."""

    def __call__(self, record: ContainerRecord, work: Callable[[], T]) -> T | None: ...


Write = Callable[[ContainerRecord, Pinning], bool]
"""Writes what a container should have into its cgroup; False where that cannot be done."""


class Updates:
    """What is due for the owner's `containers`: announces `updates_due`, and `placed` for each container whose sets
    change. `clock` counts seconds."""

    def __init__(
        self,
        placing: Placing,
        containers: Mapping[str, ContainerRecord],
        contained: Contained,
        events: NodeEvents,
        clock: Callable[[], float],
    ) -> None:
        self._events = events
        self._placing = placing
        self._containers = containers
        self._contained = contained
        self.clock = clock
        self.answered_at = -math.inf
        """When the runtime was last answered with sets, which it writes after that."""
        self._changes = 0
        self._due = False
        self._everyone = False
        self._units: set[str] = set()
        self._late: dict[str, None] = {}
        """Ids of containers whose cgroup is ahead of the runtime's ledgers."""

    def pool_changed(self) -> None:
        """The shared pool is another: who runs on it must get it."""
        self._due = True
        self._changes += 1
        self._events.updates_due()

    def unit_changed(self, uid: str) -> None:
        """The shared pool of the pod admitted under `uid` is another: its containers must get it."""
        self._units.add(uid)
        self.pool_changed()

    def machine_changed(self) -> None:
        """CPUs or NUMA nodes came or went: anybody may have other sets than wanted."""
        self._everyone = True
        self.pool_changed()

    def recheck(self) -> None:
        """The runtime has said what it has in its ledgers: anybody may have other sets than wanted."""
        self._due = self._everyone = True
        self._changes += 1
        self._late.clear()

    def answered(self) -> None:
        """The runtime has an answer with sets that it is still to write."""
        self.answered_at = self.clock()

    def take(self, but: str = "") -> list[nri.ContainerUpdate]:
        """Updates for an answer: the containers, `but` one, whose wanted sets changed; they count as told from now
        on."""
        if not self._due:
            return self._take_late()
        pool = Pinning(cpus=self._placing.pool())
        on_pool = nri.LinuxContainerUpdate()
        pool.write(on_pool.resources)
        updates = []
        for record, wanted in self._narrowing_first(pool):
            if wanted is None or record.id == but:
                continue
            if wanted is pool and pool.cpus and wanted != record.applied:
                updates.append(nri.ContainerUpdate(container_id=record.id, linux=on_pool, ignore_failure=True))
                self._late.pop(record.id, None)
            elif not same_effect(record.applied, wanted):
                updates.append(update_of(record, wanted))
                self._late.pop(record.id, None)
            self._given(record, wanted, pool)
        self._settled()
        if updates:
            self.answered()
        return updates

    def _take_late(self) -> list[nri.ContainerUpdate]:
        updates: list[nri.ContainerUpdate] = []
        while self._late and len(updates) < _LATE_PER_ANSWER:
            container_id = next(iter(self._late))
            del self._late[container_id]
            if (record := self._containers.get(container_id)) is not None:
                updates.append(update_of(record, record.applied))
        if updates:
            self.answered()
        return updates

    def write(self, write: Write) -> Iterator[None]:
        """Give the same containers their sets by `write`, one a step, for who has other work to do in between. Whom
        `write` cannot reach waits for an answer."""
        changes, missed = self._changes, False
        for record, _ in self._narrowing_first(Pinning(cpus=self._placing.pool())):
            if not self._due:
                return
            pool = Pinning(cpus=self._placing.pool())
            if self._containers.get(record.id) is not record:
                continue
            wanted = self._contained(record, partial(self._wanted, record, pool))
            if wanted is None or wanted == record.applied:
                continue
            missed |= not self._contained(record, partial(self._write, record, wanted, pool, write))
            yield
        if not missed and self._changes == changes:
            self._settled()

    def late(self, but: str = "") -> list[nri.ContainerUpdate]:
        """Updates for an answer of some whose cgroup is ahead of the runtime's ledgers; `but` one hears it
        otherwise."""
        self._late.pop(but, None)
        return self._take_late()

    def on_pool(self, record: ContainerRecord) -> bool:
        """True when it is known without a look that a container should have the node's shared pool and nothing else."""
        return record.on_pool and not self._everyone

    def narrowed(self, record: ContainerRecord, cpus: Bits) -> None:
        """Its cgroup has these CPUs now, and the runtime is yet to hear of it."""
        record.applied = replace(record.applied, cpus=cpus)
        self._late[record.id] = None
        self._events.pinning_changed(record)

    def _narrowing_first(self, pool: Pinning) -> list[tuple[ContainerRecord, Pinning | None]]:
        """All containers and what they should have; those that only gain CPUs come last, so that nobody is left on
        what they gain."""
        found = [
            (record, pool if self.on_pool(record) else self._contained(record, partial(self._wanted, record, pool)))
            for record in self._containers.values()
        ]

        def gains(one: tuple[ContainerRecord, Pinning | None]) -> bool:
            record, wanted = one
            has = record.applied.cpus
            return wanted is not None and has != 0 and wanted.cpus != has and has & ~wanted.cpus == 0

        return sorted(found, key=gains)

    def _settled(self) -> None:
        self._due = self._everyone = False
        self._units.clear()

    def write_started(self, record: ContainerRecord, write: Write) -> None:
        """A container is about to start: give it the sets it should have, whatever changed since it was created."""
        pool = Pinning(cpus=self._placing.pool())
        self._contained(record, lambda: self._write(record, self._placing.wanted(record), pool, write))

    def _write(self, record: ContainerRecord, wanted: Pinning, pool: Pinning, write: Write) -> bool:
        written = write(record, wanted)
        if written and wanted != record.applied:
            self._late[record.id] = None
            self._given(record, wanted, pool)
        return written

    def _wanted(self, record: ContainerRecord, pool: Pinning) -> Pinning | None:
        """What a container should have; None where nothing can have changed."""
        if self.on_pool(record):
            return pool
        if self._everyone or record.applied.isolation in ("host", "mixed") or record.unit in self._units:
            return self._placing.wanted(record)
        return None

    def _given(self, record: ContainerRecord, wanted: Pinning, pool: Pinning) -> None:
        record.on_pool = wanted == pool and not record.stranger
        if wanted != record.applied:
            record.applied = wanted
            self._events.pinning_changed(record)
