"""Standing in for the kubelet where clients look for its PodResources socket.

Its socket gets a second name beside it, and ours is put in its place in one step, so that a client finds one or the
other at any moment. A kubelet that is started again removes what is in its place and listens there anew; then the same
is done again. When the agent stops in good order the kubelet's socket is put back.
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
    """`place` is the kubelet's socket. Ours listens at `own`; the kubelet's can be reached at `kept`. `problem` says
    why ours is not in its place, empty while it is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.own = place.with_name(OWN)
        self.kept = place.with_name(KEPT)
        self.problem = "not there yet"

    async def make_folder(self) -> None:
        """As the kubelet makes it, where it has not been started yet. Raises `OSError`."""
        self.place.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    def take(self) -> None:
        """Be where clients look. Nothing changes where we are already."""
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
        """The kubelet's socket keeps a name, also one that it has made and does not listen on yet. What a dead agent
        left in its place has none to keep: the kubelet is where that agent put it. Raises `OSError`."""
        if not self.place.is_socket():
            return
        if is_served(self.place) or not is_served(self.kept):
            mode = self.place.stat().st_mode & 0o777
            _put(self.place, self.kept)
            self.own.chmod(mode)

    def leave(self) -> None:
        """The kubelet is found where it was before, if nobody has changed that meanwhile."""
        with contextlib.suppress(OSError):
            if self._ours():
                if is_served(self.kept):
                    self.kept.replace(self.place)
                else:
                    self.place.unlink()
        if not is_served(self.kept):
            with contextlib.suppress(OSError):
                self.kept.unlink()

    async def run(
        self, trouble: Callable[[str, str], None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Look after it for ever."""
        while True:
            self.take()
            if self.problem:
                trouble("podResourcesPlace", self.problem)
            await sleep(LOOK_SECONDS)


def _put(source: Path, target: Path) -> None:
    """Give a socket another name in place of whatever has it, in one step. Raises `OSError`."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    os.link(source, beside)
    beside.replace(target)
