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
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from podslice.cluster.journal.admission import StreamAdmission, decode_message
from podslice.cluster.journal.entries import NEVER, NodeEntry, NodeStream, ReadMessage
from podslice.cluster.journal.listener import listen
from podslice.cluster.journal.pace import BeatPace
from podslice.cluster.journal.replica_size import ReplicaSize
from podslice.cluster.journal.sources import JournalEvents, Unproven
from podslice.cluster.log_lines import Log, NoLog
from podslice.node.holding import Digest
from podslice.replica.compatibility import PROTOCOL
from podslice.replica.differences import differences
from podslice.replica.events import Stamped, WholeState
from podslice.replica.replica import ApplyResult, Replica
from podslice.replica.rulebook import PreparedState, Rulebook
from podslice.replica.shared_values import SharedValues
from podslice.replica.stream_messages import (
    Ask,
    Beat,
    Pace,
    PlanGiven,
    PlanWithdrawn,
    Welcome,
)
from podslice.service.pacing import LineLimit
from podslice.values.errors import InputError

T = TypeVar("T")
_ASK_SECONDS, _ASK_AGAIN_SECONDS = 1.0, 60.0
"""Seconds before a state that did not help is requested again; before one that could not be read."""
_REST = 4.0
"""After a message that took time its stream rests for this multiple of it, so that no node delays the others."""
LARGE_MESSAGE = 4 << 10
"""Bytes from which on a message is decoded in the thread: states of all but the smallest nodes, and few other
events."""


