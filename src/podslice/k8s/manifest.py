"""Pods from real manifests: Pod, List, and the pod template of every workload kind, as YAML or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.core.errors import InputError
from podslice.core.pod.spec import Container, Pod, ResourceList, ResourceRequirements, pod_from_dict
from podslice.k8s.yaml import load_documents

MAX_CONTAINERS = 5000
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
_REMEDY = "give a Pod, a List or one of " + ", ".join(_TEMPLATES)


class LoadedPod(NamedTuple):
    """A pod and where it came from; `path` leads to it inside the document, `data` is the pod as it was written."""

    pod: Pod
    source: str
    document: int
    kind: str
    path: str
    data: Mapping[str, Any]


def read_text(path: str) -> str:
    """Text of a file, or of standard input for `-`. Raises `InputError`."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=path) from None


def load_pods(path: str, *, replicas: bool = False, checked: bool = True) -> list[LoadedPod]:
    """All pods of a file (`-`: standard input), in order; objects of other kinds beside them are passed over.

    Raises a one-line `InputError`, also for a file without any pod.

    `replicas` expands a workload into as many pods as it asks for. Pods get a name and UID where they have none.
    `checked` False also returns pods that the API server would refuse.
    """
    return load_pods_text(read_text(path), "stdin" if path == "-" else path, replicas=replicas, checked=checked)


def load_pods_text(text: str, source: str, *, replicas: bool = False, checked: bool = True) -> list[LoadedPod]:
    """All pods in the text of a file; see `load_pods`."""
    documents = load_documents(text, source)
    pods = list(_pods_of(documents, source, replicas=replicas, checked=checked))
    if not pods:
        kinds = sorted({str(document.get("kind")) for document in documents if isinstance(document, dict)})
        problem = f"holds no pods, only {', '.join(kinds)}" if kinds else "holds no pods"
        raise InputError(problem, source=source, remedy=_REMEDY)
    return unique(pods)


def pods_as_written(documents: list[Any], source: str) -> list[LoadedPod]:
    """The pods among documents that may hold anything, also those the API server would refuse.

    Documents that are no Kubernetes objects are passed over; there may be no pod at all. Raises `InputError` for a pod
    that cannot be decoded.
    """
    objects = [document if _is_object(document) else {"kind": ""} for document in documents]
    return unique(list(_pods_of(objects, source, checked=False)))


def _is_object(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("kind"), str)


def _pods_of(documents: list[Any], source: str, *, replicas: bool = False, checked: bool = True) -> Iterator[LoadedPod]:
    for index, document in enumerate(documents):
        try:
            for kind, path, data, count in _find(document, ""):
                pod = _decode(data, path, checked)
                copies = count if replicas else 1
                for number in range(copies):
                    copy = pod if copies == 1 else _renamed(pod, f"{pod.metadata.name}-{number}", "")
                    yield LoadedPod(copy, source, index, kind, path, data)
        except InputError as error:
            raise error.at(source=source, document=index if len(documents) > 1 else None) from None


def _find(document: Any, path: str) -> Iterator[tuple[str, str, Mapping[str, Any], int]]:
    if not isinstance(document, dict):
        raise InputError(f"expected an object, got {type(document).__name__}", path=path, remedy=_REMEDY)
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise InputError("has no kind", path=path, remedy=_REMEDY)
    if kind == "Pod":
        yield kind, path, document, 1
    elif kind.endswith("List") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            default = {"kind": kind.removesuffix("List")} if kind != "List" else {}
            yield from _find({**default, **item} if isinstance(item, dict) else item, _join(path, f"items[{index}]"))
    elif kind in _TEMPLATES:
        yield _template(document, kind, path)


def _template(document: dict[str, Any], kind: str, path: str) -> tuple[str, str, Mapping[str, Any], int]:
    data: Any = document
    for step in _TEMPLATES[kind]:
        path = _join(path, step)
        data = data.get(step) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise InputError("is missing", path=path, remedy="a workload needs a pod template")
    owner = _object(document.get("metadata"), "metadata")
    metadata = {**_object(data.get("metadata"), _join(path, "metadata"))}
    metadata.setdefault("name", owner.get("name", ""))
    if owner.get("namespace"):
        metadata.setdefault("namespace", owner["namespace"])
    spec = document.get("spec")
    count = spec.get("replicas", spec.get("parallelism", 1)) if isinstance(spec, dict) else 1
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InputError(f"{count!r} is not a number of pods", path="spec.replicas")
    return kind, path, {**data, "metadata": metadata}, count


