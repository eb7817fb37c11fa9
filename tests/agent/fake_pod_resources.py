"""A kubelet's PodResources API over a real socket: pods with their containers, devices and claims, and no CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from podslice.service.proto import podresources_pb2 as api


def claim(name: str) -> api.DynamicResource:
    return api.DynamicResource(
        claim_name=name,
        claim_namespace="default",
        claim_resources=[
            api.ClaimResource(
                cdi_devices=[api.CDIDevice(name="vendor.com/nic=eth1")],
                driver_name="nic.vendor.com",
                pool_name="node",
                device_name="eth1",
                share_id="5f",
            )
        ],
    )


def pod(name: str, *containers: api.ContainerResources) -> api.PodResources:
    return api.PodResources(name=name, namespace="default", containers=containers)


def device(resource: str, name: str) -> api.ContainerDevices:
    return api.ContainerDevices(resource_name=resource, device_ids=[name])


class FakePodResources:
    """Serves `pods` and `allocatable`. Without `serves_get` as kubelets before 1.36."""

    def __init__(self, path: Path, *pods: api.PodResources, serves_get: bool = True) -> None:
        self.path = path
        self.pods = list(pods)
        self.allocatable = api.AllocatableResourcesResponse(devices=[device("vendor.com/nic", "eth1")])
        self.serves_get = serves_get
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self._server: Any = None

    async def start(self) -> None:
        """As a kubelet does: whatever was at its place is replaced."""
        self.path.parent.mkdir(mode=0o750, exist_ok=True)
        self.path.unlink(missing_ok=True)
        methods: dict[str, Any] = {
            "List": (self._list, api.ListPodResourcesRequest),
            "GetAllocatableResources": (self._allocatable, api.AllocatableResourcesRequest),
        }
        if self.serves_get:
            methods["Get"] = self._get, api.GetPodResourcesRequest
        self._server = grpc.aio.server()
        for service, names in (("v1.PodResourcesLister", methods), ("v1alpha1.PodResourcesLister", ("List",))):
            handlers = {
                name: grpc.unary_unary_rpc_method_handler(
                    methods[name][0], methods[name][1].FromString, lambda answer: answer.SerializeToString()
                )
                for name in names
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self._server.add_insecure_port(f"unix://{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        """The process is gone."""
        await self._server.stop(None)

    async def _fail(self, context: Any) -> None:
        if self.failure is not None:
            await context.abort(*self.failure)

    async def _list(self, request: Any, context: Any) -> api.ListPodResourcesResponse:
        await self._fail(context)
        return api.ListPodResourcesResponse(pod_resources=self.pods)

    async def _get(self, request: api.GetPodResourcesRequest, context: Any) -> api.GetPodResourcesResponse:
        await self._fail(context)
        for pod in self.pods:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=pod)
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort raises")

    async def _allocatable(self, request: Any, context: Any) -> api.AllocatableResourcesResponse:
        await self._fail(context)
        return self.allocatable
