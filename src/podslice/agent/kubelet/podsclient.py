"""A real kubelet's local Pods API (KEP-4188): gRPC on a Unix socket that root alone may open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from podslice.agent.kubelet.podsapi import NotServedError
from podslice.service.podlist import ApiError
from podslice.service.proto import podsapi_pb2 as api
from podslice.service.unixgrpc import check_listener, open_channel

SERVICES = ("v1alpha1.Pods", "v1beta1.Pods", "v1.Pods")
"""Names under which kubelets may serve it, the one of 1.36 first."""
LOOK_UP_SECONDS = 0.5
"""Less than the sandbox of a pod may wait."""
_LIMITED_SECONDS = 0.05
"""The kubelet takes a hundred calls a second, ten at once."""


class GRPCPodsApi:
    """Opens a connection for each watch and each question: none outlives the kubelet it was made to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._service = SERVICES[0]

    def there(self) -> bool:
        """There is a socket, so somebody may serve it."""
        return self._path.is_socket()

    async def watch(self) -> AsyncIterator[api.WatchPodsEvent]:
        """Raises `ApiError`, `NotServedError`."""
        for service in self._services():
            told = False
            try:
                async for event in self._watch(service):
                    told, self._service = True, service
                    yield event
                return
            except grpc.aio.AioRpcError as error:
                if told or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise _translated(error) from None
        raise _not_served()

    async def _watch(self, service: str) -> AsyncIterator[api.WatchPodsEvent]:
        self._reach()
        async with open_channel(self._path) as channel:
            stream = channel.unary_stream(
                f"/{service}/WatchPods",
                request_serializer=api.WatchPodsRequest.SerializeToString,
                response_deserializer=api.WatchPodsEvent.FromString,
            )(api.WatchPodsRequest())
            try:
                async for event in stream:
                    yield event
            finally:
                stream.cancel()

    async def pod(self, uid: str) -> bytes | None:
        """One pod, None if the kubelet has none of that UID. Raises `ApiError`, `NotServedError`."""
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                return await self._pod(uid)
        except TimeoutError:
            raise ApiError(f"{self._path}: no answer within {LOOK_UP_SECONDS} s") from None

    async def _pod(self, uid: str) -> bytes | None:
        self._reach()
        async with open_channel(self._path) as channel:
            for service in self._services():
                try:
                    return await _ask(channel, service, uid)
                except grpc.aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.NOT_FOUND:
                        return None
                    if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                        raise _translated(error) from None
        raise _not_served()

    def _services(self) -> list[str]:
        return [self._service, *(one for one in SERVICES if one != self._service)]

    def _reach(self) -> None:
        """Raises `ApiError`, `NotServedError`."""
        try:
            check_listener(self._path)
        except FileNotFoundError:
            raise NotServedError(f"there is no {self._path}: kubelets make it with the gate PodsAPI") from None
        except ConnectionRefusedError:
            raise NotServedError(
                f"nobody listens on {self._path}: the kubelet is down or its gate PodsAPI off"
            ) from None
        except OSError as error:
            raise ApiError(f"{self._path}: {error.strerror or error}") from None


async def _ask(channel: Any, service: str, uid: str) -> bytes:
    """Again while the kubelet says that it is asked too often. Raises `grpc.aio.AioRpcError`."""
    call = channel.unary_unary(
        f"/{service}/GetPod",
        request_serializer=api.GetPodRequest.SerializeToString,
        response_deserializer=api.GetPodResponse.FromString,
    )
    while True:
        try:
            answer: api.GetPodResponse = await call(api.GetPodRequest(podUID=uid))
            return answer.pod
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            await asyncio.sleep(_LIMITED_SECONDS)


def _not_served() -> NotServedError:
    return NotServedError("the kubelet answers, but does not serve the Pods API")


def _translated(error: grpc.aio.AioRpcError) -> ApiError:
    return ApiError(f"Pods API: {error.code().name}: {str(error.details())[:300]}")
