"""This node's pods from the kubelet's local Pods API (KEP-4188; gate PodsAPI).

It needs neither API server nor token nor network, and has what the kubelet will run: static pods under the UIDs of
their sandboxes, and specifications in the version the kubelet acts on. A watch keeps them; a sandbox whose pod has not
come by then is looked up by its UID, which the kubelet knows before it calls the runtime. So no sandbox waits.

The kubelet sends a pod when its status changes, in an order of its own, and repeats itself: the last event counts. Its
list after a start may be empty, so a pod that is not on it is only forgotten, and looked up when it matters.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol

from podslice.agent.kubelet.knownpods import KnownPods
from podslice.agent.kubelet.sources import explain_no_pods
from podslice.agent.runtime.protobuf_pods import ENDED, known_from, pod_message
from podslice.api.pod.spec import Pod
from podslice.service.answers import ApiError
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff, wait_at_most
from podslice.service.podlist import KnownPod
from podslice.service.proto import podsapi_pb2 as api
from podslice.values.errors import InputError

RELIST_SECONDS = 300.0
"""Seconds until the watch is begun anew, with a full list: the kubelet drops events silently when it has too many."""
SYNC_SECONDS = 10.0
_AGAIN_SECONDS = 0.1
_MOST_DENIED = 4096


class NotServedError(ApiError):
    """Raised when no Pods API is served: the gate is off, or the kubelet is down."""


class PodsApi(Protocol):
    """The calls of the kubelet's Pods API. They may raise `ApiError`, `NotServedError` among them."""

    def there(self) -> bool:
        """Whether the API may be served; False where it certainly is not."""

    def watch(self) -> AsyncIterator[api.WatchPodsEvent]:
        """Yield every pod, INITIAL_SYNC_COMPLETE, and from then on the changes."""

    async def pod(self, uid: str) -> bytes | None:
        """Return the pod as bytes, None if the kubelet has none with this UID."""


