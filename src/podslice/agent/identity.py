"""What a runtime says about a pod, checked: everything in it comes from whoever may create pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.errors import InputError
from podslice.wire.proto import nri_pb2 as nri

RESOURCES_ANNOTATION = "podslice.io/resources"
HASH_ANNOTATION = "kubernetes.io/config.hash"
LARGEST_ANNOTATION = 16 << 10
"""Bytes of an annotation we read; the API server allows 256 KiB for all together."""
_KEPT = (RESOURCES_ANNOTATION, HASH_ANNOTATION)
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")


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

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def identity_of(pod: nri.PodSandbox) -> Identity:
    """Raises `InputError` for names that cannot come from a Kubernetes API."""
    for field, value, form in (("uid", pod.uid, _UID), ("namespace", pod.namespace, _NAME), ("name", pod.name, _NAME)):
        if not form.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"pod.{field}")
    if not _NAME.match(pod.id):
        raise InputError(f"{pod.id[:80]!r} is not valid", path="pod.id")
    kept = {name: pod.annotations[name][: LARGEST_ANNOTATION + 1] for name in _KEPT if name in pod.annotations}
    return Identity(pod.uid, pod.namespace, pod.name, kept, pod.linux.cgroup_parent, pod.linux.cgroups_path)


def check_container(container: nri.Container) -> None:
    """Raises `InputError`: the id becomes a file name, the name a key of the state."""
    for field, value in (("id", container.id), ("name", container.name)):
        if not _NAME.match(value):
            raise InputError(f"{value[:80]!r} is not valid", path=f"container.{field}")
