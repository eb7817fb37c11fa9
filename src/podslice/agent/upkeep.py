"""Keeps cgroups as decided: writes due updates at once, and in periodic passes repairs what others have changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterable

from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.cgroups.write_watcher import WriteWatcher
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.hotplug import MachineWatch
from podslice.agent.owner import Owner
from podslice.agent.runtime.vanished_sandboxes import VanishedSandboxes
from podslice.agent.status.report import AgentReporter
from podslice.status.status import Drift

_ON_THE_WAY_SECONDS = 0.5
"""An update the runtime is just applying looks like drift."""
_AT_ONCE_SECONDS = 0.1
_KEPT_DRIFTS = 200


class UpdateWriter:
    """Writes due updates into the cgroups of running containers; nothing with `observe`."""

    def __init__(self, owner: Owner, reconciler: Reconciler, *, observe: bool) -> None:
        self._updates = owner.updates
        self._write_one = reconciler.write
        self._observe = observe
        self._due = asyncio.Event()

    def wake(self) -> None:
        """Write due updates soon."""
        self._due.set()

    async def run(self) -> None:
        """Write due updates whenever there are any, unless an answer to the runtime has carried them."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.write()

    async def write(self) -> None:
        """Write all due updates, one container per turn of the event loop."""
        if not self._observe:
            for _ in self._updates.write(self._write_one):
                await asyncio.sleep(0)


class Upkeep:
    """Compares all containers with the decisions every `seconds` seconds, and written cgroup files at once.

    `observe`: differences are reported, and nothing is written. `machine`, `guards`: looked after by each pass, None
    where they are not followed. `begun` is called at the begin of each round, `passed` at the end of each pass; `again`
    writes the container files that could not be written before.
    """

    def __init__(
        self,
        owner: Owner,
        reconciler: Reconciler,
        vanished: VanishedSandboxes,
        write_watcher: WriteWatcher,
        reporter: AgentReporter,
        *,
        seconds: float,
        due: UpdateWriter,
        machine: MachineWatch | None,
        guards: NodeGuards | None,
        observe: bool,
        begun: Callable[[], None],
        passed: Callable[[], None],
        again: Callable[[], None],
    ) -> None:
        self._owner = owner
        self._reconciler = reconciler
        self._vanished = vanished
        self.write_watcher = write_watcher
        self._reporter = reporter
        self._write_due = due.write
        self._machine = machine
        self._guards = guards
        self._observe = observe
        self._seconds = seconds
        self._begun = begun
        self._passed = passed
        self._again = again
        self.drifts: deque[Drift] = deque(maxlen=_KEPT_DRIFTS)
        """The latest drifts."""
        self._lasting: list[Drift] = []

    async def run(self) -> None:
        """Make passes for ever."""
        while True:
            self._begun()
            async with contextlib.aclosing(self.write_watcher.watch(self._seconds)) as writes:
                async for written in writes:
                    found = await self._compared(_AT_ONCE_SECONDS, written)
                    self._lasting += [drift for drift in found if not drift.repaired and drift not in self._lasting]
            await self.look()

    async def look(self) -> list[Drift]:
        """Make one pass and report it; a difference that cannot be repaired is reported once."""
        if self._machine is not None:
            await self._machine.look()
        for identity in self._vanished.run():
            self._reporter.log.info("ended silently", pod=str(identity), uid=identity.uid)
        await self._write_due()
        if self._guards is not None:
            await self._guards.look()
        found = await self._compared(_ON_THE_WAY_SECONDS)
        self._lasting = [drift for drift in found if not drift.repaired]
        self._owner.admitting.save()
        self._again()
        self._passed()
        return found

    async def _compared(self, on_the_way: float, only: Container[str] | None = None) -> list[Drift]:
        """Repair and report what differs, and still differs `on_the_way` seconds later.

        The second look leaves out updates that are on their way to a cgroup.
        """
        found = await _between_other_work(self._reconciler.read_only_copy().steps(only))
        if found and not self._observe:
            await asyncio.sleep(on_the_way)
            found = await _between_other_work(self._reconciler.steps(only))
        for drift in found:
            if drift not in self._lasting:
                self._reporter.drift(drift)
                self.drifts.append(drift)
        return found


async def _between_other_work(steps: Iterable[list[Drift]]) -> list[Drift]:
    """Return the drifts of all steps, answering calls of the runtime between them."""
    found: list[Drift] = []
    for step in steps:
        found += step
        await asyncio.sleep(0)
    return found
