"""A container runtime without processes: it answers a kubelet over CRI and keeps the messages.

A container runs until it is stopped, unless its command is `exit CODE`: then it ends at once.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import grpc
import msgspec
from e2e.guest import cri_pb2 as pb

CREATED, RUNNING, EXITED = 0, 1, 2
_READY, _NOT_READY = 0, 1
_IMAGE = "sha256:" + "5" * 64
_CGROUPFS = 1
_KILLED = 137


class Sandbox(msgspec.Struct):
    """A pod as the runtime knows it."""

    id: str
    config: Any
    created: int
    state: int = _READY

    @property
    def uid(self) -> str:
        return str(self.config.metadata.uid)


class Container(msgspec.Struct):
    """A container as the runtime knows it. `resources` are those of its last update, `config` has those of its
    creation."""

    id: str
    sandbox: str
    config: Any
    created: int
    resources: Any
    state: int = CREATED
    started: int = 0
    finished: int = 0
    exit_code: int = 0

    @property
    def name(self) -> str:
        return str(self.config.metadata.name)

    @property
    def uid(self) -> str:
        return str(self.config.labels["io.kubernetes.pod.uid"])


class Update(NamedTuple):
    """An update of a pod's sandbox (without a container) or of an existing container."""

    uid: str
    container: str
    message: Any


class FakeRuntime:
    """RuntimeService and ImageService on a Unix socket. Outlives restarts of the kubelet."""

    def __init__(self, socket: Path) -> None:
        self.endpoint = f"unix://{socket}"
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self.updates: list[Update] = []
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._folder = socket.parent
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_handler("RuntimeService", self._runtime_methods()),))
        self._server.add_generic_rpc_handlers((_handler("ImageService", self._image_methods()),))
        self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def __enter__(self) -> FakeRuntime:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.stop(None).wait()

    def of_pod(self, uid: str) -> list[Container]:
        """Return a pod's containers, ended ones included, oldest first."""
        with self._lock:
            return [container for container in self.containers.values() if container.uid == uid]

    def running(self) -> list[tuple[str, str]]:
        """Return the pod's UID and the name of each running container."""
        with self._lock:
            return [(own.uid, own.name) for own in self.containers.values() if own.state == RUNNING]

    def sandbox_of(self, uid: str) -> Sandbox:
        """Return a pod's newest sandbox."""
        with self._lock:
            return [sandbox for sandbox in self.sandboxes.values() if sandbox.uid == uid][-1]

    def end(self, container: Container, code: int) -> None:
        """End a container as if by itself."""
        with self._lock:
            _end(container, code)

    def _runtime_methods(self) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
        return {
            "Version": (pb.Empty, lambda _: pb.VersionResponse(
                version="0.1.0", runtime_name="memory", runtime_version="1.0.0", runtime_api_version="v1")),
            "Status": (pb.Empty, _status),
            "RuntimeConfig": (pb.Empty, lambda _: pb.RuntimeConfigResponse(
                linux=pb.LinuxRuntimeConfiguration(cgroup_driver=_CGROUPFS))),
            "UpdateRuntimeConfig": (pb.Empty, _nothing),
            "RunPodSandbox": (pb.RunPodSandboxRequest, self._run_sandbox),
            "StopPodSandbox": (pb.PodSandboxRequest, self._stop_sandbox),
            "RemovePodSandbox": (pb.PodSandboxRequest, self._remove_sandbox),
            "PodSandboxStatus": (pb.PodSandboxRequest, self._sandbox_status),
            "ListPodSandbox": (pb.ListPodSandboxRequest, self._list_sandboxes),
            "UpdatePodSandboxResources": (pb.UpdatePodSandboxResourcesRequest, self._update_sandbox),
            "CreateContainer": (pb.CreateContainerRequest, self._create),
            "StartContainer": (pb.ContainerRequest, self._start),
            "StopContainer": (pb.ContainerRequest, self._stop),
            "RemoveContainer": (pb.ContainerRequest, self._remove),
            "ContainerStatus": (pb.ContainerRequest, self._container_status),
            "ListContainers": (pb.ListContainersRequest, self._list_containers),
            "UpdateContainerResources": (pb.UpdateContainerResourcesRequest, self._update),
            "ReopenContainerLog": (pb.Empty, _nothing),
            "ListContainerStats": (pb.Empty, _nothing),
            "ListPodSandboxStats": (pb.Empty, _nothing),
        }  # fmt: skip

    def _image_methods(self) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
        return {
            "ListImages": (pb.Empty, lambda _: pb.ListImagesResponse(images=[_image("localhost/none:1")])),
            "ImageStatus": (pb.ImageRequest, lambda r: pb.ImageStatusResponse(image=_image(r.image.image))),
            "PullImage": (pb.ImageRequest, lambda _: pb.PullImageResponse(image_ref=_IMAGE)),
            "RemoveImage": (pb.Empty, _nothing),
            "ImageFsInfo": (pb.Empty, self._image_fs),
        }

    def _run_sandbox(self, request: Any) -> Any:
        with self._lock:
            sandbox = Sandbox(f"{next(self._numbers):064x}", request.config, time.time_ns())
            self.sandboxes[sandbox.id] = sandbox
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    def _stop_sandbox(self, request: Any) -> Any:
        with self._lock:
            for container in self.containers.values():
                if container.sandbox == request.pod_sandbox_id:
                    _end(container, _KILLED)
            if sandbox := self.sandboxes.get(request.pod_sandbox_id):
                sandbox.state = _NOT_READY
        return pb.Empty()

    def _remove_sandbox(self, request: Any) -> Any:
        with self._lock:
            self.sandboxes.pop(request.pod_sandbox_id, None)
            for container in [own for own in self.containers.values() if own.sandbox == request.pod_sandbox_id]:
                del self.containers[container.id]
        return pb.Empty()

    def _sandbox_status(self, request: Any) -> Any:
        with self._lock:
            sandbox = self.sandboxes[request.pod_sandbox_id]
            config = sandbox.config
            status = pb.PodSandboxStatus(
                id=sandbox.id, metadata=config.metadata, state=sandbox.state, created_at=sandbox.created,
                network=pb.PodSandboxNetworkStatus(ip="10.88.0.1"), labels=config.labels,
                annotations=config.annotations,
            )  # fmt: skip
        return pb.PodSandboxStatusResponse(status=status)

    def _list_sandboxes(self, request: Any) -> Any:
        with self._lock:
            return pb.ListPodSandboxResponse(items=[
                pb.PodSandbox(id=own.id, metadata=own.config.metadata, state=own.state, created_at=own.created,
                              labels=own.config.labels, annotations=own.config.annotations)
                for own in self.sandboxes.values()
                if _matches(request.filter, own.id, own.state, own.config.labels)
            ])  # fmt: skip

    def _create(self, request: Any) -> Any:
        with self._lock:
            container = Container(
                f"{next(self._numbers):064x}", request.pod_sandbox_id, request.config, time.time_ns(),
                copy.deepcopy(request.config.linux.resources),
            )  # fmt: skip
            self.containers[container.id] = container
        return pb.CreateContainerResponse(container_id=container.id)

    def _start(self, request: Any) -> Any:
        with self._lock:
            container = self.containers[request.container_id]
            container.state, container.started = RUNNING, time.time_ns()
            command = list(container.config.command)
            if command[:1] == ["exit"]:
                _end(container, int(command[1]))
        return pb.Empty()

    def _stop(self, request: Any) -> Any:
        with self._lock:
            if container := self.containers.get(request.container_id):
                _end(container, _KILLED)
        return pb.Empty()

    def _remove(self, request: Any) -> Any:
        with self._lock:
            self.containers.pop(request.container_id, None)
        return pb.Empty()

    def _container_status(self, request: Any) -> Any:
        with self._lock:
            own = self.containers[request.container_id]
            config = own.config
            status = pb.ContainerStatus(
                id=own.id, metadata=config.metadata, state=own.state, created_at=own.created, started_at=own.started,
                finished_at=own.finished, exit_code=own.exit_code, image=config.image, image_ref=_IMAGE,
                reason="" if own.state != EXITED else "Completed" if own.exit_code == 0 else "Error",
                labels=config.labels, annotations=config.annotations, log_path=f"{self._folder}/{own.id}.log",
                resources=pb.ContainerResources(linux=own.resources), image_id=_IMAGE,
            )  # fmt: skip
        return pb.ContainerStatusResponse(status=status)

    def _list_containers(self, request: Any) -> Any:
        chosen = request.filter
        with self._lock:
            return pb.ListContainersResponse(containers=[
                pb.Container(id=own.id, pod_sandbox_id=own.sandbox, metadata=own.config.metadata,
                             image=own.config.image, image_ref=_IMAGE, state=own.state, created_at=own.created,
                             labels=own.config.labels, annotations=own.config.annotations, image_id=_IMAGE)
                for own in self.containers.values()
                if _matches(chosen, own.id, own.state, own.config.labels)
                and chosen.pod_sandbox_id in ("", own.sandbox)
            ])  # fmt: skip

    def _update(self, request: Any) -> Any:
        with self._lock:
            container = self.containers[request.container_id]
            self.updates.append(Update(container.uid, container.name, request.linux))
            _merge(container.resources, request.linux)
        return pb.Empty()

    def _update_sandbox(self, request: Any) -> Any:
        with self._lock:
            self.updates.append(Update(self.sandboxes[request.pod_sandbox_id].uid, "", request))
        return pb.Empty()

    def _image_fs(self, _: Any) -> Any:
        usage = pb.FilesystemUsage(
            timestamp=time.time_ns(), fs_id=pb.FilesystemIdentifier(mountpoint=str(self._folder)),
            used_bytes=pb.UInt64Value(value=1), inodes_used=pb.UInt64Value(value=1),
        )  # fmt: skip
        return pb.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])


