"""Record the CPU and memory of the system beside the pods every minute, for `podslice reserve --measured`
(docs/reserve.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from podslice.advise.reserve.measured import USAGE_FILE, SystemUsage, with_minute
from podslice.advise.reserve.usage import UsageSample, load_usage, read_system
from podslice.agent.owner import Owner
from podslice.host.filesystem import FileSystem
from podslice.host.state.statefile import write_atomically

_MINUTE = 60.0
_SAVED_EVERY = 30
_MICRO_TO_MILLI = 1e-3
_TICKS = 100


class SystemUsageRecorder:
    """Samples while the policy has `reservation.measure`. The recording of earlier agents is continued; a file that
    cannot be read is begun anew, and one that cannot be written is reported."""

    def __init__(
        self,
        owner: Owner,
        cgroups: FileSystem,
        proc: FileSystem,
        *,
        trouble: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._cgroups = cgroups
        self._proc = proc
        self._trouble = trouble
        self._clock = clock
        self._last: UsageSample | None = None
        self._unsaved = 0
        self.path: Path = owner.directory / USAGE_FILE
        self.usage: SystemUsage | None = None

    async def run(self) -> None:
        """Sample every minute, for ever."""
        while True:
            self.sample()
            await asyncio.sleep(_MINUTE)

    def sample(self) -> None:
        """Take a sample, if the policy has it."""
        node = self._owner.node
        if node is None or not node.view.policy.reservation.measure:
            self._last = None
            return
        if self.usage is None:
            self.usage = load_usage(self.path) or SystemUsage()
        now = read_system(self._cgroups, self._proc, self._clock())
        last, self._last = self._last, now
        if last is None or now.at <= last.at:
            return
        seconds = now.at - last.at
        milli = (now.usage - last.usage) * _MICRO_TO_MILLI / seconds
        softirq = (now.softirq - last.softirq) * 1000 / _TICKS / seconds
        self.usage = with_minute(self.usage, milli=milli, softirq_milli=softirq, memory=now.memory)
        self._unsaved += 1
        if self._unsaved >= _SAVED_EVERY:
            self.save()

    def save(self) -> None:
        """Write the recording, if there is anything new."""
        if self.usage is None or not self._unsaved:
            return
        try:
            write_atomically(self.path, msgspec.json.encode(self.usage))
            self._unsaved = 0
        except OSError as error:
            self._trouble("reservation", f"{self.path} cannot be written: {error.strerror}")
