"""Where pod specifications come from, behind one small interface with a fake.

A source is asked for a pod the moment its sandbox is created. What it answers is what the pod is admitted with; the
agent keeps that specification beside its state, so a source that is away at a restart costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from podslice.agent.derived import pod_from_annotation, with_annotation
from podslice.agent.identity import HASH_ANNOTATION, Identity
from podslice.core.errors import InputError
from podslice.core.pod.spec import Pod
from podslice.k8s.manifest import load_pods

LARGEST_MANIFEST = 1 << 20
MOST_MANIFESTS = 1000


class PodSource(Protocol):
    """One place that knows pods. `changed` is set whenever it learns about one; `ready` once it has a full list."""

    name: str
    ready: bool
    changed: asyncio.Event

    def find(self, identity: Identity) -> Pod | None:
        """The specification of a pod, None if unknown. Raises `InputError` when there is one that cannot be read."""


class FakeSource:
    """A source for tests: pods put into `pods` by UID."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self.name = "fake"
        self.ready = True
        self.changed = asyncio.Event()
        self.pods = {pod.metadata.uid: pod for pod in pods}

    def add(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.changed.set()

    def find(self, identity: Identity) -> Pod | None:
        return self.pods.get(identity.uid)


class ManifestSource:
    """Static pods of a directory, read when asked for. The kubelet appends the node's name to the pod's."""

    def __init__(self, directory: Path, node_name: str) -> None:
        self.name = "manifests"
        self.ready = True
        self.changed = asyncio.Event()
        self._directory = directory
        self._suffix = f"-{node_name.lower()}"

    def find(self, identity: Identity) -> Pod | None:
        if not identity.name.endswith(self._suffix):
            return None
        name = identity.name.removesuffix(self._suffix)
        for pod in self._pods():
            if pod.metadata.name == name and (pod.metadata.namespace or "default") == identity.namespace:
                return pod
        return None

    def _pods(self) -> Iterable[Pod]:
        """Pods of the files a kubelet would read; files that hold none are passed over as it does."""
        files = sorted(path for path in self._directory.glob("*") if not path.name.startswith("."))
        for path in files[:MOST_MANIFESTS]:
            try:
                if path.is_file() and path.stat().st_size <= LARGEST_MANIFEST:
                    yield from (loaded.pod for loaded in load_pods(str(path)))
            except (InputError, OSError):
                continue


class Sources:
    """All sources, asked in order; the annotation is the last resort and completes what the others say, unless
    `annotation` is False."""

    def __init__(self, sources: Iterable[PodSource] = (), *, wait: float = 0.0, annotation: bool = True) -> None:
        self.sources = tuple(sources)
        self._wait = wait
        self._annotation = annotation

    @property
    def ready(self) -> bool:
        return all(source.ready for source in self.sources)

    def find(self, identity: Identity) -> Pod | None:
        """The specification under the UID and name the runtime uses, None if nobody knows the pod. Raises
        `InputError`."""
        for source in self.sources:
            pod = source.find(identity)
            if pod is not None:
                pod = _renamed(pod, identity)
                return with_annotation(pod, identity) if self._annotation else pod
        return pod_from_annotation(identity) if self._annotation else None

    def must_know(self, identity: Identity) -> bool:
        """True when a pod nobody knows is a pod we were not told about yet, rather than one to be guessed."""
        return (
            any(source.name == "apiServer" for source in self.sources) and HASH_ANNOTATION not in identity.annotations
        )

    async def wait_for(self, identity: Identity) -> Pod | None:
        """As `find`, giving the API server time to tell us about a new pod. Raises `InputError`."""
        pod = self.find(identity)
        if pod is not None or not self.must_know(identity):
            return pod
        try:
            async with asyncio.timeout(self._wait):
                while pod is None:
                    await self._news()
                    pod = self.find(identity)
        except TimeoutError:
            return None
        return pod

    async def _news(self) -> None:
        waits = [asyncio.ensure_future(source.changed.wait()) for source in self.sources]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for source in self.sources:
            source.changed.clear()


def _renamed(pod: Pod, identity: Identity) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, uid=identity.uid, name=identity.name, namespace=identity.namespace)
    return msgspec.structs.replace(pod, metadata=metadata)
