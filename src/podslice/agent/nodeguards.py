"""The guards of a node whose policy asks for them: each pass over the node looks at the kernel's files, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from podslice.agent.guards import GuardNews, IrqGuard
from podslice.agent.metrics import Metrics
from podslice.agent.owner import Owner
from podslice.core.guards.masks import MaskFile, bits_in
from podslice.core.values.cpuset import Bits
from podslice.host.kernelfiles import KernelFiles, SavedStore, node_cpus

_AT_A_TIME = 16


class NodeGuards:
    """Looks after the owner's exclusive CPUs. With `observe` it only counts. What an agent that was killed has changed
    is taken over from the store, and given back where nobody needs it any more."""

    def __init__(
        self,
        owner: Owner,
        files: KernelFiles,
        store: SavedStore,
        metrics: Metrics,
        *,
        trouble: Callable[[str, str], None],
        observe: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._files = files
        self._metrics = metrics
        self._trouble = trouble
        self._observe = observe
        self._irq = IrqGuard(files, store, clock=clock)
        self._loaded = False

    async def look(self) -> None:
        """One pass; the agent's other work goes on in between."""
        node = self._owner.node
        if node is None or self._owner.safe_mode:
            return
        guards, view = node.view.policy.guards, node.view
        if not self._load() or (guards is None and not self._irq.changed):
            return
        online = view.topology.all_cpus & ~view.offline
        owned = view.owned & online
        found: list[MaskFile] = []
        for file in self._files.masks(node_cpus(self._files)):
            found.append(file)
            if len(found) % _AT_A_TIME == 0:
                await asyncio.sleep(0)
        enforce = guards is not None and guards.irq == "enforce" and not self._observe
        if not self._observe:
            self._run(found, owned if enforce else 0, online)
        self._metrics.guard_open.labels("irq").set(self._open(found, owned, read_again=enforce))

    def restore(self) -> None:
        """All files say again what they said, as far as nobody else has written them."""
        if self._observe or not self._load() or not self._irq.changed:
            return
        found = [file for file in self._files.masks({}) if file.path in self._irq.changed]
        everything = self._owner.machine.cpus.bits
        self._run(found, 0, everything)

    def _load(self) -> bool:
        """False where nothing is known of what was changed: then nothing is changed either."""
        if not self._loaded:
            try:
                self._irq.load()
            except (ValueError, OSError) as error:
                self._trouble("guard", str(error))
                return False
            self._loaded = True
        return True

    def _run(self, found: list[MaskFile], guarded: Bits, online: Bits) -> None:
        try:
            news = self._irq.run(found, guarded=guarded, online=online)
        except OSError as error:
            self._trouble("guard", f"old values cannot be stored, so nothing is changed: {error}")
            return
        self._tell(news)

    def _tell(self, news: GuardNews) -> None:
        for result, paths in (("written", news.written), ("restored", news.restored), ("refused", news.refused)):
            self._metrics.guard_writes.labels("irq", result).inc(len(paths))
        self._metrics.guard_contested.labels("irq").inc(len(news.contested))
        for path in news.refused:
            self._trouble("guard", f"{self._files.device_of(path)} cannot be moved: managed, or not writable")
        for path in news.contested:
            self._trouble("guard", f"{self._files.device_of(path)} is left to another program that keeps changing it")

    def _open(self, found: list[MaskFile], owned: Bits, *, read_again: bool) -> int:
        """How many files name exclusive CPUs."""
        texts = [(self._text(file) if read_again else file.text, file.form) for file in found]
        return sum(bool(bits_in(text, form) & owned) for text, form in texts)

    def _text(self, file: MaskFile) -> str:
        try:
            return self._files.read(file.path)
        except OSError:
            return ""