def _object(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"expected an object, got {type(value).__name__}", path=path)
    return value


def _join(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step


def _decode(data: Mapping[str, Any], path: str, checked: bool) -> Pod:
    spec = data.get("spec")
    if not isinstance(spec, dict):
        raise InputError("is missing", path=_join(path, "spec"), remedy="a pod needs spec.containers")
    for field in ("containers", "initContainers"):
        listed = spec.get(field)
        if isinstance(listed, list) and len(listed) > MAX_CONTAINERS:
            raise InputError(
                f"{len(listed)} containers", path=_join(path, f"spec.{field}"), remedy=f"at most {MAX_CONTAINERS}"
            )
    try:
        pod = pod_from_dict(data)
    except InputError as error:
        raise InputError(
            error.problem, path=_join(path, error.path) if error.path else path, remedy=error.remedy
        ) from None
    if checked:
        _check(pod, path)
    return pod


def _check(pod: Pod, path: str) -> None:
    """What the API server would refuse and would make a decision meaningless."""
    if not pod.spec.containers:
        raise InputError("names no containers", path=_join(path, "spec.containers"), remedy="add at least one")
    seen: dict[str, str] = {}
    groups = (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
    for field, containers in groups:
        for index, container in enumerate(containers):
            here = _join(path, f"spec.{field}[{index}]")
            if not container.name:
                raise InputError("is empty", path=f"{here}.name", remedy="name the container")
            if container.name in seen:
                raise InputError(
                    f"{container.name!r} is already the name of {seen[container.name]}",
                    path=f"{here}.name",
                    remedy="container names are unique in a pod",
                )
            seen[container.name] = here
            _check_requirements(container.resources, f"{here}.resources")
            _check_restart_policy(container, field, here)
    if pod.spec.resources is not None:
        _check_requirements(pod.spec.resources, _join(path, "spec.resources"))
    _check_amounts(pod.spec.overhead, _join(path, "spec.overhead"))


def _check_restart_policy(container: Container, field: str, here: str) -> None:
    if field == "initContainers" and container.restart_policy not in (None, "Always", "Never", "OnFailure"):
        raise InputError(
            f"{container.restart_policy!r} is not supported", path=f"{here}.restartPolicy", remedy="Always"
        )


def _check_requirements(resources: ResourceRequirements, path: str) -> None:
    _check_amounts(resources.limits, f"{path}.limits")
    _check_amounts(resources.requests, f"{path}.requests")
    for name, request in (resources.requests or {}).items():
        limit = (resources.limits or {}).get(name)
        if limit is not None and request > limit:
            raise InputError(
                f"{request} is more than the limit {limit}",
                path=f"{path}.requests[{name}]",
                remedy="a request must be less than or equal to its limit",
            )


def _check_amounts(amounts: ResourceList | None, path: str) -> None:
    for name, amount in (amounts or {}).items():
        if amount.sign() < 0:
            raise InputError(
                f"{amount} is negative", path=f"{path}[{name}]", remedy="must be greater than or equal to 0"
            )
        if amount.nano > (1 << 63) * 10**9:
            raise InputError(f"{amount} is beyond 64 bits", path=f"{path}[{name}]", remedy="write a smaller amount")


def unique(pods: list[LoadedPod], taken: Iterable[str] = ()) -> list[LoadedPod]:
    """Give every pod a name, a namespace and a UID of its own, none of them `taken`; same input, same names."""
    taken = set(taken)
    first = len(taken)
    result = []
    for number, loaded in enumerate(pods):
        metadata = loaded.pod.metadata
        name = metadata.name or f"pod-{number}"
        uid = metadata.uid or f"{metadata.namespace or 'default'}.{name}"
        if uid in taken:
            uid = next(f"{uid}.{i}" for i in range(2, first + len(pods) + 2) if f"{uid}.{i}" not in taken)
        taken.add(uid)
        result.append(loaded._replace(pod=_renamed(loaded.pod, name, uid)))
    return result


def _renamed(pod: Pod, name: str, uid: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=uid, namespace=pod.metadata.namespace or "default")
    return msgspec.structs.replace(pod, metadata=metadata)
