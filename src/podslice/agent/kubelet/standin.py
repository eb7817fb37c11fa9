"""Put our socket in the place of the kubelet's PodResources socket, where clients look.

The kubelet's socket gets a second name beside it, and ours takes its place in one step, so that a client finds one or
the other at any moment. A kubelet that is restarted removes our socket and listens there anew; then the same is done
again. When the agent stops in good order the kubelet's socket is put back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from podslice.service.unixgrpc import is_served

OWN = "podslice.sock"
KEPT = "kubelet-own.sock"
LOOK_SECONDS = 0.5
_FOLDER_MODE = 0o750


class StandIn:
    """`place`: path of the kubelet's socket. `own`: path at which ours listens. `kept`: second path of the kubelet's.
    `problem`: why ours is not in place, empty while it is. `trouble`: gets it."""

    def __init__(self, place: Path, trouble: Callable[[str, str], None]) -> None:
        self._trouble = trouble
        self.place = place
        self.own = place.with_name(OWN)
        self.kept = place.with_name(KEPT)
        self.problem = "not there yet"

    async def make_folder(self) -> None:
        """Make the folder as the kubelet does, where it has not been started yet. Raises `OSError`."""
        self.place.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    def take(self) -> None:
        """Put our socket in place, unless it is there already."""
        try:
            if not self._ours():
                self._keep()
                _put(self.own, self.place)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.place} cannot be taken: {error.strerror or error}"

    def _ours(self) -> bool:
        try:
            return self.place.samefile(self.own)
        except FileNotFoundError:
            return False

    def _keep(self) -> None:
        """Give the kubelet's socket its second name. Raises `OSError`."""
        # A socket that is not served may be one on which the kubelet does not listen yet, which is kept, or that of a
        # dead agent. In the second case the kubelet is served at `kept`, where that agent put it.
        if not self.place.is_socket():
            return
        if is_served(self.place) or not is_served(self.kept):
            mode = self.place.stat().st_mode & 0o777
            _put(self.place, self.kept)
            # Clients reach ours with the rights that they had on the kubelet's.
            self.own.chmod(mode)

    def leave(self) -> None:
        """Put the kubelet's socket back, unless something else is in its place by now."""
        with contextlib.suppress(OSError):
            if self._ours():
                if is_served(self.kept):
                    self.kept.replace(self.place)
                else:
                    self.place.unlink()
        if not is_served(self.kept):
            with contextlib.suppress(OSError):
                self.kept.unlink()

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Keep our socket in place, for ever."""
        while True:
            self.take()
            if self.problem:
                self._trouble("podResourcesPlace", self.problem)
            await sleep(LOOK_SECONDS)


def _put(source: Path, target: Path) -> None:
    """Give a socket another name, replacing the file that has it, in one step. Raises `OSError`."""
    # A hard link keeps the socket that the process listens on, and a rename replaces in one step; a link alone cannot.
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    os.link(source, beside)
    beside.replace(target)
