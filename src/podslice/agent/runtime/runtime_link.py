"""The agent's connection to the container runtime, which is made again after every loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from podslice.agent.kubelet.sources import Sources
from podslice.agent.process.notify import notify
from podslice.agent.runtime.nri import Connection, Launch, run_plugin
from podslice.agent.runtime.plugin import AgentPlugin
from podslice.agent.status.report import AgentReporter

_SOURCE_SECONDS = 10.0
"""The longest wait for the sources' lists of pods before the runtime is served without them."""


class RuntimeLink:
    """Serves the runtime with `plugin`.

    `connected`: is called after each connection. `stop`: ends the agent, once the runtime that started it has gone.
    `problem`: why there is no connection, empty while there is one and before the first try.
    """

    def __init__(
        self,
        plugin: AgentPlugin,
        launch: Launch,
        sources: Sources,
        reporter: AgentReporter,
        *,
        connected: Callable[[], None],
        stop: Callable[[], None],
    ) -> None:
        self.plugin = plugin
        self.problem = ""
        self._launch = launch
        self._sources = sources
        self._reporter = reporter
        self._on_connected = connected
        self._stop = stop
        self._connection: Connection | None = None
        self._warned: set[str] = set()

    def is_up(self) -> bool:
        """Whether the agent is registered with the runtime."""
        return self._connection is not None

    def close(self) -> None:
        """Close the connection. `run` connects again, and the runtime then lists all that it runs."""
        if self._connection is not None:
            self._connection.close()

    async def run(self) -> None:
        """Wait a while for the sources' pods, then serve the runtime for ever."""
        await self._wait_for_sources()
        await run_plugin(self.plugin, self._launch, connected=self._note_connected, disconnected=self._note_loss)
        self._stop()
        # A loop that returns is started again, but there is no runtime any more.
        await asyncio.Event().wait()

    async def _wait_for_sources(self) -> None:
        try:
            async with asyncio.timeout(_SOURCE_SECONDS):
                while not self._sources.ready:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            for source in self._sources.sources:
                if not source.ready:
                    self._reporter.trouble(source.name, "no list of pods yet; going on with what is known")

    def _note_connected(self, connection: Connection) -> None:
        self._connection, self.problem = connection, ""
        self._on_connected()
        self._reporter.connected(self.plugin.runtime)
        for warning in self.plugin.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._reporter.log.warning("runtime", warning=warning)
        notify(f"STATUS=serving {self.plugin.runtime}")

    def _note_loss(self, reason: str) -> None:
        # The tries go on for ever, so each reason is reported only when it is another than before.
        self._connection = None
        self._reporter.disconnected("" if reason == self.problem else reason)
        self.problem = reason