def _handler(service: str, methods: dict[str, tuple[Any, Callable[[Any], Any]]]) -> Any:
    return grpc.method_handlers_generic_handler(
        f"runtime.v1.{service}",
        {
            name: grpc.unary_unary_rpc_method_handler(
                _adapt(answer), request_deserializer=request.FromString, response_serializer=_serialise
            )
            for name, (request, answer) in methods.items()
        },
    )


def _adapt(answer: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def handle(request: Any, context: Any) -> Any:
        try:
            return answer(request)
        except KeyError as error:
            return context.abort(grpc.StatusCode.NOT_FOUND, f"no such pod or container: {error.args[0]}")

    return handle


def _serialise(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _nothing(_: Any) -> Any:
    return pb.Empty()


def _status(_: Any) -> Any:
    conditions = [pb.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
    return pb.StatusResponse(status=pb.RuntimeStatus(conditions=conditions))


def _image(name: str) -> Any:
    return pb.Image(id=_IMAGE, repo_tags=[name], size=1)


def _end(container: Container, code: int) -> None:
    if container.state != EXITED:
        container.state, container.finished, container.exit_code = EXITED, time.time_ns(), code


def _matches(chosen: Any, own: str, state: int, labels: dict[str, str]) -> bool:
    return (
        chosen.id in ("", own)
        and (not chosen.HasField("state") or chosen.state.state == state)
        and all(labels.get(key) == value for key, value in chosen.label_selector.items())
    )


def _merge(resources: Any, update: Any) -> None:
    """Merge an update into resources; a runtime leaves values alone that the update does not name."""
    resources.MergeFrom(update)
