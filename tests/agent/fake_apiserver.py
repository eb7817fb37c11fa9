"""An API server that exists only in memory and answers as the agent's interface asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from podslice.agent.api_server.apiserver import Listing
from podslice.replica.nodestate import NodeStateStatus
from podslice.service.answers import ApiError, GoneError
from podslice.service.http.apiconnection import AnswerError
from podslice.service.podlist import Change, KnownPod, decode_change, decode_list


def _uid(data: dict[str, Any]) -> str:
    return str((data.get("metadata") or {}).get("uid") or "")


def _ended(data: dict[str, Any]) -> bool:
    return (data.get("status") or {}).get("phase") in ("Succeeded", "Failed")


class FakeApiServer:
    """An API server in memory. Changes made with `apply` and `delete` reach the watchers; `expire` forgets history
    and cuts the streams, so that watchers get 410; while `down` is set everything fails. Pods that have ended are not
    told of, as the agent asks. Nothing of the kinds in `refused` can be applied. `answers` are codes with which the
    next patches are answered instead. `kubelet` is the version that every Node object states."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.topologies: dict[str, dict[str, Any]] = {}
        self.leases: list[dict[str, Any]] = []
        self.refused: set[str] = set()
        self.node_states: list[tuple[str, NodeStateStatus]] = []
        self.answers: list[int] = []
        self.looks = 0
        self.down = False
        self.kubelet = "v1.36.2"
        self._version = 1
        self._oldest = 0
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._news = asyncio.Condition()

    async def apply(self, data: dict[str, Any]) -> None:
        known = _uid(data) in self.objects
        self.objects[_uid(data)] = data
        await self._record("DELETED" if _ended(data) else "MODIFIED" if known else "ADDED", data)

    async def delete(self, uid: str) -> None:
        await self._record("DELETED", self.objects.pop(uid))

    async def bookmark(self) -> None:
        await self._record("BOOKMARK", {"metadata": {}})

    async def expire(self) -> None:
        async with self._news:
            self._version += 1
            self._history.clear()
            self._oldest = self._version
            self._news.notify_all()

    async def _record(self, kind: str, data: dict[str, Any]) -> None:
        async with self._news:
            self._version += 1
            data.setdefault("metadata", {})["resourceVersion"] = str(self._version)
            self._history.append((self._version, kind, data))
            self._news.notify_all()

    async def list_pods(self, node: str) -> Listing:
        if self.down:
            raise ApiError("connection refused")
        items = [one for one in self.objects.values() if not _ended(one)]
        page = decode_list([msgspec.json.encode({"items": items})], node)
        return Listing(list(page.pods), list(page.problems), str(self._version))

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        position = int(version)
        while True:
            if self.down:
                raise ApiError("connection reset")
            if position < self._oldest:
                raise GoneError
            for number, kind, data in list(self._history):
                if number > position:
                    position = number
                    yield decode_change(msgspec.json.encode({"type": kind, "object": data}), node)
            async with self._news:
                if self._version == position or not any(number > position for number, _, _ in self._history):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await self._news.wait()

    async def find_pod(self, namespace: str, name: str) -> KnownPod | None:
        if self.down:
            raise ApiError("connection refused")
        self.looks += 1
        items = [one for one in self.objects.values()
                 if (one["metadata"]["namespace"], one["metadata"]["name"]) == (namespace, name)]  # fmt: skip
        return next(iter(decode_list([msgspec.json.encode({"items": items})], "").pods), None)

    async def node_uid(self, node: str) -> str:
        if self.down:
            raise ApiError("connection refused")
        return f"uid-of-{node}"

    async def kubelet_version(self, node: str) -> str:
        if self.down:
            raise ApiError("connection refused")
        return self.kubelet

    async def read_topology(self, node: str) -> dict[str, Any] | None:
        return self.topologies.get(node)

    async def apply_topology(self, node: str, topology: dict[str, Any]) -> None:
        self._refuse("topology")
        self.topologies[node] = topology

    async def apply_lease(self, lease: dict[str, Any]) -> None:
        self._refuse("lease")
        self.leases.append(lease)

    def _refuse(self, kind: str) -> None:
        if self.down:
            raise ApiError("connection refused")
        if kind in self.refused:
            raise AnswerError(f"{kind}: forbidden", 403)

    async def write_node_state(self, node: str, status: NodeStateStatus) -> None:
        if self.down:
            raise ApiError("connection refused")
        self.node_states.append((node, status))

    async def patch_pod_status(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        if self.down:
            raise ApiError("connection refused")
        self.patches.append((f"{namespace}/{name}", patch))
        if self.answers:
            code = self.answers.pop(0)
            raise AnswerError(f"answered {code}", code)
        for data in list(self.objects.values()):
            metadata = data["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                if metadata["uid"] != patch["metadata"]["uid"]:
                    raise AnswerError('metadata.uid: Invalid value: "x": field is immutable', 422)
                await self.apply({**data, "status": {**data.get("status", {}), **patch["status"]}})
                return
        raise AnswerError("not found", 404)

    async def create_event(self, event: dict[str, Any]) -> None:
        if self.down:
            raise ApiError("connection refused")
        self.events.append(event)
