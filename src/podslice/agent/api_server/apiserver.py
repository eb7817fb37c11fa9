"""This node's pods from the API server: list, watch, and relist-and-diff whenever the watch cannot go on.

`ApiServer` is the interface, `apiclient.HTTPApiServer` its implementation over HTTP.
`ApiSource` keeps the pods and is a `PodSource`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from podslice.agent.kubelet.knownpods import KnownPods
from podslice.agent.kubelet.sources import explain_no_pods
from podslice.api.pod.spec import Pod
from podslice.replica.nodestate import NodeStateStatus
from podslice.service.identity import Identity
from podslice.service.listeners import Listeners
from podslice.service.listwatch import ListWatch
from podslice.service.pacing import BackOff
from podslice.service.podlist import Change, KnownPod

_SAID_OF_A_LIST = 3


class Listing(NamedTuple):
    """The pods of a node, a line about each item that cannot be read, and the version to watch from."""

    pods: list[KnownPod]
    problems: list[str]
    version: str


class ApiServer(Protocol):
    """The calls that the agent makes to an API server. Every call may raise `ApiError`."""

    async def list_pods(self, node: str) -> Listing:
        """List the node's pods that have not ended."""

    def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        """Yield the changes since a version, until the server ends the stream. Raises `GoneError`."""

    async def find_pod(self, namespace: str, name: str) -> KnownPod | None:
        """Return the pod of that name as it is now, also one that has ended. None where there is none."""

    async def create_event(self, event: dict[str, Any]) -> None:
        """Post a v1 Event."""

    async def patch_pod_status(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        """Patch a pod's status by a strategic merge. Raises `AnswerError` where the server refuses it."""

    async def node_uid(self, node: str) -> str:
        """Return the UID of the Node."""

    async def kubelet_version(self, node: str) -> str:
        """Return the version of the Node's kubelet, empty where it states none."""

    async def read_topology(self, node: str) -> dict[str, Any] | None:
        """Return the NodeResourceTopology of the node, None where there is none."""

    async def apply_topology(self, node: str, topology: dict[str, Any]) -> None:
        """Write the node's NodeResourceTopology. Fields that we wrote earlier and that are not in it are removed."""

    async def apply_lease(self, lease: dict[str, Any]) -> None:
        """Create the Lease, or write it over the one with its name."""

    async def write_node_state(self, node: str, status: NodeStateStatus) -> None:
        """Write the status of the node's NodeState, which is created if there is none."""


class ApiSource:
    """The node's pods of the API server, a `PodSource`. `run` keeps them current for ever, whatever is answered.

    `trouble`: gets failures. `cause`: the last failure, empty after a success.
    """

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
        """A pod has come, changed or gone; `agent.wiring` subscribes listeners."""
        self._api = api
        self._node = node
        self._trouble = trouble
        self._sleep = sleep

    def find(self, identity: Identity) -> Pod | None:
        """Find a pod by UID. A static pod is found by its mirror, which has another UID and names the kubelet's."""
        return self.pods.find(identity)

    def expects(self, identity: Identity) -> bool:
        """Whether the API server will know the pod. Not for static pods, which may run before it does."""
        return not identity.static

    def ask(self, identity: Identity) -> None:
        """Do nothing: the watch brings every change."""

    def explain_unknown(self) -> str:
        """Return a message why a pod that is expected is not known."""
        nothing = explain_no_pods("the API server", self.cause, ready=self.ready)
        return nothing or "the API server has not reported this pod yet"

    async def run(self, back_off: BackOff | None = None) -> None:
        """List, watch, and list again after every failure; waits grow until a watch brings an event."""
        watch = partial(self._api.watch_pods, self._node)
        await ListWatch(self._list, watch, self._take, failed=self._fail, sleep=self._sleep).run(back_off)

    def _fail(self, cause: str) -> None:
        self.cause = cause
        self._trouble("apiServer", cause)

    async def _list(self) -> str:
        """Replace the known pods by a full list."""
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
