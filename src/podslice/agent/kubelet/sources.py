"""Sources of pod specifications, behind one small interface.

The agent looks a pod up when its sandbox is created, and admits it with the specification that it finds. It keeps that
specification beside its state, so a source that is away at a restart costs nothing.

Where no source can know a pod, the agent guesses it from the runtime's message: the annotation `podslice.io/resources`,
or the requests behind a container's cgroup values. The annotation is the JSON of `spec.resources`; `containers` and
`initContainers` in it, objects of name to resources, say which containers own a part. Without them all containers share
what the pod gets. A pod without annotation counts container by container: a container of a Guaranteed pod owns its CPUs
if its limit is a whole number of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from podslice.api.manifests.manifest import load_pods
from podslice.api.pod.demand import aggregate, container_limits, container_requests
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.annotations import policy_annotations
from podslice.node.effects.cpu_weight import milli_cpu_to_shares
from podslice.service.identity import LARGEST_ANNOTATION, RESOURCES_ANNOTATION, Identity
from podslice.service.proto import nri_pb2 as nri
from podslice.values.errors import InputError
from podslice.values.quantity import ZERO, Quantity

LARGEST_MANIFEST = 1 << 20
MOST_MANIFESTS = 1000
UPDATE_SECONDS = 1.0
"""Most seconds to wait for a new version of a running pod."""


class PodSource(Protocol):
    """A source of pods. `changed`: set whenever it learns about a pod. `ready`: it has a full list. `cause`: why it
    gets nothing new, empty while all is well."""

    name: str
    ready: bool
    cause: str
    changed: asyncio.Event

    def find(self, identity: Identity) -> Pod | None:
        """Return the specification of a pod, None if unknown. Raises `InputError` for one that cannot be read."""

    def expects(self, identity: Identity) -> bool:
        """Whether this source will learn about the pod, so that it is waited for and not guessed."""

    def ask(self, identity: Identity) -> None:
        """Look for this pod now: its sandbox waits."""

    def explain_unknown(self) -> str:
        """Return a message why a pod that it expects is not known."""


def explain_no_pods(source: str, cause: str, *, ready: bool) -> str:
    """Return a message why a source has no pods at all now; empty for one that has."""
    if cause:
        return f"no pods from {source}: {cause}"
    return "" if ready else f"no pods from {source}: it has not answered yet"


class ManifestSource:
    """Static pods of a directory of manifests, which is read when a static pod is looked up."""

    def __init__(self, directory: Path, node_name: str) -> None:
        self.name = "manifests"
        self.ready = True
        self.cause = ""
        self.changed = asyncio.Event()
        self._directory = directory
        # The kubelet appends the node's name to the names of static pods.
        self._suffix = f"-{node_name.lower()}"

    def find(self, identity: Identity) -> Pod | None:
        """Find a static pod by name and namespace."""
        if not identity.static or not identity.name.endswith(self._suffix):
            return None
        name = identity.name.removesuffix(self._suffix)
        for pod in self._pods():
            if pod.metadata.name == name and (pod.metadata.namespace or "default") == identity.namespace:
                return pod
        return None

    def expects(self, identity: Identity) -> bool:
        """Expect nothing: a pod without manifest comes from another source."""
        return False

    def ask(self, identity: Identity) -> None:
        """Do nothing: the files are read at every look-up."""

    def explain_unknown(self) -> str:
        """Return a message why a static pod is not known."""
        return "no manifest of this node holds it"

    def _pods(self) -> Iterable[Pod]:
        """Yield the pods of the files that a kubelet would read. It skips unreadable files, so this does, too."""
        files = sorted(path for path in self._directory.glob("*") if not path.name.startswith("."))
        for path in files[:MOST_MANIFESTS]:
            try:
                if path.is_file() and path.stat().st_size <= LARGEST_MANIFEST:
                    # A kubelet runs Pods of such files, nothing else.
                    yield from (one.pod for one in load_pods(str(path)) if one.kind == "Pod")
            except (InputError, OSError):
                continue


class Sources:
    """All sources, in order. `wait`: most seconds for a new pod. `annotation`: the pod's own annotation adds pod-level
    resources to a specification, and stands for a pod that no source can know."""

    def __init__(self, sources: Iterable[PodSource] = (), *, wait: float = 0.0, annotation: bool = True) -> None:
        self.sources = tuple(sources)
        self._wait = wait
        self._annotation = annotation

    @property
    def ready(self) -> bool:
        """Whether all sources have a full list."""
        return all(source.ready for source in self.sources)

    def find(self, identity: Identity) -> Pod | None:
        """Return the specification under the UID and name that the runtime uses, None for an unknown pod.

        Raises `InputError`, also for an annotation that requests more than the pod's containers do.
        """
        for source in self.sources:
            pod = source.find(identity)
            if pod is not None:
                # A static pod has another UID and name in its manifest than in the runtime.
                pod = _rename(pod, identity)
                return with_annotation(pod, identity) if self._annotation else pod
        if not self._annotation or self.must_know(identity):
            return None
        guessed = pod_from_annotation(identity)
        return None if guessed is None else _rename(guessed, identity)

    def must_know(self, identity: Identity) -> bool:
        """Whether an unknown pod is one that a source will still learn about, and not one to be guessed."""
        return any(source.expects(identity) for source in self.sources)

    def explain_unknown(self, identity: Identity) -> str:
        """Return a message why a pod that must be known is not."""
        return "; ".join(source.explain_unknown() for source in self.sources if source.expects(identity))

    async def wait_for(self, identity: Identity) -> Pod | None:
        """As `find`, but wait until a source knows the pod or none expects it any more. Raises `InputError`."""
        pod = self.find(identity)
        if pod is not None or not self.must_know(identity):
            return pod
        try:
            async with asyncio.timeout(self._wait):
                while pod is None and self.must_know(identity):
                    for source in self.sources:
                        source.ask(identity)
                    await self._wait_for_change()
                    pod = self.find(identity)
        except TimeoutError:
            return None
        return pod

    async def wait_until(self, identity: Identity, holds: Callable[[], bool]) -> None:
        """Wait until `holds` is true, as long as sources may take for a new version of a pod."""
        if not self.sources:
            return
        try:
            async with asyncio.timeout(min(self._wait, UPDATE_SECONDS)):
                while not holds():
                    for source in self.sources:
                        source.ask(identity)
                    await self._wait_for_change()
        except TimeoutError:
            return

    async def _wait_for_change(self) -> None:
        waits = [asyncio.ensure_future(source.changed.wait()) for source in self.sources]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        # Cleared after the wait, and every caller looks again before it waits anew: no change is missed.
        for source in self.sources:
            source.changed.clear()


def _rename(pod: Pod, identity: Identity) -> Pod:
    # A static pod's manifest and the runtime may both have annotations; the runtime's are those of the running pod.
    annotations = policy_annotations(pod.metadata.annotations or {}) | policy_annotations(identity.annotations)
    metadata = msgspec.structs.replace(
        pod.metadata,
        uid=identity.uid,
        name=identity.name,
        namespace=identity.namespace,
        annotations=annotations or None,
    )
    return msgspec.structs.replace(pod, metadata=metadata)


# Pods out of the runtime's messages

ANY_CONTAINER = "any"
"""Name of the container that stands for all containers that an annotation does not name."""
MOST_CONTAINERS = 100


def read_annotation(identity: Identity) -> dict[str, Any] | None:
    """Return the object in the annotation, None without one. Raises `InputError`."""
    text = identity.annotations.get(RESOURCES_ANNOTATION)
    if text is None:
        return None
    place = f"metadata.annotations[{RESOURCES_ANNOTATION}]"
    # Checked before it is parsed: the annotation comes from the author of the pod.
    if len(text.encode()) > LARGEST_ANNOTATION:
        raise InputError(f"is longer than {LARGEST_ANNOTATION} bytes", path=place)
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise InputError("is not JSON", path=place, remedy='write {"requests": {"cpu": "4"}, ...}') from None
    if not isinstance(data, dict):
        raise InputError("is not a JSON object", path=place, remedy='write {"requests": {"cpu": "4"}, ...}')
    unknown = sorted(set(data) - {"requests", "limits", "containers", "initContainers"})
    if unknown:
        raise InputError(f"unknown field {unknown[0]!r}", path=place, remedy="use requests, limits, containers")
    return data


def pod_from_annotation(identity: Identity) -> Pod | None:
    """Return the pod that its annotation describes, None without one. Raises `InputError`."""
    data = read_annotation(identity)
    if data is None:
        return None
    containers = _containers(data.get("containers"), "containers")
    spec = {
        "resources": {name: data[name] for name in ("requests", "limits") if name in data},
        "initContainers": _containers(data.get("initContainers"), "initContainers"),
        "containers": containers or [{"name": ANY_CONTAINER}],
    }
    return _pod(identity, spec)


def with_annotation(pod: Pod, identity: Identity) -> Pod:
    """Return a pod with the annotation's pod-level resources, where it has none of its own: for clusters whose API
    server drops `spec.resources`. Raises `InputError`."""
    if pod.spec.resources is not None:
        return pod
    data = read_annotation(identity)
    if data is None:
        return pod
    spec = {"resources": {name: data[name] for name in ("requests", "limits") if name in data}, "containers": []}
    resources = _pod(identity, spec).spec.resources
    assert resources is not None
    # Scheduler and quotas counted the containers, so the annotation must not exceed what these request.
    counted = aggregate(pod, lambda container: container_limits(container) | container_requests(container))
    for name, amount in ((resources.limits or {}) | (resources.requests or {})).items():
        known = counted.get(name, ZERO)
        if amount > known:
            raise InputError(
                f"wants {_short(amount)} where the pod's containers request {_short(known)}",
                path=f"metadata.annotations[{RESOURCES_ANNOTATION}].requests[{name[:80]}]",
                remedy="let the containers request it, or use spec.resources, so that scheduler and quotas count it",
            )
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=resources))


def _short(amount: Quantity) -> str:
    return str(amount)[:40]


def _containers(value: Any, field: str) -> list[dict[str, Any]]:
    place = f"metadata.annotations[{RESOURCES_ANNOTATION}].{field}"
    if value is None:
        return []
    if not isinstance(value, dict) or len(value) > MOST_CONTAINERS:
        raise InputError(
            "is not an object of at most 100 names", path=place, remedy='{"app": {"limits": {"cpu": "2"}}}'
        )
    containers = []
    for name, resources in value.items():
        if not isinstance(resources, dict):
            raise InputError("is not an object", path=f"{place}[{name[:80]}]")
        # An init container that restarts is a sidecar, and keeps its CPUs.
        restart = resources.pop("restartPolicy", None)
        containers.append({"name": name, "resources": resources, "restartPolicy": restart})
    return containers


def _pod(identity: Identity, spec: dict[str, Any]) -> Pod:
    metadata = {"name": identity.name, "namespace": identity.namespace, "uid": identity.uid}
    try:
        return pod_from_dict({"metadata": metadata, "spec": spec})
    except InputError as error:
        raise error.at(source=f"metadata.annotations[{RESOURCES_ANNOTATION}]") from None


def qos_of_parent(cgroup_parent: str) -> str:
    """Return the QoS class by the cgroup that a kubelet puts the pod into; empty where no kubelet made the parent."""
    # A Guaranteed pod's cgroup is directly below kubepods; the other classes have a level of their own.
    if "besteffort" in cgroup_parent:
        return "BestEffort"
    if "burstable" in cgroup_parent:
        return "Burstable"
    return "Guaranteed" if "kubepods" in cgroup_parent else ""


def unit_uid(uid: str, container: str) -> str:
    """Return the key under which a container of an unknown pod is admitted. No Kubernetes UID contains a slash."""
    return f"{uid}/{container}"


def pod_from_container(identity: Identity, container: nri.Container) -> Pod | None:
    """Return a pod of just this container if it may own CPUs, None if it shares them."""
    cpu, memory = container.linux.resources.cpu, container.linux.resources.memory
    quota, period = cpu.quota.value, cpu.period.value
    if qos_of_parent(identity.cgroup_parent) != "Guaranteed" or quota <= 0 or period <= 0 or memory.limit.value <= 0:
        return None
    # Limit and shares give the CPU request; the memory limit is the memory request in a Guaranteed pod only.
    milli = quota * 1000 // period
    # Shares come from the request: where they differ from the limit's, the pod is not Guaranteed after all.
    if cpu.shares.value != milli_cpu_to_shares(milli):
        return None
    amounts = {"cpu": f"{milli}m", "memory": str(memory.limit.value)}
    for limit in container.linux.resources.hugepage_limits:
        # The runtime names sizes as the kernel does, 2MB; the resource is hugepages-2Mi.
        if limit.limit and limit.page_size.endswith("B"):
            amounts[f"hugepages-{limit.page_size[:-1]}i"] = str(limit.limit)
    one = {"name": container.name, "resources": {"requests": amounts, "limits": amounts}}
    owner = identity._replace(uid=unit_uid(identity.uid, container.name))
    return _pod(owner, {"containers": [one]})
