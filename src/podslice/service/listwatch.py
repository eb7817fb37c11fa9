"""List, watch, and list again whenever the watch cannot go on: the loop that keeps a copy of an API server's objects.

The caller decides what is listed and what a change means; this module decides when to ask again, and how long to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from podslice.service.answers import ApiError, GoneError
from podslice.service.pacing import BackOff

_LONG_WATCH = 10.0
"""Seconds after which a watch without events means quiet objects rather than a broken server."""


class Versioned(Protocol):
    """An event with the resource version to continue from; empty where it has none."""

    @property
    def version(self) -> str: ...


C = TypeVar("C", bound=Versioned)


class ListWatch(Generic[C]):
    """Follows the objects of an API server; `run` never ends, whatever is answered.

    `list_all`: reads all objects and returns the resource version to watch from.
    `watch`: yields the events since a version until the server ends the stream.
    `take`: gets every event.
    `failed`: gets the message of every error that interrupts the loop.
    """

    def __init__(
        self,
        list_all: Callable[[], Awaitable[str]],
        watch: Callable[[str], AsyncIterator[C]],
        take: Callable[[C], None],
        *,
        failed: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._list_all = list_all
        self._watch = watch
        self._take = take
        self._failed = failed
        self._sleep = sleep

    async def run(self, back_off: BackOff | None = None) -> None:
        """List, watch, and list again after every failure; waits grow until a watch brings an event."""
        back_off = back_off or BackOff(0.2, 30.0)
        while True:
            try:
                version = await self._list_all()
                while True:
                    useful, version = await self._follow(version, back_off)
                    # A server that ends every watch at once must not be asked in a tight loop.
                    if not useful:
                        await self._sleep(back_off.next())
            except GoneError:  # routine: etcd compacts old versions, so the next list is the whole answer to it
                pass
            except ApiError as error:
                self._failed(str(error))
            except Exception as error:
                self._failed(f"{type(error).__name__}: {str(error)[:300]}")
            await self._sleep(back_off.next())

    async def _follow(self, version: str, back_off: BackOff) -> tuple[bool, str]:
        """Follow one stream. Return whether it was of use, and the version to continue from."""
        clock = asyncio.get_running_loop().time
        began, useful = clock(), False
        async with contextlib.aclosing(self._stream(version)) as changes:
            async for change in changes:
                useful = True
                back_off.reset()
                version = change.version or version
                self._take(change)
        if clock() - began > _LONG_WATCH:
            useful = True
            back_off.reset()
        return useful, version

    async def _stream(self, version: str) -> AsyncGenerator[C, None]:
        async for change in self._watch(version):
            yield change
