"""Who must be told what: running containers whose sets are no longer what the runtime was told last.

Updates are collected, not sent: the answer that creates a container carries them, and what no answer carries is sent
unasked by the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from podslice.agent.books import ContainerRecord, Placement
from podslice.agent.placing import Placing
from podslice.agent.translate import same_effect, update_of
from podslice.wire.proto import nri_pb2 as nri


class Updates:
    """What is due for the owner's `containers`. `on_due` hears that something may be, `on_placed` of every container
    whose sets change."""

    def __init__(self, placing: Placing, containers: Mapping[str, ContainerRecord]) -> None:
        self.on_due: Callable[[], None] = lambda: None
        self.on_placed: Callable[[ContainerRecord], None] = lambda record: None
        self._placing = placing
        self._containers = containers
        self._due = False
        self._everyone = False

    def pool_changed(self) -> None:
        """The shared pool is another: who runs on it must be told."""
        self._due = True
        self.on_due()

    def recheck(self) -> None:
        """Anybody may have other sets than wanted."""
        self._due = self._everyone = True

    def take(self, but: str = "") -> list[nri.ContainerUpdate]:
        """Updates for the containers, `but` one, whose wanted sets changed; they count as told from now on."""
        if not self._due:
            return []
        self._due = False
        everyone, self._everyone = self._everyone, False
        pool = Placement(cpus=self._placing.pool())
        on_pool = nri.LinuxContainerUpdate()
        pool.write(on_pool.resources)
        updates = []
        for record in self._containers.values():
            if record.id == but:
                continue
            if not everyone and record.on_pool:
                wanted = pool
            elif everyone or record.applied.isolation == "host":
                wanted = self._placing.wanted(record)
            else:
                continue
            if wanted != record.applied:
                if wanted is pool and pool.cpus:
                    updates.append(nri.ContainerUpdate(container_id=record.id, linux=on_pool, ignore_failure=True))
                elif not same_effect(record.applied, wanted):
                    updates.append(update_of(record, wanted))
                record.applied = wanted
                self.on_placed(record)
            record.on_pool = wanted == pool and not record.stranger
        return updates

    def not_told(self, container_ids: Iterable[str]) -> None:
        """Updates that did not reach the runtime are due again."""
        for container_id in container_ids:
            record = self._containers.get(container_id)
            if record is not None:
                record.applied = Placement()
                record.on_pool = False
                self.recheck()
