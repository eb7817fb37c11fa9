"""Client of the kubelet's local Pods API (KEP-4188): gRPC on a Unix socket that root alone may open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from podslice.agent.kubelet.podsapi import NotServedError
from podslice.service.answers import ApiError
from podslice.service.proto import podsapi_pb2 as api
from podslice.service.unixgrpc import check_listener, open_channel

SERVICES = ("v1alpha1.Pods", "v1beta1.Pods", "v1.Pods")
"""Service names under which kubelets may serve it, the one of 1.36 first."""
LOOK_UP_SECONDS = 0.5
"""Most seconds of a look-up, less than the sandbox of a pod may wait."""
_LIMITED_SECONDS = 0.05
"""Seconds until a call that was refused as one too many is repeated: the kubelet takes 100 a second, ten at once."""


class GRPCPodsApi:
    """Opens a connection for each watch and each look-up, so that none outlives the kubelet that it was made to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._service = SERVICES[0]

    def there(self) -> bool:
        """Whether there is a socket, so that the API may be served."""
        return self._path.is_socket()

    async def watch(self) -> AsyncIterator[api.WatchPodsEvent]:
        """Yield the events of a watch. Raises `ApiError`, `NotServedError`."""
        # A kubelet serves one version of the API, and which one can only be found by trying.
        for service in self._services():
            began = False
            try:
                async for event in self._watch(service):
                    began, self._service = True, service
                    yield event
                return
            except grpc.aio.AioRpcError as error:
                # After the first event the name was right, so UNIMPLEMENTED means another failure.
                if began or error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise _to_api_error(error) from None
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
        """Return a pod as bytes, None if the kubelet has none with this UID. Raises `ApiError`, `NotServedError`."""
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
                        raise _to_api_error(error) from None
        raise _not_served()

    def _services(self) -> list[str]:
        return [self._service, *(one for one in SERVICES if one != self._service)]

    def _reach(self) -> None:
        """Check that a kubelet listens. Raises `ApiError`, `NotServedError`."""
        try:
            check_listener(self._path)
        except FileNotFoundError:
            raise NotServedError(f"there is no {self._path}: kubelets make it with the gate PodsAPI") from None
        except ConnectionRefusedError:
            raise NotServedError(
                f"nothing listens on {self._path}: the kubelet is down or its gate PodsAPI off"
            ) from None
        except OSError as error:
            raise ApiError(f"{self._path}: {error.strerror or error}") from None


async def _ask(channel: Any, service: str, uid: str) -> bytes:
    """Call GetPod, again while the kubelet answers that there are too many calls. Raises `grpc.aio.AioRpcError`."""
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
            # Repeated within the caller's timeout only: after a burst of new pods the kubelet takes calls again soon.
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            await asyncio.sleep(_LIMITED_SECONDS)


def _not_served() -> NotServedError:
    return NotServedError("the kubelet answers, but does not serve the Pods API")


def _to_api_error(error: grpc.aio.AioRpcError) -> ApiError:
    return ApiError(f"Pods API: {error.code().name}: {str(error.details())[:300]}")
