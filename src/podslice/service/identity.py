"""The identity of a pod as its runtime reports it, checked: all of it was written by the user who created the pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from podslice.config.annotations import RESOURCES, policy_annotations
from podslice.service.answers import NAME_FORM, UID_FORM
from podslice.service.podlist import HASH_ANNOTATION
from podslice.values.errors import InputError

if TYPE_CHECKING:  # programs without a runtime start faster without its messages
    from podslice.service.proto import nri_pb2 as nri

RESOURCES_ANNOTATION = RESOURCES
SOURCE_ANNOTATION = "kubernetes.io/config.source"
LARGEST_ANNOTATION = 16 << 10
"""Bytes of an annotation that are read; the API server allows 256 KiB for all together."""
_KEPT = (RESOURCES_ANNOTATION, HASH_ANNOTATION, SOURCE_ANNOTATION)
_LOCAL = ("file", "http")


class Identity(NamedTuple):
    """A pod as its sandbox names it.

    `uid`: the kubelet's UID, for a static pod the hash of its file.
    `annotations`: only those that we read, each cut off one byte after the longest that is allowed.
    `sandbox_cgroup`: the cgroup of the sandbox itself, empty where the runtime does not report it.
    `quota`, `period`: CPU limit of the whole pod in microseconds, 0 where there is none or it is not reported.
    `overhead`: CPU quota of the sandbox itself (the RuntimeClass's overhead), in microseconds beside `quota`.
    """

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str]
    cgroup_parent: str = ""
    sandbox_cgroup: str = ""
    quota: int = 0
    period: int = 0
    overhead: int = 0

    @property
    def cpu_limit(self) -> int | None:
        """The pod's CPU limit in millicores, None where it has none or it is not known."""
        return self.quota * 1000 // self.period if self.period else None

    @property
    def static(self) -> bool:
        """Whether this is a static pod, from a file or URL of the kubelet."""
        # The kubelet overwrites the source that a manifest names, and a static pod's UID is the hash of its file. So a
        # user cannot make another pod look static.
        found = self.annotations
        return found.get(SOURCE_ANNOTATION) in _LOCAL and found.get(HASH_ANNOTATION) == self.uid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def identity_of(pod: nri.PodSandbox) -> Identity:
    """Return the identity in a runtime's message. Raises `InputError` for names that no Kubernetes API gives."""
    for field, value, form in (
        ("uid", pod.uid, UID_FORM),
        ("namespace", pod.namespace, NAME_FORM),
        ("name", pod.name, NAME_FORM),
    ):
        if not form.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"pod.{field}")
    if not NAME_FORM.match(pod.id):
        raise InputError(f"{pod.id[:80]!r} is not valid", path="pod.id")
    # One character more than is allowed, so that the reader of the annotation sees that it is too long.
    kept = {name: pod.annotations[name][: LARGEST_ANNOTATION + 1] for name in _KEPT if name in pod.annotations}
    kept |= policy_annotations(pod.annotations)
    cpu, overhead = pod.linux.pod_resources.cpu, pod.linux.pod_overhead.cpu
    limited = cpu.quota.value > 0 and cpu.period.value > 0
    return Identity(
        pod.uid,
        pod.namespace,
        pod.name,
        kept,
        pod.linux.cgroup_parent,
        pod.linux.cgroups_path,
        quota=cpu.quota.value if limited else 0,
        period=cpu.period.value if limited else 0,
        overhead=max(overhead.quota.value, 0),
    )


def check_container(container: nri.Container) -> None:
    """Check id and name of a container: the id becomes a file name, the name a key of the state. Raises
    `InputError`."""
    for field, value in (("id", container.id), ("name", container.name)):
        if not NAME_FORM.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"container.{field}")
