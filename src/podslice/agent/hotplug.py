"""Follows changes of the machine: CPUs, memory and NUMA nodes that come and go (docs/hotplug.md).

The kernel announces changes by uevents, and every pass over the node reads the lists in sysfs. A change counts when two
readings agree, so that many CPUs coming one after the other are one change. Then the node's state follows, and the
cgroups: containers that lose CPUs are written before those that gain some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from msgspec.structs import replace

from podslice.agent.owner import Owner
from podslice.agent.updates import Write
from podslice.host.discover import Reading
from podslice.host.kernel.uevents import drain_uevents, open_uevents
from podslice.machine.model import Machine
from podslice.values.errors import PodsliceError

SETTLED_SECONDS = 2.0


class MachineSource:
    """Reads the machine. `read` is quick and shows whether anything changed, `discover` reads everything. Both may
    raise `OSError`, `discover` also `PodsliceError`."""

    def __init__(self, read: Callable[[], Reading], discover: Callable[[], Machine]) -> None:
        self.read = read
        self.discover = discover


class MachineWatch:
    """Keeps the owner's machine equal to the source. `write` writes a container's pinning into its cgroup, `place`
    gives all other containers theirs."""

    def __init__(
        self,
        owner: Owner,
        source: MachineSource,
        *,
        write: Write,
        place: Callable[[], Awaitable[None]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._owner = owner
        self._source = source
        self._write = write
        self._place = place
        self._sleep = sleep
        self._known: Reading | None = source.read()
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """Have the next look read everything: another policy may follow the machine or not."""
        self._known = None

    async def look(self) -> bool:
        """Apply a change of the machine, if there is one and the policy follows it. Waits until the machine has
        settled. Return whether something changed."""
        async with self._lock:
            if self._owner.admitting.policy.hotplug is None:
                return False
            reading = self._source.read()
            if reading == self._known:
                return False
            # CPUs come one by one: wait until two readings agree, and treat them as one change.
            while True:
                await self._sleep(SETTLED_SECONDS)
                again = self._source.read()
                if again == reading:
                    break
                reading = again
            if reading == self._known:
                return False
            try:
                machine = self._source.discover()
            except (PodsliceError, OSError) as error:
                self._owner.reporter.trouble("machine", f"it changed and cannot be read: {error}")
                return False
            self._known = reading
            await self._follow(machine)
            return True

    async def _follow(self, machine: Machine) -> None:
        try:
            self._owner.change_machine(machine)
        except PodsliceError as error:
            self._owner.reporter.trouble("machine", f"it changed, and nothing can run on it: {error}")
            return
        for _ in self._narrow():
            await asyncio.sleep(0)
        await self._place()
        self._owner.made_room()

    def _narrow(self) -> Iterator[None]:
        """Take containers off CPUs they lost, before any container gets new ones."""
        owner = self._owner
        for record in list(owner.containers.values()):
            if owner.containers.get(record.id) is not record:
                continue
            wanted = owner.placing.wanted(record)
            kept = record.applied.cpus & wanted.cpus
            if kept and kept != record.applied.cpus:
                owner.attempt("machine", record, lambda: self._write(record, replace(wanted, cpus=kept)))  # noqa: B023
            yield

    async def run(self) -> None:
        """Look whenever the kernel announces a change. Without uevents only other callers of `look` notice changes."""
        listener = open_uevents()
        if listener is None:
            await asyncio.Event().wait()
            return
        loop, due = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if drain_uevents(listener):
                due.set()

        loop.add_reader(listener, wake)
        try:
            while True:
                await due.wait()
                due.clear()
                await self.look()
        finally:
            loop.remove_reader(listener)
            listener.close()
