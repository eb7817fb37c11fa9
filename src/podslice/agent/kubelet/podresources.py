"""The kubelet's PodResources API over gRPC, on a socket of our own (memory-device 2.16): v1, and the one method of
v1alpha1, whose messages are v1's with fewer fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import grpc

from podslice.agent.dra.cdi import device_id
from podslice.agent.kubelet.mergedresources import Ours, merge_allocatable, merge_pod, merge_pods
from podslice.agent.owner import Owner
from podslice.agent.process.exclusive import SocketFile
from podslice.agent.records import ContainerRecord
from podslice.agent.status.local import owner_only
from podslice.api.pod.eligibility import AdmissionPod
from podslice.dra.names import DRIVER
from podslice.dra.prepared import PreparedClaim
from podslice.machine.devices import Device
from podslice.node.cpu.state import OWNING
from podslice.node.view import NodeView
from podslice.service.kubeletresources import OLD_SERVICE, SERVICE, KubeletResources, UpstreamError
from podslice.service.pacing import RateLimit
from podslice.service.proto import podresources_pb2 as api
from podslice.service.unixgrpc import create_local_server
from podslice.values.cpuset import iter_bits

T = TypeVar("T")


class PodResources:
    """Serves List, Get and GetAllocatableResources from the owner's state.

    `counts`: metrics by short name. `devices`: returns those that plugins list, by resource.
    `kubelet`: its answers are the base, into which ours are merged.
    """

    def __init__(
        self,
        owner: Owner,
        counts: dict[str, int],
        *,
        devices: Callable[[], Mapping[str, tuple[Device, ...]]] = dict,
        limit: RateLimit | None = None,
        kubelet: KubeletResources | None = None,
        trouble: Callable[[str, str], None] | None = None,
    ) -> None:
        self._owner = owner
        self._devices = devices
        self._counts = counts
        self._limit = limit or RateLimit()
        self._kubelet = kubelet
        self._trouble = trouble
        self._server: Any = None
        self._file: SocketFile | None = None

    async def start(self, path: Path) -> None:
        """Serve on a socket, mode 0600. Raises `OSError`."""
        self._file = SocketFile(path)
        self._file.clear()
        self._server = create_local_server()
        handlers: dict[str, tuple[Any, Any]] = {
            "List": (self._list, api.ListPodResourcesRequest),
            "Get": (self._get, api.GetPodResourcesRequest),
            "GetAllocatableResources": (self._allocatable, api.AllocatableResourcesRequest),
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                handler,
                request_deserializer=kind.FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name, (handler, kind) in handlers.items()
        }
        old = grpc.unary_unary_rpc_method_handler(
            self._list_old,
            request_deserializer=api.ListPodResourcesRequest.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, methods),
                grpc.method_handlers_generic_handler(OLD_SERVICE, {"List": old}),
            )
        )
        # gRPC creates the socket; with a umask it is private from its first moment.
        with owner_only():
            self._server.add_insecure_port(f"unix://{path}")
        await self._server.start()
        self._file.bound()

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.stop(0.2)
            if self._file is not None:
                self._file.remove()

    async def _enter(self, context: Any, *counts: str) -> None:
        if not self._limit.take():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        for name in counts:
            self._counts[name] += 1

    async def _list(self, request: api.ListPodResourcesRequest, context: Any) -> api.ListPodResourcesResponse:
        await self._enter(context, "requests_total", "requests_list")
        theirs = None if self._kubelet is None else await self._ask(self._kubelet.list(), context, "errors_list")
        ours = [self._pod(uid) for uid in self._owner.pods]
        if theirs is not None:
            ours = merge_pods(theirs.pod_resources, ours, self._own())
        return api.ListPodResourcesResponse(pod_resources=ours)

    async def _ask(self, answer: Awaitable[T], context: Any, count: str | None = None) -> T:
        """Wait for the kubelet's answer; pass its error on to our client."""
        try:
            return await answer
        except UpstreamError as error:
            if count is not None:
                self._counts[count] += 1
            if error.code is grpc.StatusCode.UNAVAILABLE and self._trouble is not None:
                self._trouble("podResources", error.details)
            await context.abort(error.code, error.details)
            raise AssertionError("abort raises") from None

    def _own(self) -> Ours:
        node = self._owner.node
        return Ours(memory=node is not None and node.view.binds_memory, devices=frozenset(self._devices()))

    async def _list_old(self, request: api.ListPodResourcesRequest, context: Any) -> api.ListPodResourcesResponse:
        """Answer v1alpha1 List: all pods with their app containers, and of these only the devices."""
        await self._enter(context, "requests_total/v1alpha1")
        pods = []
        for uid in self._owner.pods:
            full = self._pod(uid)
            # v1alpha1 lists app containers only (memory-device 2.16).
            sidecars = self._sidecars(uid)
            containers = [
                api.ContainerResources(
                    name=container.name,
                    devices=[
                        api.ContainerDevices(resource_name=device.resource_name, device_ids=device.device_ids)
                        for device in container.devices
                    ],
                )
                for container in full.containers
                if container.name not in sidecars
            ]
            pods.append(api.PodResources(name=full.name, namespace=full.namespace, containers=containers))
        if self._kubelet is not None:
            theirs = await self._ask(self._kubelet.list_old(), context)
            pods = merge_pods(theirs.pod_resources, pods, self._own()._replace(memory=False))
        return api.ListPodResourcesResponse(pod_resources=pods)

    def _sidecars(self, uid: str) -> set[str]:
        node = self._owner.node
        active = None if node is None else node.view.pods.get(uid)
        return set() if active is None else {one.name for one in active.spec.spec.init_containers}

    async def _get(self, request: api.GetPodResourcesRequest, context: Any) -> api.GetPodResourcesResponse:
        await self._enter(context, "requests_total", "requests_get")
        asked = request.pod_namespace, request.pod_name
        theirs = None
        if self._kubelet is not None:
            theirs = await self._ask(_or_none(self._kubelet, *asked), context, "errors_get")
        ours = [uid for uid, pod in self._owner.pods.items() if (pod.identity.namespace, pod.identity.name) == asked]
        # Of two pods of one name the later one counts: the earlier is being deleted.
        if theirs is not None and ours:
            return api.GetPodResourcesResponse(pod_resources=merge_pod(theirs, self._pod(ours[-1]), self._own()))
        if theirs is not None or ours:
            return api.GetPodResourcesResponse(pod_resources=theirs or self._pod(ours[-1]))
        self._counts["errors_get"] += 1
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort raises")

    async def _allocatable(
        self, request: api.AllocatableResourcesRequest, context: Any
    ) -> api.AllocatableResourcesResponse:
        await self._enter(context, "requests_total", "requests_get_allocatable")
        theirs = None
        if self._kubelet is not None:
            theirs = await self._ask(self._kubelet.allocatable(), context, "errors_get_allocatable")
        ours = self._allocatable_here()
        return ours if theirs is None else merge_allocatable(theirs, ours, self._own())

    def _allocatable_here(self) -> api.AllocatableResourcesResponse:
        node = self._owner.node
        if node is None:
            return api.AllocatableResourcesResponse()
        return api.AllocatableResourcesResponse(
            cpu_ids=iter_bits(node.view.allocatable_cpus),
            memory=list(allocatable_memory(node.view)),
            devices=list(allocatable_devices(self._devices())),
        )

    def _put_claims(self, record: ContainerRecord, listed: api.ContainerResources) -> None:
        """Add a container's claims to its resources, and list the CPUs of the claims as its own."""
        book = self._owner.claims
        pinning = None if book is None else book.pinning(record.claims)
        if book is None or pinning is None:
            return
        if pinning.cpus:
            # A container with CPUs of claims runs on these alone.
            del listed.cpu_ids[:]
            listed.cpu_ids.extend(iter_bits(pinning.cpus))
        named: dict[str, list[int]] = {}
        for one in record.claims:
            named.setdefault(one.claim, []).append(one.index)
        for name, places in named.items():
            claim = book.claim_of(name)
            if claim is not None:
                resources = [_claim_resource(claim, place) for place in places]
                listed.dynamic_resources.add(
                    claim_name=claim.name, claim_namespace=claim.namespace, claim_resources=resources
                )

    def _pod(self, uid: str) -> api.PodResources:
        record = self._owner.pods[uid]
        containers = []
        known: set[str] = set()
        node = self._owner.node
        for unit in sorted(record.units):
            active = None if node is None else node.view.pods.get(unit)
            if node is not None and active is not None:
                containers += list(container_resources(node.view, active))
                known |= {container.name for container in active.containers}
        for container in self._owner.containers.values():
            # Containers without a place in an admitted specification are listed too, without resources of their own.
            if container.pod_uid == uid and container.name not in known:
                known.add(container.name)
                containers.append(api.ContainerResources(name=container.name))
            if container.pod_uid == uid and container.claims:
                self._put_claims(container, next(one for one in containers if one.name == container.name))
        return api.PodResources(name=record.identity.name, namespace=record.identity.namespace, containers=containers)


