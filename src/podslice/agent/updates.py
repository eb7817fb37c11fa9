"""Updates for running containers whose pinning is no longer what they were last given.

The runtime gets updates only in the answers to its own calls. A plugin's UpdateContainers takes the runtime's locks in
the opposite order from its own calls; containerd (issue 13733) and CRI-O (pull request 9835) can then deadlock. What
cannot wait for an answer is written into the containers' cgroups, and the runtime's records follow with later answers,
a few containers at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from podslice.agent.contract import NodeEvents
from podslice.agent.placing import Placing
from podslice.agent.records import ContainerRecord, Pinning, quota_returns
from podslice.agent.runtime.translate import same_effect, update_of
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits

_LATE_PER_ANSWER = 4
"""A runtime takes tens of milliseconds for each update in an answer."""

T = TypeVar("T")


class Attempt(Protocol):
    """Runs a step for a container; None when it failed, which is then a failure of its pod only."""

    def __call__(self, record: ContainerRecord, work: Callable[[], T]) -> T | None: ...


Write = Callable[[ContainerRecord, Pinning], bool]
"""Writes a container's pinning into its cgroup; returns False where that cannot be done."""


class Updates:
    """Due updates of `containers`.

    Announces `updates_due` when there are any, and `pinning_changed` for each container whose pinning changes. `clock`
    returns seconds.
    """

    def __init__(
        self,
        placing: Placing,
        containers: Mapping[str, ContainerRecord],
        attempt: Attempt,
        events: NodeEvents,
        clock: Callable[[], float],
    ) -> None:
        self._events = events
        self._placing = placing
        self._containers = containers
        self._attempt = attempt
        self.clock = clock
        self.answered_at = -math.inf
        """Time of the latest answer with CPU sets; the runtime writes them shortly after it."""
        self._changes = 0
        self._due = False
        self._everyone = False
        self._units: set[str] = set()
        self._late: dict[str, None] = {}
        """Ids of containers whose cgroup is newer than the runtime's record; a dict keeps their order."""
        self._quotas: set[str] = set()
        """Those of them that have a quota again."""

    def pool_changed(self) -> None:
        """Note that the node's shared pool changed."""
        self._due = True
        self._changes += 1
        self._events.updates_due()

    def unit_changed(self, uid: str) -> None:
        """Note that the shared pool of the pod admitted under `uid` changed."""
        self._units.add(uid)
        self.pool_changed()

    def machine_changed(self) -> None:
        """Note that CPUs or NUMA nodes came or went: every container has to be compared."""
        self._everyone = True
        self.pool_changed()

    def recheck(self) -> None:
        """Note that the runtime listed its containers: every container has to be compared."""
        self._due = self._everyone = True
        self._changes += 1
        self._late.clear()
        self._quotas.clear()

    def answered(self) -> None:
        """Note that the runtime got an answer with CPU sets, which it will write soon."""
        self.answered_at = self.clock()

    def take(self, but: str = "") -> list[nri.ContainerUpdate]:
        """Return the updates for an answer: all containers except `but` whose pinning changed. They count as given."""
        if not self._due:
            return self._take_late()
        # One message shared by all containers on the pool: a full node has hundreds of them.
        pool = Pinning(cpus=self._placing.pool())
        on_pool = nri.LinuxContainerUpdate()
        pool.write(on_pool.resources)
        updates = []
        for record, wanted in self._shrinking_first(pool):
            if wanted is None or record.id == but:
                continue
            returns = quota_returns(record.applied, wanted, record.limits)
            if wanted is pool and pool.cpus and wanted != record.applied and not returns:
                updates.append(nri.ContainerUpdate(container_id=record.id, linux=on_pool, ignore_failure=True))
                self._late.pop(record.id, None)
            elif returns or not same_effect(record.applied, wanted):
                updates.append(update_of(record, wanted))
                self._late.pop(record.id, None)
            self._note_given(record, wanted, pool)
        self._mark_done()
        if updates:
            self.answered()
        return updates

    def _take_late(self) -> list[nri.ContainerUpdate]:
        updates: list[nri.ContainerUpdate] = []
        while self._late and len(updates) < _LATE_PER_ANSWER:
            container_id = next(iter(self._late))
            del self._late[container_id]
            if (record := self._containers.get(container_id)) is not None:
                update = update_of(record, record.applied)
                if container_id in self._quotas and record.limits is not None and not record.applied.quota_off:
                    record.limits.write_quota(update.linux.resources)
                updates.append(update)
            self._quotas.discard(container_id)
        if updates:
            self.answered()
        return updates

    def write(self, write: Write) -> Iterator[None]:
        """Write due pinnings into cgroups by `write`, one per step, so that other work can run in between.

        Containers that `write` cannot reach wait for an answer.
        """
        changes, missed = self._changes, False
        for record, _ in self._shrinking_first(Pinning(cpus=self._placing.pool())):
            # An answer to the runtime may have carried all updates since the last step.
            if not self._due:
                return
            pool = Pinning(cpus=self._placing.pool())
            if self._containers.get(record.id) is not record:
                continue
            wanted = self._attempt(record, partial(self._wanted, record, pool))
            if wanted is None or wanted == record.applied:
                continue
            missed |= not self._attempt(record, partial(self._write, record, wanted, pool, write))
            yield
        # Something that changed during the steps was seen by some containers only, so it stays due.
        if not missed and self._changes == changes:
            self._mark_done()

    def late(self, but: str = "") -> list[nri.ContainerUpdate]:
        """Return updates for some containers whose cgroup is newer than the runtime's record, without `but`, which the
        answer covers itself."""
        self._late.pop(but, None)
        return self._take_late()

    def is_on_pool(self, record: ContainerRecord) -> bool:
        """Return whether a container is known to belong on the node's shared pool, without computing its pinning."""
        return record.on_pool and not self._everyone

    def narrowed(self, record: ContainerRecord, cpus: Bits) -> None:
        """Note that a container's cgroup was given these CPUs, which the runtime does not know yet."""
        record.applied = replace(record.applied, cpus=cpus)
        self._late[record.id] = None
        self._events.pinning_changed(record)

    def _shrinking_first(self, pool: Pinning) -> list[tuple[ContainerRecord, Pinning | None]]:
        """Return all containers with their pinning: first those that only leave CPUs, then those that move, last those
        that only gain some, after others have left them."""
        found = [
            (record, pool if self.is_on_pool(record) else self._attempt(record, partial(self._wanted, record, pool)))
            for record in self._containers.values()
        ]

        def rank(one: tuple[ContainerRecord, Pinning | None]) -> int:
            record, wanted = one
            has = record.applied.cpus
            if wanted is None or not has or not wanted.cpus & ~has:
                return 0
            return 1 if has & ~wanted.cpus else 2

        return sorted(found, key=rank)

    def _mark_done(self) -> None:
        self._due = self._everyone = False
        self._units.clear()

    def write_started(self, record: ContainerRecord, write: Write) -> None:
        """Write the pinning of a starting container, which may have changed since its creation."""
        pool = Pinning(cpus=self._placing.pool())
        self._attempt(record, lambda: self._write(record, self._placing.wanted(record), pool, write))

    def _write(self, record: ContainerRecord, wanted: Pinning, pool: Pinning, write: Write) -> bool:
        returns = quota_returns(record.applied, wanted, record.limits)
        written = write(record, wanted)
        if written and wanted != record.applied:
            self._late[record.id] = None
            if returns:
                self._quotas.add(record.id)
            self._note_given(record, wanted, pool)
        return written

    def _wanted(self, record: ContainerRecord, pool: Pinning) -> Pinning | None:
        """Return a container's pinning; None where it cannot have changed."""
        if self.is_on_pool(record):
            return pool
        if self._everyone or record.applied.isolation in ("host", "mixed") or record.unit in self._units:
            return self._placing.wanted(record)
        return None

    def _note_given(self, record: ContainerRecord, wanted: Pinning, pool: Pinning) -> None:
        record.on_pool = wanted == pool and not record.stranger
        if wanted != record.applied:
            record.applied = wanted
            self._events.pinning_changed(record)