class Journals:
    """The replicas of all known nodes by name, and the gRPC server that feeds them. `caller` returns the node of a
    token, and raises `PodsliceError` for an unknown one. `version` is the service's own, for agents."""

    def __init__(
        self,
        rulebook: Rulebook,
        versions: Container[str],
        *,
        caller: Callable[[str], Awaitable[str]],
        trouble: Callable[[str, str], None],
        log: Log | None = None,
        version: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._version = log or NoLog(), version
        self.nodes: dict[str, NodeEntry] = {}
        self.events = JournalEvents()
        self._rulebook = rulebook
        self._thread_rulebook = Rulebook(other=rulebook)
        """The thread's own rulebook, because shared values have no lock."""
        self._thread = ThreadPoolExecutor(1, "journals")
        self._versions = versions
        self._admission = StreamAdmission(caller, trouble=trouble, version=version, clock=clock)
        self._trouble = trouble
        self._clock = clock
        self._server: Any = None
        self.pace = BeatPace()
        self._streams = 0
        self._closing = False

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
            foreign = entry.unreadable or (entry.replica.version and not entry.replica.compatible)
            return "otherVersion" if foreign else "outOfStep"
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
        self._server, bound = await listen(self._follow, host, port, renewed or (lambda: (certificate, key)))
        return bound

    async def close(self) -> None:
        """End all streams and the thread."""
        self._closing = True
        if self._server is not None:
            await self._server.stop(0.5)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, requests: Any, context: Any) -> None:
        node, hello = await self._admission.identify(context)
        entry = self._entry(node)
        if entry.stream is not None:
            entry.stream.replaced.set()
        # The newer stream wins: the old one may be of an agent that is gone.
        stream = entry.stream = NodeStream(node, hello.version)
        self._count_streams(1)
        tasks = [
            asyncio.ensure_future(one)
            for one in (
                stream.replaced.wait(),
                self._admission.review(context, node),
                self._read(node, entry, stream, context),
                self._write(stream, context),
            )
        ]
        protocol, version = min(PROTOCOL, hello.protocol), hello.version[:80]
        self._log_stream(entry, "stream began", node=node, peer=context.peer(), version=version, protocol=protocol)
        entry.unreadable = False
        if protocol > 1:
            stream.put(Welcome(self._version, PROTOCOL))
        cause = "the connection is gone"
        self.events.stream_changed(node)
        wanted = entry.replica.missing
        stream.put(Ask(entry.replica.epoch, entry.replica.sequence, False) if wanted is None else Ask(*wanted))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            cause = _end_cause([one if one in done else None for one in tasks])
        finally:
            cause = "the service stops" if self._closing else cause
            self._log_stream(entry, "stream ended", node=node, peer=context.peer(), cause=cause)
            for task in tasks:
                task.cancel()
            self._count_streams(-1)
            await asyncio.gather(*tasks, return_exceptions=True)
            if entry.stream is stream:
                entry.stream, entry.agrees = None, False
                self.events.stream_changed(node)

    def _log_stream(self, entry: NodeEntry, event: str, **fields: object) -> None:
        """Log that a stream came or went, within a limit for its node."""
        entry.stream_lines = entry.stream_lines or LineLimit()
        left_out = entry.stream_lines.add(self._clock())
        if left_out is not None:
            self._log.info(event, **fields, **({"leftOut": left_out} if left_out else {}))

    def _count_streams(self, more: int) -> None:
        self._streams += more
        self.pace.follow(self._streams, self._clock())

    async def _read(self, node: str, entry: NodeEntry, stream: NodeStream, context: Any) -> None:
        """Apply an agent's messages until the stream ends. Raises `InputError`."""
        asked = NEVER
        while (took := await self._take(node, entry, stream, context)) is not None:
            wanted = entry.replica.missing
            pause = _ASK_AGAIN_SECONDS if entry.unreadable else _ASK_SECONDS
            if wanted is not None and self._clock() - asked > pause:
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
        try:
            message, ready, took = await self._message(data)
        except InputError as error:
            if not self._is_foreign(entry, stream):
                raise
            self._pass_over(node, entry, error)
            return self._clock() - began
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

    def _is_foreign(self, entry: NodeEntry, stream: NodeStream) -> bool:
        """Whether the agent is of another version: what it says may be more than this program can read."""
        return stream.version not in self._versions and self.nodes.get(stream.node) is entry

    def _pass_over(self, node: str, entry: NodeEntry, error: InputError) -> None:
        """Pass over a message of an agent of another version; its node stays unproven until it can be read."""
        entry.agrees = False
        if not entry.unreadable:
            entry.unreadable = True
            self._trouble("otherVersion", f"{node}: cannot be read: {error}")

    async def _message(self, data: Any) -> ReadMessage:
        """Decode a message, a large one in the thread. Raises `InputError`."""
        if not isinstance(data, bytes) or len(data) <= LARGE_MESSAGE:
            return ReadMessage(decode_message(data, self._rulebook.common))
        return await self._run_in_thread(lambda: self._decode_and_prepare(data))

    def _decode_and_prepare(self, data: bytes) -> ReadMessage:
        """Decode a message and prepare its whole state; runs in the thread. Raises `InputError`."""
        began = time.perf_counter()
        message = decode_message(data, self._thread_rulebook.common)
        event = message.event if isinstance(message, Stamped) else None
        ready = self._thread_rulebook.prepare(event) if isinstance(event, WholeState) else None
        # Never 0, which stands for a message that was decoded on the loop.
        return ReadMessage(message, ready, max(time.perf_counter() - began, 1e-9))

    def _apply(
        self, node: str, entry: NodeEntry, stamped: Stamped, size: int, ready: PreparedState | str | None = None
    ) -> ApplyResult:
        applied = entry.replica.apply(stamped, ready)
        if isinstance(stamped.event, WholeState):
            entry.unreadable = False
        if size:
            entry.size = entry.size or ReplicaSize()
        if entry.size is not None and not entry.size.add(stamped.event, size):
            entry.replica.await_whole_state()
        entry.agrees = entry.replica.proven
        self._log_mismatch(node, entry, applied)
        self.events.applied(node, stamped, applied)
        return applied

    def _log_mismatch(self, node: str, entry: NodeEntry, applied: ApplyResult) -> None:
        """Log a mismatch, and the differences between both states once both are known."""
        lines: Iterable[str] = ()
        if applied.outcome in ("mismatch", "otherDecision"):
            lines = (applied.why,)
        elif applied.mine is not None and applied.theirs is not None:
            lines = differences(applied.mine, applied.theirs)
        for line in lines:
            # Made when it is needed: of thousands of nodes few have mismatches.
            entry.lines = entry.lines or LineLimit()
            left_out = entry.lines.add(self._clock())
            if left_out is not None:
                more = f" ({left_out} lines of this node were left out before)" if left_out else ""
                self._trouble(
                    "mismatch" if entry.replica.relation == "same" else "otherDecision", f"{node}: {line}{more}"
                )

    def _compare(self, entry: NodeEntry, beat: Beat) -> None:
        """Compare a beat with the replica: events may be missing, or digests differ."""
        replica = entry.replica
        entry.agrees = replica.matches(beat.epoch, beat.sequence, Digest(beat.allocation, beat.named))

    async def _write(self, stream: NodeStream, context: Any) -> None:
        while True:
            await context.write(await stream.take())


def _end_cause(tasks: list[asyncio.Future[Any] | None]) -> str:
    """Return why a stream ended, by those of its tasks that are done."""
    for task in tasks:
        error = None if task is None else task.exception()
        if error is not None:
            return f"{type(error).__name__}: {str(error)[:300]}"
    return "a newer stream of this node" if tasks[0] is not None else "the agent ended it"
