"""This node's pods from the API server: list, watch, and relist-and-diff whenever the watch cannot go on.

`ApiServer` is the small interface; `apiclient.HTTPApiServer` talks to a real one.
`ApiSource` keeps the pods and is a `PodSource`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from podslice.agent.kubelet.knownpods import KnownPods
from podslice.agent.kubelet.sources import no_pods_from
from podslice.api.pod.spec import Pod
from podslice.replica.nodestate import NodeStateStatus
from podslice.service.identity import Identity
from podslice.service.listeners import Listeners
from podslice.service.listwatch import ListWatch
from podslice.service.pacing import BackOff
from podslice.service.podlist import Change, KnownPod

_SAID_OF_A_LIST = 3


class Listing(NamedTuple):
    """All pods of a node, a line about each that is none, and the version at which to start watching."""

    pods: list[KnownPod]
    problems: list[str]
    version: str


class ApiServer(Protocol):
    """What the agent asks of an API server. Every call may raise `ApiError`."""

    async def list_pods(self, node: str) -> Listing: ...

    def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        """Changes from a version on, until the server ends the stream. Raises `GoneError`."""

    async def find_pod(self, namespace: str, name: str) -> KnownPod | None:
        """The pod of that name as it is now, also one that has ended. None for one that is not there."""

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post a v1 Event."""

    async def patch_pod_status(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        """A strategic merge patch of a pod's status. Raises `AnswerError` for what the server does not do."""

    async def node_uid(self, node: str) -> str:
        """The UID of the Node."""

    async def read_topology(self, node: str) -> dict[str, Any] | None:
        """The NodeResourceTopology of the node. None for one that is not there."""

    async def apply_topology(self, node: str, topology: dict[str, Any]) -> None:
        """Make the node's NodeResourceTopology this one; what we wrote earlier and is not in it goes."""

    async def apply_lease(self, lease: dict[str, Any]) -> None:
        """Make the Lease of that name in its namespace this one."""

    async def write_node_state(self, node: str, status: NodeStateStatus) -> None:
        """The status of the node's NodeState, which is made if there is none."""


class ApiSource:
    """Pods of one node as the API server has them. `run` keeps them current for ever, whatever is answered;
    `trouble` hears of failures. `cause` is the last failure while the API server is of no use, empty otherwise."""

    def __init__(
        self,
        api: ApiServer,
        node: str,
        *,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = "apiServer"
        self.ready = False
        self.changed = asyncio.Event()
        self.relists = 0
        self.cause = ""
        self.pods = KnownPods()
        self.pods_changed = Listeners[[]]()
        """A pod has come, changed or gone; `agent.wiring` says what hears it."""
        self._api = api
        self._node = node
        self._trouble = trouble
        self._sleep = sleep

    def find(self, identity: Identity) -> Pod | None:
        """By UID; a static pod's mirror has another UID and names the kubelet's."""
        return self.pods.find(identity)

    def expects(self, identity: Identity) -> bool:
        """Static pods may run before the API server does."""
        return not identity.static

    def ask(self, identity: Identity) -> None:
        """News come by themselves."""

    def unknown(self) -> str:
        nothing = no_pods_from("the API server", self.cause, ready=self.ready)
        return nothing or "the API server has not told about this pod yet"

    async def run(self, back_off: BackOff | None = None) -> None:
        """List, watch, and list again after every failure, more and more slowly until a watch tells something."""
        watch = partial(self._api.watch_pods, self._node)
        await ListWatch(self._list, watch, self._take, failed=self._failed, sleep=self._sleep).run(back_off)

    def _failed(self, cause: str) -> None:
        self.cause = cause
        self._trouble("apiServer", cause)

    async def _list(self) -> str:
        """Replace what we know by a full list."""
        listing = await self._api.list_pods(self._node)
        self.pods.replace(listing.pods)
        said = [*listing.problems, *(str(pod.problem) for pod in listing.pods if pod.problem is not None)]
        for problem in said[:_SAID_OF_A_LIST]:
            self._trouble("apiPod", problem)
        if len(said) > _SAID_OF_A_LIST:
            self._trouble("apiPod", f"{len(said) - _SAID_OF_A_LIST} more pods cannot be read")
        self.relists += 1
        self.ready = True
        self.cause = ""
        self.changed.set()
        self.pods_changed()
        return listing.version

    def _take(self, change: Change) -> None:
        if change.pod is None:
            return
        if change.kind == "DELETED":
            self.pods.drop(change.pod.uid)
            self.pods_changed()
            return
        self.pods.put(change.pod)
        if change.pod.problem is not None:
            self._trouble("apiPod", str(change.pod.problem))
        self.changed.set()
        self.pods_changed()
