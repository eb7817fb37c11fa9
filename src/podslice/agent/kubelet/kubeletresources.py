"""Client of the kubelet's own PodResources API, and the merge of its answers with the agent's.

The kubelet beside the agent runs with its CPU and Memory Managers off: it reports containers, the devices of its
plugins and claims. The agent adds CPUs. Together they are what a client expects from one kubelet.
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


class Ours(NamedTuple):
    """The resources beside CPUs that the agent decides about: memory, and those of its device plugins."""

    memory: bool = False
    devices: frozenset[str] = frozenset()


def merge_pods(
    theirs: Iterable[api.PodResources], ours: Iterable[api.PodResources], own: Ours
) -> list[api.PodResources]:
    """Return the kubelet's pods in its order, merged with ours, then pods that only we know, which hold resources."""
    known: dict[tuple[str, str], list[api.PodResources]] = {}
    for pod in ours:
        known.setdefault((pod.namespace, pod.name), []).append(pod)
    pods = []
    for pod in theirs:
        # By name: the API has no UIDs. Pods of one name are matched in order, the newest first.
        same = known.get((pod.namespace, pod.name))
        pods.append(merge_pod(pod, same.pop(), own) if same else pod)
    return pods + [pod for rest in known.values() for pod in rest]


def merge_pod(theirs: api.PodResources, ours: api.PodResources, own: Ours) -> api.PodResources:
    """Return the kubelet's pod with our resources. Containers and fields that we do not know stay as they are."""
    mine = {container.name: container for container in ours.containers}
    pod = api.PodResources()
    pod.CopyFrom(theirs)
    for container in pod.containers:
        # What is left in `mine` afterwards is known to us alone; it holds resources and must be listed.
        if (known := mine.pop(container.name, None)) is not None:
            _merge_into(container, known, own)
    pod.containers.extend(mine.values())
    return pod


def _merge_into(theirs: Resources, ours: Resources, own: Ours) -> None:
    # The kubelet's own CPU Manager is off, so whatever it lists here is no assignment.
    del theirs.cpu_ids[:]
    theirs.cpu_ids.extend(ours.cpu_ids)
    if own.memory:
        del theirs.memory[:]
        theirs.memory.extend(ours.memory)
    _merge_devices(theirs.devices, ours.devices, own)


def merge_allocatable(
    theirs: api.AllocatableResourcesResponse, ours: api.AllocatableResourcesResponse, own: Ours
) -> api.AllocatableResourcesResponse:
    """Return the allocatable resources: our CPUs, and of the rest ours where we decide about it, else the kubelet's."""
    answer = api.AllocatableResourcesResponse()
    answer.CopyFrom(theirs)
    _merge_into(answer, ours, own)
    return answer


def _merge_devices(theirs: Any, ours: Iterable[api.ContainerDevices], own: Ours) -> None:
    """Replace the devices of our resources. A plugin registers either with us or with the kubelet."""
    kept = [device for device in theirs if device.resource_name not in own.devices]
    kept = [*kept, *ours]
    del theirs[:]
    theirs.extend(kept)
