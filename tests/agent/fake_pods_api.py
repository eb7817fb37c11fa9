"""A kubelet's local Pods API over a real socket, as v1.36.2 has it: a watch that begins with all pods, news with every
status, one pod by its UID, and a limit on calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from podslice.service.proto import podsapi_pb2 as api

EVENT = api.WatchPodsEvent


def message(uid: str, cpu: str = "1", name: str = "", phase: str = "Running") -> api.Pod:
    """A pod as the kubelet has it."""
    pod = api.Pod(metadata=api.Metadata(name=name or uid, namespace="default", uid=uid), status=api.Status(phase=phase))
    container = pod.spec.containers.add(name="app")
    for resource, amount in (("cpu", cpu), ("memory", "1Gi")):
        container.resources.limits[resource].string = amount
    return pod


class FakePodsApi:
    """Serves `pods`. What it knows but has not told is in `silent`; `limited` calls are refused first, as too many."""

    def __init__(self, path: Path, service: str = "v1alpha1.Pods", *pods: api.Pod) -> None:
        self.path = path
        self.service = service
        self.pods = {pod.metadata.uid: pod for pod in pods}
        self.silent: dict[str, bytes] = {}
        self.limited = 0
        self.watches = 0
        self.questions: list[str] = []
        self.synced = True
        self._watchers: list[asyncio.Queue[EVENT | None]] = []
        self._server: Any = None

    async def start(self) -> None:
        """As a kubelet does: whatever was at its place is replaced."""
        self.path.parent.mkdir(mode=0o750, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        methods = {
            "WatchPods": grpc.unary_stream_rpc_method_handler(
                self._watch, api.WatchPodsRequest.FromString, EVENT.SerializeToString
            ),
            "GetPod": grpc.unary_unary_rpc_method_handler(
                self._get, api.GetPodRequest.FromString, api.GetPodResponse.SerializeToString
            ),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self.service, methods),))
        self._server.add_insecure_port(f"unix://{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)
        self._watchers.clear()

    def tell(self, kind: int, pod: api.Pod | bytes) -> None:
        data = pod if isinstance(pod, bytes) else pod.SerializeToString()
        for watcher in self._watchers:
            watcher.put_nowait(EVENT(type=kind, pod=data))  # type: ignore[arg-type]

    def add(self, pod: api.Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.tell(EVENT.ADDED, pod)

    def drop_watchers(self) -> None:
        """Close the watches of clients that read too slowly."""
        for watcher in self._watchers:
            watcher.put_nowait(None)

    async def _watch(self, request: api.WatchPodsRequest, context: Any) -> AsyncIterator[EVENT]:
        self.watches += 1
        news: asyncio.Queue[EVENT | None] = asyncio.Queue()
        self._watchers.append(news)
        try:
            for pod in list(self.pods.values()):
                yield EVENT(type=EVENT.ADDED, pod=pod.SerializeToString())
            if self.synced:
                yield EVENT(type=EVENT.INITIAL_SYNC_COMPLETE)
            while (event := await news.get()) is not None:
                yield event
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "watch client channel closed")
        finally:
            if news in self._watchers:
                self._watchers.remove(news)

    async def _get(self, request: api.GetPodRequest, context: Any) -> api.GetPodResponse:
        self.questions.append(request.podUID)
        if self.limited:
            self.limited -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        known = self.pods.get(request.podUID)
        data = known.SerializeToString() if known is not None else self.silent.get(request.podUID)
        if data is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"pod with UID {request.podUID} not found")
        return api.GetPodResponse(pod=data)