def _claim_resource(claim: PreparedClaim, index: int) -> api.ClaimResource:
    device = claim.devices[index]
    return api.ClaimResource(
        cdi_devices=[api.CDIDevice(name=device_id(claim.uid, index))],
        driver_name=DRIVER,
        pool_name=device.pool,
        device_name=device.device,
        share_id=device.share_id,
    )


async def _or_none(kubelet: KubeletResources, namespace: str, name: str) -> api.PodResources | None:
    """Return the kubelet's resources of a pod, None where it has no such pod. Raises `UpstreamError`."""
    try:
        return await kubelet.get(namespace, name)
    except UpstreamError as error:
        # Upstream returns a plain error for an unknown pod, which gRPC sends as UNKNOWN (memory-device 2.16).
        if error.code is grpc.StatusCode.UNKNOWN and error.details.endswith("not found"):
            return None
        raise


def container_resources(view: NodeView, pod: AdmissionPod) -> Iterator[api.ContainerResources]:
    """Yield the resources of sidecars in order of the specification, then of app containers; none of init
    containers."""
    for container in pod.containers:
        if container.plain_init:
            continue
        devices = []
        for resource, placed in view.device_ids.get(pod.uid, {}).get(container.name, {}).items():
            devices += [_device(resource, device, numa) for numa, ids in placed.items() for device in ids]
        # v1.36.2 lists the pod CPUs for each container that only shares them (values/quirks.py).
        owns = view.isolation(pod, container) in OWNING or view.quirks.pod_pool_is_listed
        yield api.ContainerResources(
            name=container.name,
            cpu_ids=iter_bits(view.assignment(pod.uid, container.name) or 0) if owns else (),
            memory=[
                _memory(block.type, block.size, block.numa_affinity or ())
                for block in view.blocks_of(pod.uid, container.name)
            ],
            devices=devices,
        )


