"""The agent's process: how it starts, what runs until it is stopped, and what it leaves behind."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from podslice.agent.api_server.refusals import Refusals
from podslice.agent.guards.nodeguards import NodeGuards
from podslice.agent.kubelet.configuredsources import ConfiguredSources
from podslice.agent.kubelet.kubelet_release import KubeletRelease
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.owner import Owner
from podslice.agent.process.endpoints import Endpoints
from podslice.agent.process.exclusive import DirectoryLock
from podslice.agent.process.notify import notify
from podslice.agent.process.reloading import Reloading
from podslice.agent.resize.resizing import Resizing
from podslice.agent.statefolder import make_private
from podslice.agent.status.report import AgentReporter
from podslice.agent.status.systemusage import SystemUsageRecorder
from podslice.agent.upkeep import Upkeep
from podslice.service.supervise import Supervisor
from podslice.values.errors import InputError

Loop = Callable[[], Awaitable[None]]


class LoopPart(Protocol):
    """A part of the agent with a loop."""

    async def run(self) -> None:
        """Run for ever."""


class LoopGroup(Protocol):
    """Parts of the agent with loops by name."""

    def loops(self) -> Iterable[tuple[str, Loop]]:
        """Return the loops."""


@dataclass(kw_only=True, eq=False)
class Agent:
    """One agent process, which `agent.wiring.wire` makes.

    `observe`: it decides on a throw-away state in `scratch`, reports, and changes nothing. `loops` run by name from the
    start until `stopping` is set. `release` says whether it stopped to begin anew.
    """

    node_name: str
    observe: bool
    scratch: tempfile.TemporaryDirectory[str] | None
    owner: Owner
    reporter: AgentReporter
    configured: ConfiguredSources
    resizing: Resizing
    executor: PlanExecutor
    guards: NodeGuards | None
    usage: SystemUsageRecorder | None
    upkeep: Upkeep
    refusals: Refusals | None
    reloading: Reloading
    release: KubeletRelease
    endpoints: Endpoints
    supervisor: Supervisor
    loops: Mapping[str, Loop]
    stopping: asyncio.Event

    async def run(self) -> None:
        """Serve until `stopping` is set or a signal comes. Raises `InputError` for an address that cannot be used."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self.reloading.request)
        # The stack is closed from its end: moves and resizes first, then the loops, then what is served.
        async with AsyncExitStack() as stack:
            if self.scratch is not None:
                stack.callback(self.scratch.cleanup)
            self._make_private()
            self._lock(stack)
            stack.push_async_callback(self.configured.close)
            await self.endpoints.start(stack)
            if self.guards is not None:
                stack.callback(self.guards.restore)
            if self.usage is not None:
                stack.callback(self.usage.save)
            if self.refusals is not None:
                self.refusals.load()
            for name, work in self.loops.items():
                self.supervisor.start(name, work)
            stack.push_async_callback(self.supervisor.stop)
            stack.push_async_callback(self.resizing.close)
            stack.push_async_callback(self.executor.close)
            self.reporter.serving(self.node_name, observe=self.observe)
            notify("READY=1")
            await self.stopping.wait()
            notify("STOPPING=1")

    def _stop(self, number: signal.Signals) -> None:
        self.reporter.stopping(number.name)
        self.stopping.set()

    def _make_private(self) -> None:
        """Make the state directory, for root alone. Raises `InputError` where that fails."""
        if self.observe:
            return
        try:
            remark = make_private(self.owner.directory)
        except OSError as error:
            raise InputError(
                f"{self.owner.directory}: cannot be used: {error.strerror}", path="stateDirectory"
            ) from None
        if remark:
            self.reporter.trouble("stateDirectory", remark)

    def _lock(self, stack: AsyncExitStack) -> None:
        """Lock the state directory. Raises `InputError` where another agent has it."""
        if self.observe:
            return
        lock = DirectoryLock(self.owner.directory)
        try:
            lock.take()
        except OSError as error:
            self.reporter.trouble("stateDirectory", f"{self.owner.directory} cannot be locked: {error.strerror}")
        stack.callback(lock.release)
