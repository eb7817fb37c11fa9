"""The extender's verbs: requests of kube-scheduler over HTTP, answered by `Placements`.

filter and prioritize are answered at once; bind writes the Binding first. A malformed request gets an error, which the
pod's event shows; nothing that a client sends ends the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from podslice.cluster.apiclient import Binding, ClusterApi
from podslice.cluster.extender.messages import (
    BindRequest,
    FilterAnswer,
    MessageError,
    read_bind,
    read_filter,
    read_preempt,
    write_bind,
    write_filter,
    write_scores,
    write_victims,
)
from podslice.cluster.placements import Placements
from podslice.node.answers import PodHolding
from podslice.replica.stream_messages import PlanGiven, PlanWithdrawn
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError
from podslice.service.http.post_server import Handler, PostAnswer
from podslice.values.cpuset import bits_of, format_bits
from podslice.values.errors import PodsliceError

PLAN_ANNOTATION = "podslice.io/plan"
MOST_BINDING = 32
"""Bindings under way to the API server from which on filters wait for a while."""
_CONFLICT = 409
"""The pod is bound, is being deleted, or is another of its name; maybe by an earlier call of ours."""
_LONGEST_SET = 2048
"""Characters of a set of CPUs in an annotation."""
_LONGEST_WAIT = 1.0
"""Seconds; kube-scheduler waits for two."""


class Watch(Protocol):
    """Called with the duration of a verb in seconds, and its result."""

    def __call__(self, verb: str, seconds: float, result: str) -> None: ...


Send = Callable[[str, PlanGiven | PlanWithdrawn], object]
"""Sends a plan for a pod to a node, or withdraws it."""


class Extender:
    """`ahead` has the nodes that were chosen ahead, by UID of the pod. `send` takes the plans of bound pods to the
    nodes."""

    def __init__(
        self,
        placing: Placements,
        api: ClusterApi,
        *,
        ahead: Mapping[str, str],
        send: Send,
        watch: Watch,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._placing, self._api, self._ahead = placing, api, ahead
        self._send, self._watch, self._clock = send, watch, clock
        self._binding = 0
        self._room = asyncio.Event()

    def handlers(self, prefix: str = "/v1") -> Mapping[str, Handler]:
        """Return the handlers by path."""
        return {
            f"{prefix}/filter": self.filter,
            f"{prefix}/prioritize": self.prioritize,
            f"{prefix}/preempt": self.preempt,
            f"{prefix}/bind": self.bind,
        }

    def filter(self, body: bytes) -> PostAnswer | Awaitable[PostAnswer]:
        """Answer filter: at once, or later where more Bindings are under way than the API server keeps up with.
        Otherwise kube-scheduler would send more and more, until its own bind calls time out."""
        return self._filter(body) if self._binding < MOST_BINDING else self._filter_later(body)

    async def _filter_later(self, body: bytes) -> PostAnswer:
        # Cleared here, so that only a Binding that ends from now on lets the filter go on.
        self._room.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT):
                await self._room.wait()
        return self._filter(body)

    def _filter(self, body: bytes) -> PostAnswer:
        """Answer filter. An error fails the scheduling attempt, with a text that the pod's event shows."""
        began = self._clock()
        try:
            answer = self._placing.filter(read_filter(body), self._ahead)
            result = "refused" if not answer.nodes else "one" if len(answer.nodes) == 1 else "some"
        except PodsliceError as error:
            answer, result = FilterAnswer(error=f"podslice: {error}"), "error"
        found = PostAnswer(write_filter(answer))
        self._watch("filter", self._clock() - began, result)
        return found

    def prioritize(self, body: bytes) -> PostAnswer:
        """Answer prioritize. A malformed request gets status 400: kube-scheduler then goes on without scores."""
        began = self._clock()
        try:
            scores = self._placing.prioritize(read_filter(body))
        except PodsliceError:
            self._watch("prioritize", self._clock() - began, "error")
            return PostAnswer(b"", 400)
        found = PostAnswer(write_scores(scores.items()))
        self._watch("prioritize", self._clock() - began, "some")
        return found

    def preempt(self, body: bytes) -> PostAnswer:
        """Answer preempt, without candidates on which the pod would not fit even once the victims are gone."""
        began = self._clock()
        try:
            request = read_preempt(body)
            victims = self._placing.filter_victims(request)
        except PodsliceError:
            self._watch("preempt", self._clock() - began, "error")
            return PostAnswer(b"", 400)
        self._watch("preempt", self._clock() - began, "some" if victims else "refused")
        return PostAnswer(write_victims(victims))

    async def bind(self, body: bytes) -> PostAnswer:
        """Write a Binding, and answer success only where the API server did."""
        began = self._clock()
        try:
            request = read_bind(body)
            self._binding += 1
            try:
                error = await self._bind(request)
            finally:
                self._binding -= 1
                self._room.set()
        except MessageError as problem:
            error = f"podslice: {problem}"
        self._watch("bind", self._clock() - began, "refused" if error else "bound")
        return PostAnswer(write_bind(error))

    async def _bind(self, request: BindRequest) -> str:
        """Write the Binding and return the error, empty for a pod that is bound. Where the outcome is unknown the pod
        stays held until the watch shows it, or the scheduler asks again."""
        found = self._placing.bind(request)
        if found.error:
            return found.error
        # Whatever becomes of the Binding, a nomination has served its purpose.
        self._placing.events.settled(request.uid)
        planned = self._placing.plan(request)
        plan = {PLAN_ANNOTATION: plan_text(found.plan, planned)} if found.plan is not None else {}
        if planned is not None:
            # Sent before the Binding is written, because the node may see the pod before the API server has answered
            # here.
            self._send(request.node, planned)
        binding = Binding(request.namespace, request.name, request.uid, request.node, plan)
        try:
            await self._api.bind(binding)
        except AnswerError as error:
            # After a conflict the pod may be bound, by an earlier call of ours too: its hold waits for the watch.
            if error.code != _CONFLICT:
                self._placing.model.unbind(request.uid)
                self._send(request.node, PlanWithdrawn(request.uid))
            return str(error)
        except (ApiError, asyncio.CancelledError) as error:
            return f"podslice: {error or 'stopped'}"
        return ""


def plan_text(plan: PodHolding, sent: PlanGiven | None) -> str:
    """Return the annotation with the plan of a pod and the journal's event that it is based on, for people and audits.
    No decision reads it, because authors of pods can write annotations too."""
    nodes = {node for blocks in plan.blocks for block in blocks for node in block.numa_affinity or ()}
    text: dict[str, str | int] = {"cpus": _short(format_bits(plan.cpus))}
    if nodes:
        text["memoryNodes"] = _short(format_bits(bits_of(nodes)))
    if sent is not None:
        text |= {"epoch": sent.epoch, "sequence": sent.sequence, "digest": sent.allocation}
    return msgspec.json.encode(text).decode()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SET else f"{text[: _LONGEST_SET - 1]}…"
