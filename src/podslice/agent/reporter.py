"""Streams the node's events to the cluster service: one stream to each of its replicas.

The journal remembers what a stream has yet to send, so nothing queues here, and a service that is slow or away costs
the node nothing. A replica that was away gets the missing events, or the whole state (`replica.stream_messages`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc

from podslice.agent.journal import NodeJournal
from podslice.replica.compatibility import OLDEST_PROTOCOL, PROTOCOL
from podslice.replica.events import Stamped, WholeState
from podslice.replica.stream_messages import (
    METHOD,
    OPTIONS,
    Ask,
    Beat,
    Down,
    Hello,
    Pace,
    PlanGiven,
    PlanWithdrawn,
    Up,
    Welcome,
    decode_down,
    encode_message,
)
from podslice.service.answers import ApiError
from podslice.service.pacing import BackOff
from podslice.service.tokens import read_account_token
from podslice.service.trust import AuthorityFile
from podslice.values.errors import InputError

BEAT_SECONDS = 3.0
"""The service takes a node for gone after ten seconds of silence."""
_RESOLVE_SECONDS = 30.0
_MOST_REPLICAS = 9
_OPTIONS = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))


def _written(message: Up | bytes) -> bytes:
    return message if isinstance(message, bytes) else encode_message(message)


class ReplicaProgress:
    """The events that one replica has got: `sent` is epoch and sequence of the latest one."""

    def __init__(self, journal: NodeJournal) -> None:
        self._journal = journal
        self.sent: tuple[int, int] | None = None
        self._whole = False
        self.pace = BEAT_SECONDS
        """Seconds of silence after which a heartbeat is sent."""

    def resume_after(self, ask: Ask) -> None:
        """Continue after what the replica says it has."""
        self.sent, self._whole = (ask.epoch, ask.sequence), ask.state

    def due(self) -> tuple[Stamped, ...]:
        """Return the events to send now; none before the replica has said what it has."""
        self._journal.record_changes()
        journal = self._journal.journal
        if self.sent is None or journal is None:
            return ()
        events = (journal.whole_state(),) if self._whole else journal.events_after(*self.sent)
        self.sent, self._whole = (journal.epoch, journal.sequence), False
        return events

    def beat(self) -> Beat | None:
        """Return the heartbeat for when no event is due."""
        journal = self._journal.journal
        if self.sent is None or journal is None:
            return None
        return Beat(journal.epoch, journal.sequence, journal.digest.allocation, journal.digest.named)


class ServiceStreams:
    """Keeps a stream to every address of a service's name, because each replica has the whole model.

    `stream` makes the stream to an address, checked against the name; `resolve` returns the addresses.
    """

    def __init__(
        self,
        target: str,
        stream: Callable[[str, str], JournalStream],
        *,
        trouble: Callable[[str, str], None],
        resolve: Callable[[str, int], Awaitable[list[str]]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._host, self._port = target, host.strip("[]"), int(port)
        self._stream = stream
        self._trouble = trouble
        self._resolve = resolve or _addresses
        self._sleep = sleep
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the service's addresses for ever: start streams to new replicas, end those to old ones."""
        try:
            while True:
                await self._look()
                await self._sleep(_RESOLVE_SECONDS if self._tasks else _RESOLVE_SECONDS / 10)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _look(self) -> None:
        try:
            # Sorted, so that the same replicas are chosen each time, whatever order the resolver answers in.
            found = set(sorted(await self._resolve(self._host, self._port))[:_MOST_REPLICAS])
        except OSError as error:
            self._trouble("cluster", f"{self._target}: {error.strerror or error}")
            return
        for address in found - self._tasks.keys():
            self._tasks[address] = asyncio.ensure_future(self._stream(address, self._host).run())
        for address in self._tasks.keys() - found:
            self._tasks.pop(address).cancel()


async def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [f"[{where[0]}]:{port}" if ":" in str(where[0]) else f"{where[0]}:{port}" for *_, where in found]


