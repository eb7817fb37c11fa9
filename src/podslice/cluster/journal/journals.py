"""The service's side of the agents' streams: every node's replica, fed by the agent of that node alone.

    journals = Journals(Rulebook(), versions={"0.1.0"}, caller=callers.find_node, trouble=log)
    journals.events.applied.add(feed)                          # called after every event, with node, event and outcome
    port = await journals.start("0.0.0.0", 9097, certificate, key)
    journals.nodes[name].replica, journals.is_fresh(name)      # the replica, and whether it is the node as of now
    journals.send_plan(name, PlanGiven(uid, holding))          # down the stream

Events are applied on the event loop, one after the other for each node. A large message, such as a whole state, is
decoded and prepared by one thread, so that the loop goes on meanwhile, and only adopted on the loop. A node that sends
nonsense breaks its own replica; one that sends too much is slowed down, because its stream is read no faster than it is
processed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import grpc

from podslice.cluster.journal.callers import CallerError
from podslice.cluster.journal.pace import SHORTEST, BeatPace
from podslice.cluster.journal.replica_size import ReplicaSize
from podslice.cluster.journal.sources import JournalEvents, Unproven
from podslice.node.holding import Digest
from podslice.replica.differences import differences
from podslice.replica.events import Stamped, WholeState
from podslice.replica.replica import ApplyResult, Replica
from podslice.replica.rulebook import PreparedState, Rulebook
from podslice.replica.shared_values import SharedValues
from podslice.replica.stream_messages import (
    FOLLOW,
    OPTIONS,
    SERVICE,
    Ask,
    Beat,
    Down,
    Hello,
    Pace,
    PlanGiven,
    PlanWithdrawn,
    Up,
    decode_up,
    encode_message,
)
from podslice.values.errors import InputError, PodsliceError

T = TypeVar("T")
REVIEW_SECONDS = 300.0
"""Seconds between reviews of a stream's token, which may have been revoked, or its pod be gone."""
HELLO_SECONDS = 10.0
MOST_STREAMS = 20_000
"""Most streams at a time, with those that have not identified themselves; further ones are refused at once."""
MOST_STRANGERS = 64
"""Most streams of one address that have not identified themselves: each costs a review of its token."""
_ASK_SECONDS = 1.0
"""Seconds before a state that did not help is requested again."""
_MOST_WAITING = 1024
_NEVER = float("-inf")
_REST = 4.0
"""After a message that took time its stream rests for this multiple of it, so that no node delays the others."""
LARGE_MESSAGE = 4 << 10
"""Bytes from which on a message is decoded in the thread: states of all but the smallest nodes, and few other
events."""
LOG_SECONDS, MOST_LINES = 60.0, 20
"""Most lines about mismatches of one node in the log, in so many seconds."""
_OPTIONS = (
    *OPTIONS,
    # Both ends ping every ten seconds (`OPTIONS`), and gRPC hangs up on peers that ping more often than allowed: by
    # default that is every five minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_allowed_incoming_connections", MOST_STREAMS),
    ("grpc.max_concurrent_streams", MOST_STRANGERS),
    ("grpc.server_handshake_timeout_ms", int(HELLO_SECONDS * 1000)),
)


class LineLimit:
    """A limit on the log lines of one node; lines beyond it are counted."""

    __slots__ = ("_began", "_left_out", "_lines")

    def __init__(self) -> None:
        self._began = _NEVER
        self._lines = self._left_out = 0

    def add(self, now: float) -> str | None:
        """Return a suffix for a line: empty, or how many lines were left out before it. None for a line to leave
        out."""
        if now - self._began >= LOG_SECONDS:
            self._began, self._lines = now, 0
        if self._lines == MOST_LINES:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return f" ({left_out} lines of this node were left out before)" if left_out else ""


class NodeEntry:
    """A node: its replica, the stream that feeds it, and the time of its latest message (`last_message`)."""

    __slots__ = ("agrees", "last_message", "lines", "replica", "size", "stream")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.lines: LineLimit | None = None
        self.size: ReplicaSize | None = None
        """None before the first message of its own stream."""
        self.stream: NodeStream | None = None
        self.last_message = _NEVER
        self.agrees = False
        """Whether the latest event or beat had the replica's digests."""


class ReadMessage(NamedTuple):
    """A decoded message; for one decoded in the thread the prepared state, or its problem, and the seconds of work."""

    message: Up
    ready: PreparedState | str | None = None
    took: float = 0.0


