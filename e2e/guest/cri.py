"""The Container Runtime Interface as the end-to-end test uses it."""

from __future__ import annotations

import json
from typing import Any

import cri_pb2 as pb
import grpc

_NODE = 2
_SERVICE = "/runtime.v1.RuntimeService/"
_SHARED = pb.NamespaceOption(network=_NODE, pid=1, ipc=_NODE)


class Runtime:
    """A container runtime. Pods and containers are plain data: names, labels, annotations, `resources`."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)

    def _call(self, method: str, request: Any, answer: Any = pb.Empty) -> Any:
        send = self._channel.unary_unary(
            _SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            return send(request, timeout=180, wait_for_ready=True)
        except grpc.RpcError as error:
            raise RuntimeError(f"{method}: {error.code().name}: {error.details()}") from None

    def version(self) -> str:
        answer = self._call("Version", pb.VersionRequest(), pb.VersionResponse)
        return f"{answer.runtime_name} {answer.runtime_version}"

    def run_sandbox(self, pod: dict[str, Any]) -> str:
        request = pb.RunPodSandboxRequest(config=_sandbox(pod))
        return str(self._call("RunPodSandbox", request, pb.RunPodSandboxResponse).pod_sandbox_id)

    def stop_sandbox(self, sandbox: str) -> None:
        self._call("StopPodSandbox", pb.PodSandboxRequest(pod_sandbox_id=sandbox))

    def remove_sandbox(self, sandbox: str) -> None:
        self._call("RemovePodSandbox", pb.PodSandboxRequest(pod_sandbox_id=sandbox))

    def create_container(self, sandbox: str, pod: dict[str, Any], container: dict[str, Any]) -> str:
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=container["name"], attempt=container.get("attempt", 0)),
            image=pb.ImageSpec(image="localhost/sleep:1"),
            labels={**_labels(pod), "io.kubernetes.container.name": container["name"]},
            annotations=container.get("annotations", {}),
            log_path=f"{container['name']}.log",
            linux=pb.LinuxContainerConfig(
                resources=pb.LinuxContainerResources(**container.get("resources", {})),
                security_context=pb.LinuxContainerSecurityContext(namespace_options=_SHARED),
            ),
        )
        request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=_sandbox(pod))
        return str(self._call("CreateContainer", request, pb.CreateContainerResponse).container_id)

    def start_container(self, container: str) -> None:
        self._call("StartContainer", pb.ContainerRequest(container_id=container))

    def stop_container(self, container: str) -> None:
        self._call("StopContainer", pb.StopContainerRequest(container_id=container, timeout=5))

    def remove_container(self, container: str) -> None:
        self._call("RemoveContainer", pb.ContainerRequest(container_id=container))

    def update_container(self, container: str, resources: dict[str, Any]) -> None:
        linux = pb.LinuxContainerResources(**resources)
        self._call("UpdateContainerResources", pb.UpdateContainerResourcesRequest(container_id=container, linux=linux))

    def pid(self, container: str) -> int:
        request = pb.ContainerStatusRequest(container_id=container, verbose=True)
        info = self._call("ContainerStatus", request, pb.ContainerStatusResponse).info
        return int(json.loads(info["info"])["pid"])


def _labels(pod: dict[str, Any]) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": pod["name"],
        "io.kubernetes.pod.namespace": pod.get("namespace", "default"),
        "io.kubernetes.pod.uid": pod["uid"],
        **pod.get("labels", {}),
    }


def _sandbox(pod: dict[str, Any]) -> pb.PodSandboxConfig:
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=pod["name"], uid=pod["uid"], namespace=pod.get("namespace", "default")),
        log_directory=f"/tmp/{pod['uid']}",
        labels=_labels(pod),
        annotations=pod.get("annotations", {}),
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=pod["cgroup_parent"],
            security_context=pb.LinuxSandboxSecurityContext(namespace_options=_SHARED),
            resources=pb.LinuxContainerResources(**pod.get("resources", {})),
        ),
    )
