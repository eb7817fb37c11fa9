"""What a runtime says about a pod, checked: everything in it comes from whoever may create pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.errors import InputError
from podslice.k8s.podlist import HASH_ANNOTATION, NAME_FORM, UID_FORM
from podslice.wire.proto import nri_pb2 as nri

RESOURCES_ANNOTATION = "podslice.io/resources"
SOURCE_ANNOTATION = "kubernetes.io/config.source"
LARGEST_ANNOTATION = 16 << 10
"""Bytes of an annotation we read; the API server allows 256 KiB for all together."""
_KEPT = (RESOURCES_ANNOTATION, HASH_ANNOTATION, SOURCE_ANNOTATION)
_LOCAL = ("file", "http")


class Identity(NamedTuple):
    """A pod as its sandbox names it. `uid` is what the kubelet calls it, for a static pod the hash of its file. Of its
    annotations only ours are kept, and no more of each than shows that it is too long. `sandbox_cgroup` is where the
    sandbox itself runs, empty where the runtime does not say."""

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str]
    cgroup_parent: str = ""
    sandbox_cgroup: str = ""

    @property
    def static(self) -> bool:
        """True for a pod of the kubelet's own files. The kubelet says itself, over anything written in a manifest,
        where it has a pod from, and the hash of the file is the UID; so nobody else can say it of theirs."""
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
    return Identity(pod.uid, pod.namespace, pod.name, kept, pod.linux.cgroup_parent, pod.linux.cgroups_path)


def check_container(container: nri.Container) -> None:
    """Raises `InputError`: the id becomes a file name, the name a key of the state."""
    for field, value in (("id", container.id), ("name", container.name)):
        if not NAME_FORM.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"container.{field}")
