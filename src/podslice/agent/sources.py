"""Where pod specifications come from, behind one small interface.

A source is asked for a pod the moment its sandbox is created. What it answers is what the pod is admitted with; the
agent keeps that specification beside its state, so a source that is away at a restart costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from podslice.agent.derived import pod_from_annotation, with_annotation
from podslice.agent.identity import Identity
from podslice.core.config.annotations import policy_annotations
from podslice.core.errors import InputError
from podslice.core.pod.spec import Pod
from podslice.k8s.manifest import load_pods

LARGEST_MANIFEST = 1 << 20
MOST_MANIFESTS = 1000
LONGEST_NEWS = 1.0
"""Seconds for news about a pod that runs."""


class PodSource(Protocol):
    """One place that knows pods. `changed` is set whenever it learns about one; `ready` once it has a full list;
    `cause` says why it knows nothing new, empty while all is well."""

    name: str
    ready: bool
    cause: str
    changed: asyncio.Event

    def find(self, identity: Identity) -> Pod | None:
        """The specification of a pod, None if unknown. Raises `InputError` when there is one that cannot be read."""

    def expects(self, identity: Identity) -> bool:
        """True when this source will know the pod: unknown is then not known yet, and nothing is guessed."""

    def ask(self, identity: Identity) -> None:
        """Somebody waits for this pod: look now."""

    def unknown(self) -> str:
        """Why a pod it expects is not known, for people."""


def no_pods_from(source: str, cause: str, *, ready: bool) -> str:
    """Why a source can say nothing of any pod now; empty for one that can."""
    if cause:
        return f"no pods from {source}: {cause}"
    return "" if ready else f"no pods from {source}: it has not answered yet"


class ManifestSource:
    """Static pods of a directory, read when the kubelet says that a pod is one. It appends the node's name to the
    pod's."""

    def __init__(self, directory: Path, node_name: str) -> None:
        self.name = "manifests"
        self.ready = True
        self.cause = ""
        self.changed = asyncio.Event()
        self._directory = directory
        self._suffix = f"-{node_name.lower()}"

    def find(self, identity: Identity) -> Pod | None:
        if not identity.static or not identity.name.endswith(self._suffix):
            return None
        name = identity.name.removesuffix(self._suffix)
        for pod in self._pods():
            if pod.metadata.name == name and (pod.metadata.namespace or "default") == identity.namespace:
                return pod
        return None

    def expects(self, identity: Identity) -> bool:
        """Other pods come from elsewhere."""
        return False

    def ask(self, identity: Identity) -> None:
        """Read whenever asked."""

    def unknown(self) -> str:
        return "no manifest of this node holds it"

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
    """All sources, asked in order. With `annotation` the pod's own annotation completes what the others say and stands
    for a pod nobody else can know."""

    def __init__(self, sources: Iterable[PodSource] = (), *, wait: float = 0.0, annotation: bool = True) -> None:
        self.sources = tuple(sources)
        self._wait = wait
        self._annotation = annotation

    @property
    def ready(self) -> bool:
        return all(source.ready for source in self.sources)

    def find(self, identity: Identity) -> Pod | None:
        """The specification under the UID and name the runtime uses, None if nobody knows the pod. Raises
        `InputError`, also for an annotation that wants more than the pod's containers ask for."""
        for source in self.sources:
            pod = source.find(identity)
            if pod is not None:
                pod = _renamed(pod, identity)
                return with_annotation(pod, identity) if self._annotation else pod
        if not self._annotation or self.must_know(identity):
            return None
        guessed = pod_from_annotation(identity)
        return None if guessed is None else _renamed(guessed, identity)

    def must_know(self, identity: Identity) -> bool:
        """True when a pod nobody knows is a pod we were not told about yet, rather than one to be guessed."""
        return any(source.expects(identity) for source in self.sources)

    def unknown(self, identity: Identity) -> str:
        """Why a pod that must be known is not."""
        return "; ".join(source.unknown() for source in self.sources if source.expects(identity))

    async def wait_for(self, identity: Identity) -> Pod | None:
        """As `find`, giving sources time to tell us about a new pod, or that they never will. Raises `InputError`."""
        pod = self.find(identity)
        if pod is not None or not self.must_know(identity):
            return pod
        try:
            async with asyncio.timeout(self._wait):
                while pod is None and self.must_know(identity):
                    for source in self.sources:
                        source.ask(identity)
                    await self._news()
                    pod = self.find(identity)
        except TimeoutError:
            return None
        return pod

    async def wait_for_news(self, identity: Identity, holds: Callable[[], bool]) -> None:
        """Give sources the time they are given to tell us about a pod, until this holds."""
        if not self.sources:
            return
        try:
            async with asyncio.timeout(min(self._wait, LONGEST_NEWS)):
                while not holds():
                    for source in self.sources:
                        source.ask(identity)
                    await self._news()
        except TimeoutError:
            return

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
    annotations = policy_annotations(pod.metadata.annotations or {}) | policy_annotations(identity.annotations)
    metadata = msgspec.structs.replace(
        pod.metadata,
        uid=identity.uid,
        name=identity.name,
        namespace=identity.namespace,
        annotations=annotations or None,
    )
    return msgspec.structs.replace(pod, metadata=metadata)
