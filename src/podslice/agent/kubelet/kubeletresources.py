"""The kubelet's own PodResources API, and its answers with what the agent knows better put in.

The kubelet beside the agent runs with its CPU and Memory Managers off: of containers it knows names, the devices of its
plugins and claims. The agent knows CPUs. Together they are what a client expects from one kubelet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc

from podslice.service.proto import podresources_pb2 as api
from podslice.service.unixgrpc import check_listener, open_channel

SERVICE = "v1.PodResourcesLister"
OLD_SERVICE = "v1alpha1.PodResourcesLister"
CALL_SECONDS = 5.0
Resources = TypeVar("Resources", api.ContainerResources, api.AllocatableResourcesResponse)


class UpstreamError(Exception):
    """The kubelet did not answer, or with an error: what a client of ours is told."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class KubeletResources:
    """Asks the kubelet at `path`, on a connection for each call. Every call may raise `UpstreamError`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def list(self) -> api.ListPodResourcesResponse:
        answer: api.ListPodResourcesResponse = await self._call(
            SERVICE, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse
        )
        return answer

    async def list_old(self) -> api.ListPodResourcesResponse:
        answer: api.ListPodResourcesResponse = await self._call(
            OLD_SERVICE, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse
        )
        return answer

    async def allocatable(self) -> api.AllocatableResourcesResponse:
        answer: api.AllocatableResourcesResponse = await self._call(
            SERVICE, "GetAllocatableResources", api.AllocatableResourcesRequest(), api.AllocatableResourcesResponse
        )
        return answer

    async def get(self, namespace: str, name: str) -> api.PodResources:
        """Kubelets before 1.36 may not serve `Get`; the list has the pod as well."""
        request = api.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        try:
            answer: api.GetPodResourcesResponse = await self._call(SERVICE, "Get", request, api.GetPodResourcesResponse)
            return answer.pod_resources
        except UpstreamError as error:
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
                raise self._away(str(error.details())[:300]) from None
            raise UpstreamError(error.code(), str(error.details())[:1000]) from None
        except TimeoutError:
            raise self._away(f"no answer within {CALL_SECONDS:.0f} s") from None
        except OSError as error:
            raise self._away((error.strerror or str(error)).lower()) from None

    def _away(self, why: str) -> UpstreamError:
        """Half an answer would read like a whole one: devices in use would look free."""
        return UpstreamError(grpc.StatusCode.UNAVAILABLE, f"the kubelet's PodResources API at {self.path}: {why}")


class Ours(NamedTuple):
    """What beside CPUs the agent decides on this node: memory, and the resources of its device plugins."""

    memory: bool = False
    devices: frozenset[str] = frozenset()


def merged_pods(
    theirs: Iterable[api.PodResources], ours: Iterable[api.PodResources], own: Ours
) -> list[api.PodResources]:
    """The kubelet's pods in its order with what is ours, then pods that only we know: they hold something here."""
    known: dict[tuple[str, str], list[api.PodResources]] = {}
    for pod in ours:
        known.setdefault((pod.namespace, pod.name), []).append(pod)
    pods = []
    for pod in theirs:
        same = known.get((pod.namespace, pod.name))
        pods.append(merged_pod(pod, same.pop(), own) if same else pod)
    return pods + [pod for rest in known.values() for pod in rest]


def merged_pod(theirs: api.PodResources, ours: api.PodResources, own: Ours) -> api.PodResources:
    """Containers of the kubelet that we do not know stay as they are, and so do fields newer than we are."""
    mine = {container.name: container for container in ours.containers}
    pod = api.PodResources()
    pod.CopyFrom(theirs)
    for container in pod.containers:
        if (known := mine.pop(container.name, None)) is not None:
            _put_in(container, known, own)
    pod.containers.extend(mine.values())
    return pod


def _put_in(theirs: Resources, ours: Resources, own: Ours) -> None:
    del theirs.cpu_ids[:]
    theirs.cpu_ids.extend(ours.cpu_ids)
    if own.memory:
        del theirs.memory[:]
        theirs.memory.extend(ours.memory)
    _put_devices(theirs.devices, ours.devices, own)


def merged_allocatable(
    theirs: api.AllocatableResourcesResponse, ours: api.AllocatableResourcesResponse, own: Ours
) -> api.AllocatableResourcesResponse:
    """What the node may give away: CPUs as we count them, the rest as far as it is ours."""
    answer = api.AllocatableResourcesResponse()
    answer.CopyFrom(theirs)
    _put_in(answer, ours, own)
    return answer


def _put_devices(theirs: Any, ours: Iterable[api.ContainerDevices], own: Ours) -> None:
    """A plugin registers with one of both; a resource that ours serve is ours."""
    kept = [device for device in theirs if device.resource_name not in own.devices]
    kept = [*kept, *ours]
    del theirs[:]
    theirs.extend(kept)