class PodsApiSource:
    """The pods of the kubelet, a `PodSource`. `run` follows the watch and `answer` looks single pods up, for ever.

    `required` False: used while it is served. A pod that it does not know, or cannot look up, is left to the next
    source.
    """

    def __init__(
        self,
        kubelet: PodsApi,
        *,
        required: bool,
        trouble: Callable[[str, str], None],
        wait: Callable[[asyncio.Event, float], Awaitable[None]] = wait_at_most,
    ) -> None:
        self.name = "podsAPI"
        self.ready = False
        self.changed = asyncio.Event()
        self.cause = ""
        self.pods = KnownPods()
        self._kubelet = kubelet
        self._required = required
        self._trouble = trouble
        self._wait = wait
        self._served = False
        self._wanted: set[str] = set()
        self._fresh: list[Identity] = []
        self._asked = asyncio.Event()
        self._look = asyncio.Event()
        self._denied: dict[str, None] = {}

    def find(self, identity: Identity) -> Pod | None:
        """Find a pod. Raises `InputError` for one that cannot be read."""
        return self.pods.find(identity)

    def expects(self, identity: Identity) -> bool:
        """Whether the kubelet may have the pod: always, unless it has answered that it does not."""
        if identity.uid in self._denied:
            return False
        # Static pods are not waited for while a required API is not served: the cure may be one of them.
        # Where the API is optional and no socket exists, nothing is waited for.
        if self._required:
            return not identity.static or (self.ready and not self.cause)
        return self._kubelet.there()

    def ask(self, identity: Identity) -> None:
        """Look the pod up, once at a time."""
        if identity.uid not in self._wanted:
            self._wanted.add(identity.uid)
            self._fresh.append(identity)
            self._asked.set()

    def explain_unknown(self) -> str:
        """Return a message why a pod that is expected is not known."""
        nothing = explain_no_pods("the kubelet's Pods API", self.cause, ready=self.ready or not self._required)
        return nothing or "the kubelet's Pods API has not reported this pod yet"

    async def run(self, back_off: BackOff | None = None) -> None:
        """Watch again and again: at once for a fresh list, with growing waits while that fails."""
        back_off = back_off or BackOff(0.2, 30.0)
        while True:
            self._look.clear()
            # A watch that lasted its time is begun anew at once; only a failure waits.
            try:
                await self._follow(back_off)
                continue
            except NotServedError as error:
                self._not_served(str(error))
            except ApiError as error:
                self._fail(str(error))
            except Exception as error:
                self._fail(f"{type(error).__name__}: {str(error)[:300]}")
            await self._wait(self._look, back_off.next())

    async def _follow(self, back_off: BackOff) -> None:
        """Follow one watch for `RELIST_SECONDS`. Raises `ApiError`."""
        listed: set[str] | None = set()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(SYNC_SECONDS) as limit, contextlib.aclosing(self._events()) as events:
                async for event in events:
                    if event.type == event.INITIAL_SYNC_COMPLETE and listed is not None:
                        self._complete(listed)
                        listed = None
                        back_off.reset()
                        # The same timeout first bounds the initial list and then the whole watch.
                        limit.reschedule(begun + RELIST_SECONDS)
                    else:
                        self._take(event, listed)
                    # A list of many pods arrives in one piece; calls of the runtime are answered in between.
                    await asyncio.sleep(0)
        except TimeoutError:
            if listed is None:
                return
            raise ApiError(f"the list of pods was not complete after {SYNC_SECONDS:.0f} s") from None
        raise ApiError("the kubelet ended the watch")

    async def _events(self) -> AsyncGenerator[api.WatchPodsEvent, None]:
        async for event in self._kubelet.watch():
            yield event

    def _complete(self, listed: set[str]) -> None:
        """Forget the pods that are not on the complete list."""
        # Nothing is freed by this: what a pod holds ends with its sandbox.
        for uid in [pod.uid for pod in self.pods if pod.uid not in listed]:
            self.pods.drop(uid)
        self._denied.clear()
        self._served = self.ready = True
        self.cause = ""
        self.changed.set()

    def _take(self, event: api.WatchPodsEvent, listed: set[str] | None) -> None:
        """Take one event. A pod that cannot be read is skipped: it is looked up when it is needed."""
        if event.type not in (event.ADDED, event.MODIFIED, event.DELETED):
            return
        try:
            message = pod_message(event.pod)
            if event.type == event.DELETED or message.status.phase in ENDED:
                self.pods.drop(message.metadata.uid)
                return
            pod = known_from(message)
        except ApiError as error:
            self._trouble("podsAPIPod", str(error))
            return
        if listed is not None:
            listed.add(pod.uid)
        self._put(pod)

    def _put(self, pod: KnownPod) -> None:
        self._denied.pop(pod.uid, None)
        self.pods.put(pod)
        if pod.problem is not None:
            self._trouble("podsAPIPod", str(pod.problem))
        self.changed.set()

    def _not_served(self, why: str) -> None:
        if self._required or self._served:
            self._trouble("podsAPI", why)
        self._served = False
        self.cause = why if self._required else ""
        self.ready = self.ready or not self._required

    def _fail(self, cause: str) -> None:
        self.cause = cause
        self.ready = self.ready or not self._required
        self._trouble("podsAPI", cause)

    async def answer(self) -> None:
        """Look up the pods that sandboxes wait for, each in a task of its own, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._asked.wait()
                self._asked.clear()
                while self._fresh:
                    group.create_task(self._look_up(self._fresh.pop()))

    async def _look_up(self, identity: Identity) -> None:
        try:
            self._take_answer(identity, await self._kubelet.pod(identity.uid))
        except NotServedError as error:
            self._not_served(str(error))
            await self._go_without(identity)
        except Exception as error:
            self._fail(str(error) if isinstance(error, ApiError) else f"{type(error).__name__}: {str(error)[:300]}")
            await self._go_without(identity)
        finally:
            self._wanted.discard(identity.uid)
            self.changed.set()

    def _take_answer(self, identity: Identity, data: bytes | None) -> None:
        """Take the answer to a look-up. A pod that cannot be read is kept as one with a problem."""
        # An answer proves that the API is served by now, so the watch need not wait for its back-off.
        if not self._served:
            self._look.set()
        if data is None:
            self._deny(identity)
            return
        try:
            pod = known_from(pod_message(data))
            if pod.uid != identity.uid:
                raise ApiError(f"asked for the pod {identity.uid}, the kubelet sent {pod.uid}")
        except ApiError as error:
            pod = KnownPod(identity.uid, identity.namespace, identity.name, problem=InputError(str(error)))
        self._put(pod)

    async def _go_without(self, identity: Identity) -> None:
        """Leave the pod to the next source, or let it be looked up once more in a moment."""
        if self._required:
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            self._deny(identity)

    def _deny(self, identity: Identity) -> None:
        # A dict keeps the order, so the oldest denial is dropped: its pod has long been given up.
        self._denied[identity.uid] = None
        if len(self._denied) > _MOST_DENIED:
            del self._denied[next(iter(self._denied))]
