"""What a runtime says about a pod, checked: everything in it comes from whoever may create pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from podslice.config.annotations import RESOURCES, policy_annotations
from podslice.service.podlist import HASH_ANNOTATION, NAME_FORM, UID_FORM
from podslice.values.errors import InputError

if TYPE_CHECKING:  # who only names pods need not have the messages of runtimes
    from podslice.service.proto import nri_pb2 as nri

RESOURCES_ANNOTATION = RESOURCES
SOURCE_ANNOTATION = "kubernetes.io/config.source"
LARGEST_ANNOTATION = 16 << 10
"""Bytes of an annotation we read; the API server allows 256 KiB for all together."""
_KEPT = (RESOURCES_ANNOTATION, HASH_ANNOTATION, SOURCE_ANNOTATION)
_LOCAL = ("file", "http")


class Identity(NamedTuple):
    """A pod as its sandbox names it. `uid` is what the kubelet calls it, for a static pod the hash of its file. Of its
    annotations only ours are kept, and no more of each than shows that it is too long. `sandbox_cgroup` is where the
    sandbox itself runs, empty where the runtime does not say. `quota` and `period` are the limit of the whole pod's
    CPUs, 0 where there is none or the runtime does not say; `overhead` is what its sandbox has beside it."""

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
        """What the pod may use in thousandths of CPUs, None where that is not limited or not known."""
        return self.quota * 1000 // self.period if self.period else None

    @property
    def static(self) -> bool:
        """True for a pod of the kubelet's own files. The kubelet itself says where a pod comes from, and overwrites
        what a manifest says about that. The hash of the file is the UID. So nobody can claim it for another pod."""
        said = self.annotations
        return said.get(SOURCE_ANNOTATION) in _LOCAL and said.get(HASH_ANNOTATION) == self.uid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def identity_of(pod: nri.PodSandbox) -> Identity:
    """Raises `InputError` for names that cannot come from a Kubernetes API."""
    for field, value, form in (
        ("uid", pod.uid, UID_FORM),
        ("namespace", pod.namespace, NAME_FORM),
        ("name", pod.name, NAME_FORM),
    ):
        if not form.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"pod.{field}")
    if not NAME_FORM.match(pod.id):
        raise InputError(f"{pod.id[:80]!r} is not valid", path="pod.id")
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
    """Raises `InputError`: the id becomes a file name, the name a key of the state."""
    for field, value in (("id", container.id), ("name", container.name)):
        if not NAME_FORM.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"container.{field}")
