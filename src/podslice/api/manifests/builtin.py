"""Pods of Kubernetes' own kinds: Pod, and the template of every workload."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from podslice.api.manifests.found import FoundPod, name_template
from podslice.api.manifests.objects import ManifestObject, join_path
from podslice.api.pod.field_table import API_VERSIONS
from podslice.api.pod.unknown_fields import find_unknown_fields
from podslice.values.errors import InputError

_TEMPLATES = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}
REMEDY = f"give a Pod, a List, one of {', '.join(_TEMPLATES)}, or an object with a pod template"
_TYPED_GROUPS = ("", "apps", "batch", "extensions")
"""Groups in which a kind that is nearly one with pods is a typing error. In others it is a kind of its own: Volcano
has Jobs, OpenKruise StatefulSets."""
_GROUPS = frozenset(
    """
    apps autoscaling batch extensions policy admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io
    apiserver.config.k8s.io audit.k8s.io authentication.k8s.io authorization.k8s.io certificates.k8s.io config.k8s.io
    coordination.k8s.io discovery.k8s.io events.k8s.io flowcontrol.apiserver.k8s.io imagepolicy.k8s.io
    internal.apiserver.k8s.io kubelet.config.k8s.io kubeadm.k8s.io meta.k8s.io metrics.k8s.io networking.k8s.io
    node.k8s.io
    rbac.authorization.k8s.io resource.k8s.io scheduling.k8s.io storage.k8s.io storagemigration.k8s.io
    """.split()
)


def is_builtin(found: ManifestObject) -> bool:
    """Whether an object is of a group of Kubernetes itself, in which only the kinds of `find_builtin_pod` have pods."""
    return is_builtin_group(found.group)


def is_builtin_group(group: str) -> bool:
    """Whether a group is one of Kubernetes itself; "" is core."""
    return not group or group in _GROUPS


def has_builtin_pod(found: ManifestObject) -> bool:
    """Whether an object is a Pod or a workload of Kubernetes itself, in any version. Without a version it is meant to
    be one."""
    return found.kind in API_VERSIONS and is_builtin(found)


def find_builtin_pod(found: ManifestObject) -> FoundPod:
    """Return the pod of an object for which `has_builtin_pod` holds. Raises `InputError`."""
    _check_version(found)
    unknown = tuple(find_unknown_fields(found.data, found.kind))
    if found.kind == "Pod":
        return FoundPod(found, found.place.path, found.data, unknown)
    data: Any = found.data
    path = ""
    for step in _TEMPLATES[found.kind]:
        path = join_path(path, step)
        data = data.get(step) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise InputError("is missing", path=join_path(found.place.path, path), remedy="a workload needs a pod template")
    return name_template(found, data, path, unknown_fields=unknown, replicas=_count_replicas(found))


_DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
"""Fields of strategic merge patches, which no object has."""


_SELECTING = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
"""Workloads that name their pods with a selector, which is required."""


def is_patch(pod: FoundPod) -> bool:
    """Whether an object is a patch for one, as kustomize and kubectl take it: with their directives, or a workload
    without containers and without the selector that the API server demands."""
    spec, pod_spec = pod.object.data.get("spec"), pod.data.get("spec")
    if pod.object.kind in _SELECTING and isinstance(spec, dict) and "selector" not in spec:
        annotated = "annotations" in (pod.data.get("metadata") or {})
        if "containers" not in pod_spec if isinstance(pod_spec, dict) else pod_spec is None and annotated:
            return True
    return any(mark in field.path for field in pod.unknown_fields for mark in _DIRECTIVES)


def check_kind(found: ManifestObject) -> None:
    """Raise `InputError` for a kind that is nearly one with pods: a typing error, not another kind. Other kinds
    pass."""
    if found.group not in _TYPED_GROUPS:
        return
    kinds = {one.lower(): one for one in API_VERSIONS}
    close = get_close_matches(found.kind.lower(), kinds, 1, 0.87)
    if close:
        version = found.data.get("apiVersion") or "v1"
        problem = f'no kind "{found.kind}" is registered for version "{version}"'
        raise InputError(problem, path=found.place.path, remedy=f"did you mean {kinds[close[0]]}?")


def _check_version(found: ManifestObject) -> None:
    """Raise `InputError`, in the words of API server and kubectl, for another version than the one that exists."""
    version, known = found.data.get("apiVersion"), API_VERSIONS[found.kind]
    if version == known:
        return
    problem = f'no kind "{found.kind}" is registered for version "{version}"' if version else "apiVersion not set"
    raise InputError(problem, path=found.place.path, remedy=f"apiVersion: {known}")


def _count_replicas(found: ManifestObject) -> int:
    """Return how many pods a workload runs at a time; a field without a value counts as absent. Raises `InputError`."""
    is_job = found.kind in ("Job", "CronJob")
    steps = ("spec", "jobTemplate", "spec") if found.kind == "CronJob" else ("spec",)
    spec: Any = found.data
    for step in steps:
        spec = spec.get(step) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return 1
    counts = list(_counts(spec, ("parallelism", "completions") if is_job else ("replicas",), ".".join(steps)))
    # A Job runs at most `parallelism` pods at a time, and never more than it has completions left.
    return min([counts[0] if counts[0] is not None else 1, *(count for count in counts[1:] if count is not None)])


def _counts(spec: dict[str, Any], fields: tuple[str, ...], path: str) -> Iterator[int | None]:
    for field in fields:
        count = spec.get(field)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise InputError(f"{count!r} is not a number of pods", path=f"{path}.{field}")
        yield count
