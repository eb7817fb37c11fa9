"""List, watch, and list again whenever the watch cannot go on: the loop that keeps a copy of what an API server has.

What is listed and what becomes of changes is the follower's; when to ask again, and how long to wait, is here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from podslice.service.pacing import BackOff
from podslice.service.podlist import ApiError, GoneError

_LONG_WATCH = 10.0
"""Seconds after which a watch without news is quiet objects' rather than a broken server's."""


class Versioned(Protocol):
    """A change with the version to continue from; empty where it has none."""

    @property
    def version(self) -> str: ...


C = TypeVar("C", bound=Versioned)


class ListWatch(Generic[C]):
    """`list_all` takes everything in and returns the version to watch from, `watch` follows one stream, `take` has its
    changes, `failed` hears why it cannot go on. `run` does so for ever, whatever is answered."""

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
        """List, watch, and list again after every failure, more and more slowly until a watch tells something."""
        back_off = back_off or BackOff(0.2, 30.0)
        while True:
            try:
                version = await self._list_all()
                while True:
                    told, version = await self._follow(version, back_off)
                    if not told:
                        await self._sleep(back_off.next())
            except GoneError:
                pass
            except ApiError as error:
                self._failed(str(error))
            except Exception as error:
                self._failed(f"{type(error).__name__}: {str(error)[:300]}")
            await self._sleep(back_off.next())

    async def _follow(self, version: str, back_off: BackOff) -> tuple[bool, str]:
        """Follow one stream; returns whether it was of use, and the version to continue from."""
        clock = asyncio.get_running_loop().time
        began, told = clock(), False
        async with contextlib.aclosing(self._stream(version)) as changes:
            async for change in changes:
                told = True
                back_off.reset()
                version = change.version or version
                self._take(change)
        if clock() - began > _LONG_WATCH:
            told = True
            back_off.reset()
        return told, version

    async def _stream(self, version: str) -> AsyncGenerator[C, None]:
        async for change in self._watch(version):
            yield change