class JournalStream:
    """The stream to one replica, at `target`. `token_file` and `authority`, None for the
    system's, are read at each connection. `trouble` gets
    the reason for each failed connection, `began` target, the service's version and the protocol of each stream."""

    def __init__(
        self,
        target: str,
        journal: NodeJournal,
        *,
        node: str,
        token_file: Path,
        authority: AuthorityFile | None,
        server_name: str = "",
        trouble: Callable[[str, str], None],
        began: Callable[[str, str, int], object] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.target = target
        self._began = began
        self._journal = journal
        self._node = node
        self._token_file = token_file
        self._authority = authority
        self._server_name = server_name
        self._trouble = trouble
        self._sleep = sleep
        self._changed = asyncio.Event()

    async def run(self, back_off: BackOff | None = None) -> None:
        """Keep the stream open for ever, reconnecting after every failure."""
        back_off = back_off or BackOff(0.5, 30.0)
        with self._journal.notifying(self._changed.set):
            await self._keep(back_off)

    async def _keep(self, back_off: BackOff) -> None:
        while True:
            try:
                await self._follow(back_off)
                why = "the service ended the stream"
            except (ApiError, InputError, OSError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            except grpc.aio.AioRpcError as error:
                why = f"{error.code().name}: {str(error.details())[:300]}"
            except Exception as error:
                why = f"{type(error).__name__}: {str(error)[:300]}"
            self._trouble("cluster", f"{self.target}: {why}")
            await self._sleep(back_off.next())

    async def _follow(self, back_off: BackOff) -> None:
        metadata, credentials = await asyncio.to_thread(self._identity)
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", self._server_name)) if self._server_name else _OPTIONS
        async with grpc.aio.secure_channel(
            self.target, credentials, options=options, compression=grpc.Compression.Gzip
        ) as channel:
            call = channel.stream_stream(METHOD, request_serializer=_written, response_deserializer=decode_down)(
                metadata=metadata
            )
            try:
                await self._converse(call, back_off)
            finally:
                self._journal.streams.discard(self.target)
                call.cancel()

    def _identity(self) -> tuple[tuple[tuple[str, str], ...], Any]:
        """Return the token and credentials of a connection. Raises `ApiError`, `InputError`, `OSError`."""
        token = read_account_token(self._token_file)
        authority = None
        if self._authority is not None:
            authority = self._authority.read()
        return (("authorization", f"Bearer {token}"),), grpc.ssl_channel_credentials(authority)

    async def _converse(self, call: Any, back_off: BackOff) -> None:
        await call.write(Hello(self._node, self._journal.version, PROTOCOL))
        progress = ReplicaProgress(self._journal)
        reading = asyncio.ensure_future(self._listen(call, progress, back_off))
        try:
            while not reading.done():
                # Cleared before the events are read: one that comes during the write wakes the next round.
                self._changed.clear()
                await self._send(call, progress.due())
                waiting = asyncio.ensure_future(self._changed.wait())
                done, _ = await asyncio.wait(
                    {waiting, reading}, timeout=progress.pace, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                beat = None if done else progress.beat()
                if beat is not None:
                    await call.write(beat)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _send(self, call: Any, events: Iterable[Stamped]) -> None:
        for stamped in events:
            # The state of a large node takes long enough to encode to delay answers to the runtime.
            if isinstance(stamped.event, WholeState):
                await call.write(await asyncio.to_thread(encode_message, stamped))
            else:
                await call.write(stamped)

    async def _listen(self, call: Any, progress: ReplicaProgress, back_off: BackOff) -> None:
        async for message in call:
            if self.target not in self._journal.streams:
                # A service without `Welcome` speaks the first protocol.
                self._greet(message if isinstance(message, Welcome) else Welcome("", 1))
            back_off.reset()
            self._journal.streams.add(self.target)
            self._take(message, progress)

    def _greet(self, welcome: Welcome) -> None:
        """Take the service's first words. Raises `ApiError` for one whose protocol this agent does not speak."""
        if welcome.protocol < OLDEST_PROTOCOL:
            who = f"the service ({welcome.version or 'older'}) speaks protocol {welcome.protocol}"
            raise ApiError(f"{who}, this agent {OLDEST_PROTOCOL} or newer")
        if self._began is not None:
            self._began(self.target, welcome.version, min(welcome.protocol, PROTOCOL))

    def _take(self, message: Down, progress: ReplicaProgress) -> None:
        if isinstance(message, Ask):
            progress.resume_after(message)
            self._changed.set()
        elif isinstance(message, Pace):
            progress.pace = message.seconds
        elif isinstance(message, PlanGiven):
            self._journal.plan(message)
        elif isinstance(message, PlanWithdrawn):
            self._journal.withdraw(message.uid)