def allocatable_memory(view: NodeView) -> Iterator[api.ContainerMemory]:
    """Yield the memory that the Memory Manager may give away, by NUMA node and type; none with policy None."""
    if view.binds_memory:
        for numa, ledger in sorted(view.memory.items()):
            for name, table in sorted((ledger.memory_map or {}).items()):
                if table.allocatable:
                    yield _memory(name, table.allocatable, (numa,))


def allocatable_devices(devices: Mapping[str, tuple[Device, ...]]) -> Iterator[api.ContainerDevices]:
    """Yield the healthy devices, once per NUMA node. One with an empty topology is left out, as upstream does."""
    for resource, listed in sorted(devices.items()):
        for device in listed:
            if device.healthy:
                # -1 stands for a device that reports no topology; it is listed once, without a node.
                nodes = (-1,) if device.numa is None else device.numa
                yield from (_device(resource, device.id, node) for node in nodes)


def _device(resource: str, device: str, numa: int) -> api.ContainerDevices:
    message = api.ContainerDevices(resource_name=resource, device_ids=[device])
    if numa >= 0:
        message.topology.nodes.add().ID = numa
    return message


def _memory(kind: str, size: int, nodes: tuple[int, ...]) -> api.ContainerMemory:
    message = api.ContainerMemory(memory_type=kind, size=size)
    for node in nodes:
        message.topology.nodes.add().ID = node
    return message