class NodeStream:
    """The queue of messages to one agent. Where it is full the oldest message is dropped."""

    def __init__(self) -> None:
        self.pace = SHORTEST
        """Seconds between beats, as sent to the agent or as it begins by itself."""
        self._waiting: deque[Down] = deque(maxlen=_MOST_WAITING)
        self._due = asyncio.Event()
        self.replaced = asyncio.Event()

    def put(self, message: Down) -> None:
        self._waiting.append(message)
        self._due.set()

    async def take(self) -> Down:
        while not self._waiting:
            self._due.clear()
            await self._due.wait()
        return self._waiting.popleft()


class Journals:
    """The replicas of all known nodes by name, and the gRPC server that feeds them. `caller` returns the node of a
    token, and raises `PodsliceError` for an unknown one."""

    def __init__(
        self,
        rulebook: Rulebook,
        versions: Container[str],
        *,
        caller: Callable[[str], Awaitable[str]],
        trouble: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.nodes: dict[str, NodeEntry] = {}
        self.events = JournalEvents()
        self._rulebook = rulebook
        self._thread_rulebook = Rulebook(other=rulebook)
        """The thread's own rulebook, because shared values have no lock."""
        self._thread = ThreadPoolExecutor(1, "journals")
        self._strangers: dict[str, int] = {}
        """Number of streams by address that have not identified themselves."""
        self._stranger_lines = LineLimit()
        self._versions = versions
        self._caller = caller
        self._trouble = trouble
        self._clock = clock
        self._server: Any = None
        self.pace = BeatPace()
        self._streams = 0

    # For the service

    def is_fresh(self, node: str) -> bool:
        """Whether the replica is the node as of now: its stream is there and not silent, and digests are equal."""
        return not self.find_unproven(node)

    def find_unproven(self, node: str) -> Unproven:
        """Return why a replica is not the node as of now; empty where it is."""
        entry = self.nodes.get(node)
        if entry is None or entry.stream is None:
            return "noStream"
        if not entry.agrees or not entry.replica.proven:
            return "otherVersion" if entry.replica.version and not entry.replica.compatible else "outOfStep"
        now = self._clock()
        return "" if now - entry.last_message <= self.pace.patience(now) else "silent"

    def silence(self) -> float:
        """Return the longest silence of a node with a stream, in seconds; 0 without streams."""
        times = [
            entry.last_message for entry in self.nodes.values() if entry.stream is not None and entry.last_message > 0
        ]
        return self._clock() - min(times) if times else 0.0

    def send_plan(self, node: str, plan: PlanGiven | PlanWithdrawn) -> bool:
        """Send a plan, or its withdrawal, to a node; return False where it has no stream."""
        entry = self.nodes.get(node)
        if entry is None or entry.stream is None:
            return False
        entry.stream.put(plan)
        return True

    def has_stream(self, node: str) -> bool:
        """Whether the node has a stream."""
        entry = self.nodes.get(node)
        return entry is not None and entry.stream is not None

    def seed(self, node: str, stamped: Stamped, ready: PreparedState | str | None = None) -> ApplyResult | None:
        """Apply the state of a NodeState object, unless the node has a stream, which is newer. `ready`: the state as
        the thread prepared it. Returns None where it was not applied."""
        entry = self._entry(node)
        return None if entry.stream is not None else self._apply(node, entry, stamped, 0, ready)

    async def run_in_thread(self, work: Callable[[Rulebook], T]) -> T:
        """Do work in the thread, with the thread's rulebook."""
        return await self._run_in_thread(lambda: work(self._thread_rulebook))

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run work in the thread. The result comes through a list: the futures of an executor refer to each other, and
        would keep a large result until the next garbage collection."""
        found: list[T] = []
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: found.append(work()))
        return found.pop()

    def forget(self, node: str) -> None:
        """Drop a node that left the cluster, and end its stream."""
        entry = self.nodes.pop(node, None)
        if entry is not None:
            self._rulebook.forget(entry.replica)
            if entry.stream is not None:
                entry.stream.replaced.set()

    @property
    def common(self) -> SharedValues:
        """The values that states of nodes share."""
        return self._rulebook.common

    def _entry(self, node: str) -> NodeEntry:
        entry = self.nodes.get(node)
        if entry is None:
            entry = self.nodes[node] = NodeEntry(Replica(self._rulebook, self._versions))
        return entry

    # Streams

    async def start(
        self,
        host: str,
        port: int,
        certificate: bytes,
        key: bytes,
        *,
        renewed: Callable[[], tuple[bytes, bytes]] | None = None,
    ) -> int:
        """Listen, and return the port. `renewed` returns the certificate and key of a new connection, the given ones
        without it. Raises `InputError` for an unusable address or certificate."""
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MOST_STREAMS)
        method = grpc.stream_stream_rpc_method_handler(
            self._follow, request_deserializer=bytes, response_serializer=encode_message
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {FOLLOW: method}),))
        try:
            bound = server.add_secure_port(f"{host}:{port}", _credentials(renewed or (lambda: (certificate, key))))
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{host}:{port} cannot be served: {error}", path="journalAddress") from None
        await server.start()
        self._server = server
        return int(bound)

    async def close(self) -> None:
        """End all streams and the thread."""
        if self._server is not None:
            await self._server.stop(0.5)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, requests: Any, context: Any) -> None:
        token, peer = _bearer(context), _host(context)
        if self._strangers.get(peer, 0) >= MOST_STRANGERS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams of this address say not who they are"
            )
        self._strangers[peer] = self._strangers.get(peer, 0) + 1
        try:
            node = await self._caller(token)
            await self._check_hello(node, context)
        except CallerError as error:
            self._log_stranger(context, error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        except PodsliceError as error:
            self._log_stranger(context, error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error)[:500])
        finally:
            self._strangers[peer] -= 1
            if not self._strangers[peer]:
                del self._strangers[peer]
        entry = self._entry(node)
        if entry.stream is not None:
            entry.stream.replaced.set()
        # The newer stream wins: the old one may be of an agent that is gone.
        stream = entry.stream = NodeStream()
        self._count_streams(1)
        tasks = [
            asyncio.ensure_future(one)
            for one in (
                self._read(node, entry, stream, context),
                self._write(stream, context),
                self._review(token, node),
                stream.replaced.wait(),
            )
        ]
        self.events.stream_changed(node)
        wanted = entry.replica.missing
        stream.put(Ask(entry.replica.epoch, entry.replica.sequence, False) if wanted is None else Ask(*wanted))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                self._log_end(node, one)
        finally:
            for task in tasks:
                task.cancel()
            self._count_streams(-1)
            await asyncio.gather(*tasks, return_exceptions=True)
            if entry.stream is stream:
                entry.stream, entry.agrees = None, False
                self.events.stream_changed(node)

    def _log_stranger(self, context: Any, error: PodsliceError) -> None:
        """Log a refused stream, within a limit: anyone who reaches the port can cause refusals."""
        more = self._stranger_lines.add(self._clock())
        if more is not None:
            self._trouble("agent", f"{context.peer()}: {error}{more.replace('of this node', 'like this')}")

    def _count_streams(self, more: int) -> None:
        self._streams += more
        self.pace.follow(self._streams, self._clock())

    def _log_end(self, node: str, task: asyncio.Future[Any]) -> None:
        error = task.exception()
        if error is not None:
            self._trouble("agent", f"{node}: {str(error)[:300] or type(error).__name__}")

    async def _check_hello(self, node: str, context: Any) -> None:
        """Read the first message of a stream. Raises `CallerError` for an agent that claims another node."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = _decode(await context.read())
        except TimeoutError:
            raise CallerError("says nothing") from None
        if not isinstance(message, Hello):
            raise CallerError("does not say who it is")
        if message.node != node:
            raise CallerError(f"is the agent of {node}, and speaks for {message.node[:253]!r}")

    async def _read(self, node: str, entry: NodeEntry, stream: NodeStream, context: Any) -> None:
        """Apply an agent's messages until the stream ends. Raises `InputError`."""
        asked = _NEVER
        while (took := await self._take(node, entry, stream, context)) is not None:
            wanted = entry.replica.missing
            if wanted is not None and self._clock() - asked > _ASK_SECONDS:
                asked = self._clock()
                stream.put(Ask(*wanted))
            await asyncio.sleep(_REST * took)

    async def _take(self, node: str, entry: NodeEntry, stream: NodeStream, context: Any) -> float | None:
        """Apply the next message of an agent, and return the seconds of work; None at the end. Raises `InputError`.

        A call of its own, so that the message is not kept in memory while the agent is silent."""
        data = await context.read()
        if data is grpc.aio.EOF:
            return None
        entry.last_message = began = self._clock()
        message, ready, took = await self._message(data)
        if took:
            # The thread took time: meanwhile the node may have left, or opened another stream.
            if self.nodes.get(node) is not entry or entry.stream is not stream:
                return None
            began = self._clock() - took
        if isinstance(message, Stamped):
            self._apply(node, entry, message, len(data), ready)
        elif isinstance(message, Beat):
            self._compare(entry, message)
            if stream.pace != self.pace.seconds:
                stream.pace = self.pace.seconds
                stream.put(Pace(stream.pace))
        else:
            raise InputError("says again who it is", path="message")
        return self._clock() - began

    async def _message(self, data: Any) -> ReadMessage:
        """Decode a message, a large one in the thread. Raises `InputError`."""
        if not isinstance(data, bytes) or len(data) <= LARGE_MESSAGE:
            return ReadMessage(_decode(data, self._rulebook.common))
        return await self._run_in_thread(lambda: self._decode_and_prepare(data))

    def _decode_and_prepare(self, data: bytes) -> ReadMessage:
        """Decode a message and prepare its whole state; runs in the thread. Raises `InputError`."""
        began = time.perf_counter()
        message = _decode(data, self._thread_rulebook.common)
        event = message.event if isinstance(message, Stamped) else None
        ready = self._thread_rulebook.prepare(event) if isinstance(event, WholeState) else None
        # Never 0, which stands for a message that was decoded on the loop.
        return ReadMessage(message, ready, max(time.perf_counter() - began, 1e-9))

    def _apply(
        self, node: str, entry: NodeEntry, stamped: Stamped, size: int, ready: PreparedState | str | None = None
    ) -> ApplyResult:
        applied = entry.replica.apply(stamped, ready)
        if size:
            entry.size = entry.size or ReplicaSize()
        if entry.size is not None and not entry.size.add(stamped.event, size):
            entry.replica.await_whole_state()
        entry.agrees = entry.replica.proven
        self._log(node, entry, applied)
        self.events.applied(node, stamped, applied)
        return applied

    def _log(self, node: str, entry: NodeEntry, applied: ApplyResult) -> None:
        """Log a mismatch, and the differences between both states once both are known."""
        lines: Iterable[str] = ()
        if applied.outcome == "mismatch":
            lines = (applied.why,)
        elif applied.mine is not None and applied.theirs is not None:
            lines = differences(applied.mine, applied.theirs)
        for line in lines:
            # Made when it is needed: of thousands of nodes few have mismatches.
            entry.lines = entry.lines or LineLimit()
            more = entry.lines.add(self._clock())
            if more is not None:
                self._trouble("mismatch", f"{node}: {line}{more}")

    def _compare(self, entry: NodeEntry, beat: Beat) -> None:
        """Compare a beat with the replica: events may be missing, or digests differ."""
        replica = entry.replica
        entry.agrees = replica.matches(beat.epoch, beat.sequence, Digest(beat.allocation, beat.named))

    async def _write(self, stream: NodeStream, context: Any) -> None:
        while True:
            await context.write(await stream.take())

    async def _review(self, token: str, node: str) -> None:
        """Review a stream's token again and again. Raises `ConnectionError` once it is not this node's any more."""
        while True:
            await asyncio.sleep(REVIEW_SECONDS)
            # Errors of the API server end no stream: only its verdict does.
            with contextlib.suppress(PodsliceError):
                if await self._is_valid(token, node):
                    continue
                raise _token_error()

    async def _is_valid(self, token: str, node: str) -> bool:
        try:
            return await self._caller(token) == node
        except CallerError:
            return False


def _credentials(latest: Callable[[], tuple[bytes, bytes]]) -> Any:
    """Return the credentials of a server with the latest certificate and key; gRPC asks at each handshake, in a thread
    of its own."""
    used = [latest()]

    def renew() -> Any:
        """Return the configuration of a new pair, None where nothing changed."""
        pair = latest()
        if pair == used[0]:
            return None
        used[0] = pair
        return _configuration(*pair)

    return grpc.dynamic_ssl_server_credentials(_configuration(*used[0]), renew)


def _configuration(certificate: bytes, key: bytes) -> Any:
    return grpc.ssl_server_certificate_configuration([(key, certificate)])


def _token_error() -> Exception:
    return ConnectionError("its token does not count any more")


def _decode(data: Any, common: SharedValues | None = None) -> Up:
    """Decode a message. Raises `InputError`."""
    if not isinstance(data, bytes):
        raise InputError("ended before it began", path="message")
    return decode_up(data, common)


def _host(context: Any) -> str:
    """Return the address of a peer such as `ipv4:10.0.0.1:4711`, without its port."""
    return str(context.peer()).rpartition(":")[0]


def _bearer(context: Any) -> str:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    return ""
