"""Client of the kubelet's own PodResources API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from podslice.service.proto import podresources_pb2 as api
from podslice.service.unixgrpc import check_listener, open_channel
from podslice.values.errors import PodsliceError

SERVICE = "v1.PodResourcesLister"
OLD_SERVICE = "v1alpha1.PodResourcesLister"
CALL_SECONDS = 5.0


class UpstreamError(PodsliceError):
    """Raised when the kubelet did not answer, or with an error; our client gets the same."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class KubeletResources:
    """Calls the kubelet at `path`, on a connection for each call. Every call may raise `UpstreamError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def list(self) -> api.ListPodResourcesResponse:
        """Call List of v1."""
        answer: api.ListPodResourcesResponse = await self._call(
            SERVICE, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse
        )
        return answer

    async def list_old(self) -> api.ListPodResourcesResponse:
        """Call List of v1alpha1."""
        answer: api.ListPodResourcesResponse = await self._call(
            OLD_SERVICE, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse
        )
        return answer

    async def allocatable(self) -> api.AllocatableResourcesResponse:
        """Call GetAllocatableResources."""
        answer: api.AllocatableResourcesResponse = await self._call(
            SERVICE, "GetAllocatableResources", api.AllocatableResourcesRequest(), api.AllocatableResourcesResponse
        )
        return answer

    async def get(self, namespace: str, name: str) -> api.PodResources:
        """Call Get; where it is not served, as by kubelets before 1.36, find the pod in the list."""
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        try:
            answer: api.GetPodResourcesResponse = await self._call(SERVICE, "Get", request, api.GetPodResourcesResponse)
            return answer.pod_resources
        except UpstreamError as error:
            # With its gate off a kubelet answers with a plain error that says "disabled".
            if error.code is not grpc.StatusCode.UNIMPLEMENTED and "disabled" not in error.details:
                raise
        for pod in (await self.list()).pod_resources:
            if (pod.namespace, pod.name) == (namespace, name):
                return pod
        raise UpstreamError(grpc.StatusCode.UNKNOWN, f"pod {name} in namespace {namespace} not found")

    async def _call(self, service: str, method: str, request: Any, kind: Any) -> Any:
        try:
            check_listener(self.path)
            async with asyncio.timeout(CALL_SECONDS), open_channel(self.path) as channel:
                call = channel.unary_unary(
                    f"/{service}/{method}",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=kind.FromString,
                )
                return await call(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise self._unavailable(str(error.details())[:300]) from None
            raise UpstreamError(error.code(), str(error.details())[:1000]) from None
        except TimeoutError:
            raise self._unavailable(f"no answer within {CALL_SECONDS:.0f} s") from None
        except OSError as error:
            raise self._unavailable((error.strerror or str(error)).lower()) from None

    def _unavailable(self, why: str) -> UpstreamError:
        """Return the error of a kubelet that is away."""
        # An answer without the kubelet's half would look complete, and its devices in use would look free.
        return UpstreamError(grpc.StatusCode.UNAVAILABLE, f"the kubelet's PodResources API at {self.path}: {why}")
