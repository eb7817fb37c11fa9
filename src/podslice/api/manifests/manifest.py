"""Pods from real manifests: Pod, List, and the pod template of every workload kind, as YAML or JSON.

Nothing passes silently: fields that Kubernetes does not know are warnings (errors with `strict`), a pod that the API
server refuses is an error, and all errors of a file are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from podslice.api.pod.field_error import FieldError
from podslice.api.pod.field_table import API_VERSIONS
from podslice.api.pod.spec import Pod, ResourceList, pod_from_dict
from podslice.api.pod.unknown_fields import UnknownField, find_unknown_fields
from podslice.api.server.create import is_live, prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_create, validate_pod
from podslice.reading.files import read_text
from podslice.reading.lists import fill_items, is_list
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError, raise_all
from podslice.values.gates import FeatureGates

# Bounds against manifests that would exhaust memory; no cluster runs pods or workloads of this size.
MAX_CONTAINERS = 5000
MAX_REPLICAS = 100_000
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
_REFUSED = "the API server refuses this pod"
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:]{0,252}\Z")
_GATES = FeatureGates.from_overrides({})
"""Default gates of an API server: a manifest does not say with which ones its server runs."""


class LoadedPod(NamedTuple):
    """A pod and its origin; `path` leads to it inside the document, `data` is the pod as it was written.

    `warnings` has a line for each field of its object that Kubernetes does not know, `replicas` is how many pods the
    object requests. `unknown_fields` are the fields of `warnings`, with paths inside the document.
    """

    pod: Pod
    source: str
    document: int
    kind: str
    path: str
    data: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    replicas: int = 1
    unknown_fields: tuple[UnknownField, ...] = ()


class _Found(NamedTuple):
    """A pod before decoding, of the object at `object_path`. `owned` names the fields of its metadata that come from
    the object around it."""

    kind: str
    path: str
    data: Mapping[str, Any]
    object_path: str
    unknown_fields: tuple[UnknownField, ...]
    replicas: int = 1
    owned: frozenset[str] = frozenset()


class ReadOptions(NamedTuple):
    """Options for reading pods; see `load_pods`."""

    replicas: bool = False
    validate: bool = True
    strict: bool = False


def load_pods(
    path: str,
    *,
    replicas: bool = False,
    validate: bool = True,
    strict: bool = False,
    none_is_fine: bool = False,
) -> list[LoadedPod]:
    """Return all pods of a file (`-`: standard input), in order; objects of other kinds are skipped.

    - `replicas`: expand a workload into as many pods as it requests
    - `validate`: refuse pods that the API server would refuse
    - `strict`: fields that Kubernetes does not know are errors, not only `LoadedPod.warnings`
    - `none_is_fine`: the file may be a List without items, as of a node on which nothing runs

    Pods get a name and UID where they have none. Raises `InputError`, also for a file without any pod; it prints one
    line for each error in the file.
    """
    source = "stdin" if path == "-" else path
    return load_pods_text(
        read_text(path), source, replicas=replicas, validate=validate, strict=strict, none_is_fine=none_is_fine
    )


def load_pods_text(
    text: str,
    source: str,
    *,
    replicas: bool = False,
    validate: bool = True,
    strict: bool = False,
    none_is_fine: bool = False,
) -> list[LoadedPod]:
    """Return all pods in the text of a file; see `load_pods`."""
    documents = load_documents(text, source)
    pods = _collect_pods(documents, source, ReadOptions(replicas, validate, strict))
    if not pods and not (none_is_fine and documents and all(map(_is_empty_list, documents))):
        kinds = sorted({str(document.get("kind")) for document in documents if isinstance(document, dict)})
        problem = f"holds no pods, only {', '.join(kinds)}" if kinds else "holds no pods"
        raise InputError(problem, source=source, remedy=_REMEDY)
    return assign_names(pods)


def pods_from_documents(documents: list[Any], source: str) -> list[LoadedPod]:
    """Return the pods among documents of any kind, also pods that the API server would refuse; possibly none. Raises
    `InputError` for pods that cannot be decoded and for documents that are no objects."""
    if not documents:
        raise InputError("holds nothing", source=source, remedy=_REMEDY)
    objects = [document if _may_be_object(document) else {"kind": ""} for document in documents]
    return assign_names(_collect_pods(objects, source, ReadOptions(validate=False)))


def _is_empty_list(document: Any) -> bool:
    """Whether a document is a List without items. A kubelet's own list of no pods has `items: null`, as Go writes
    it."""
    if not isinstance(document, dict) or document.get("kind") not in ("List", "PodList"):
        return False
    return "items" in document and document["items"] in (None, [])


def _may_be_object(document: Any) -> bool:
    """Whether a document may be a Kubernetes object; False for YAML of other programs, which is made of fields as
    well."""
    if isinstance(document, dict):
        return "kind" in document or "apiVersion" in document
    return not isinstance(document, list)


def _collect_pods(documents: list[Any], source: str, reading: ReadOptions) -> list[LoadedPod]:
    """Decode the pods of all documents. Raises all their errors at once."""
    pods: list[LoadedPod] = []
    errors: list[InputError] = []
    for index, document in enumerate(documents):
        number = index if len(documents) > 1 else None
        try:
            for found in _find(document, ""):
                try:
                    pods += _load(found, source, index, number, reading)
                except InputError as error:
                    errors.append(error.at(source=source, document=number))
        except InputError as error:
            errors.append(error.at(source=source, document=number))
    raise_all(errors)
    return pods


def _load(found: _Found, source: str, index: int, number: int | None, reading: ReadOptions) -> Iterator[LoadedPod]:
    """Yield the copies of one pod, the first with the warnings. Raises `InputError`."""
    problems = [
        InputError(str(field), source=source, document=number, path=found.object_path, remedy=field.hint)
        for field in found.unknown_fields
    ]
    try:
        pod = _decode(found, validate=reading.validate)
    except InputError as error:
        problems.append(error.at(source=source, document=number))
        raise_all(problems if reading.strict else problems[-1:])
        raise
    if reading.strict:
        raise_all(problems)
    warnings = tuple(map(str, problems))
    copies = found.replicas if reading.replicas else 1
    if copies > MAX_REPLICAS:
        raise InputError(f"{copies} pods", path=_join(found.object_path, "spec"), remedy=f"at most {MAX_REPLICAS}")
    unknown = tuple(field._replace(path=_join(found.object_path, field.path)) for field in found.unknown_fields)
    for copy in range(copies):
        one = pod if copies == 1 else _rename(pod, f"{pod.metadata.name}-{copy}", "")
        yield LoadedPod(one, source, index, found.kind, found.path, found.data, warnings, found.replicas, unknown)
        # Only the first copy carries the warnings: they are about the object, not about each pod.
        warnings, unknown = (), ()


def _find(document: Any, path: str) -> Iterator[_Found]:
    """Yield the pods of a document that are not decoded yet. Raises `InputError`."""
    if not isinstance(document, dict):
        raise InputError(f"expected an object, got {_describe_kind(document)}", path=path, remedy=_REMEDY)
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise InputError("has no kind", path=path, remedy=_REMEDY)
    if kind in API_VERSIONS:
        _check_version(kind, document.get("apiVersion"), path)
        unknown = tuple(find_unknown_fields(document, kind))
        if kind == "Pod":
            yield _Found("Pod", path, document, path, unknown)
        else:
            yield _find_template(document, kind, path)._replace(object_path=path, unknown_fields=unknown)
    elif is_list(document):
        yield from _find_items(document, path)
    else:
        _check_kind(kind, document.get("apiVersion"), path)


def _find_items(document: dict[str, Any], path: str) -> Iterator[_Found]:
    errors = []
    for index, item in enumerate(fill_items(document)):
        try:
            yield from _find(item, _join(path, f"items[{index}]"))
        except InputError as error:
            errors.append(error)
    raise_all(errors)


def _check_version(kind: str, version: Any, path: str) -> None:
    """Raise `InputError`, in the words of API server and kubectl, for another version than the one that exists."""
    remedy = f"apiVersion: {API_VERSIONS[kind]}"
    if not version:
        raise InputError("apiVersion not set", path=path, remedy=remedy)
    if version != API_VERSIONS[kind]:
        raise InputError(f'no kind "{kind}" is registered for version "{version}"', path=path, remedy=remedy)


def _check_kind(kind: str, version: Any, path: str) -> None:
    """Raise `InputError` for a kind that is nearly one with pods: a typing error, not another kind. Other kinds
    pass."""
    group = str(version or "v1").rpartition("/")[0]
    if group not in ("", "apps", "batch", "extensions"):
        return
    kinds = {one.lower(): one for one in API_VERSIONS}
    close = get_close_matches(kind.lower(), kinds, 1, 0.87)
    if close:
        problem = f'no kind "{kind}" is registered for version "{version or "v1"}"'
        raise InputError(problem, path=path, remedy=f"did you mean {kinds[close[0]]}?")


def _find_template(document: dict[str, Any], kind: str, path: str) -> _Found:
    data: Any = document
    for step in _TEMPLATES[kind]:
        path = _join(path, step)
        data = data.get(step) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise InputError("is missing", path=path, remedy="a workload needs a pod template")
    owner = _require_object(document.get("metadata"), "metadata")
    metadata = {**_require_object(data.get("metadata"), _join(path, "metadata"))}
    owned = frozenset(name for name in ("name", "namespace") if name not in metadata)
    # A template's pods have no name of their own; here they get the workload's.
    metadata.setdefault("name", owner.get("name", ""))
    if owner.get("namespace"):
        metadata.setdefault("namespace", owner["namespace"])
    return _Found(kind, path, {**data, "metadata": metadata}, "", (), _count_replicas(document, kind), owned)


def _count_replicas(document: dict[str, Any], kind: str) -> int:
    """Return how many pods a workload runs at a time; a field without a value counts as absent. Raises `InputError`."""
    steps = ("spec", "jobTemplate", "spec") if kind == "CronJob" else ("spec",)
    spec: Any = document
    for step in steps:
        spec = spec.get(step) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return 1
    counts = []
    for field in ("parallelism", "completions") if kind in ("Job", "CronJob") else ("replicas",):
        count = spec.get(field)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise InputError(f"{count!r} is not a number of pods", path=".".join((*steps, field)))
        counts.append(count)
    first = 1 if counts[0] is None else counts[0]
    # A Job runs at most `parallelism` pods at a time, and never more than it has completions left.
    return min([first, *(count for count in counts[1:] if count is not None)])


def _require_object(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"expected an object, got {_describe_kind(value)}", path=path)
    return value


def _describe_kind(value: Any) -> str:
    """Return the kind of plain data in the words of YAML."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "text"
    if value is None:
        return "nothing"
    return "true or false" if isinstance(value, bool) else "a number"


def _join(path: str, step: str) -> str:
    return f"{path}.{step}" if path and step else path or step


def _decode(found: _Found, *, validate: bool) -> Pod:
    path = found.path
    spec = found.data.get("spec")
    if not isinstance(spec, dict):
        problem = "is missing" if spec is None else f"expected an object, got {_describe_kind(spec)}"
        raise InputError(problem, path=_join(path, "spec"), remedy="a pod needs spec.containers")
    for field in ("containers", "initContainers"):
        listed = spec.get(field)
        if isinstance(listed, list) and len(listed) > MAX_CONTAINERS:
            raise InputError(
                f"{len(listed)} containers", path=_join(path, f"spec.{field}"), remedy=f"at most {MAX_CONTAINERS}"
            )
    try:
        pod = pod_from_dict(found.data)
    except InputError as error:
        raise InputError(error.problem, path=_join(path, error.path), remedy=error.remedy) from None
    if validate:
        raise_all([*_server_errors(pod, found), *_local_errors(pod, path)])
    return pod


def _server_errors(pod: Pod, found: _Found) -> Iterator[InputError]:
    """Yield the API server's errors for the pod: those of a create request, or of a running pod where its status says
    so."""
    defaulted = default_pod(pod, _GATES)
    errors = (
        validate_pod(defaulted, _GATES)
        if is_live(pod)
        else validate_create(prepare_for_create(defaulted, _GATES), _GATES)
    )
    for error in errors:
        prefix = "" if _is_owned(error, found) else found.path
        yield InputError(error.sentence, path=_join(prefix, error.field), remedy=_REFUSED)


def _is_owned(error: FieldError, found: _Found) -> bool:
    return error.field.startswith("metadata.") and error.field.removeprefix("metadata.") in found.owned


def _local_errors(pod: Pod, path: str) -> Iterator[InputError]:
    """Yield errors that the API server does not check and that would reach state files and cgroups: the server
    generates UIDs, and cuts amounts beyond 64 bits."""
    uid = pod.metadata.uid
    if uid and not _UID.match(uid):
        yield InputError(
            f"{uid!r} is not a UID", path=_join(path, "metadata.uid"), remedy="letters, digits, -, _, ., :"
        )
    groups = (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
    stanzas = [
        (f"spec.{field}[{index}].resources", container.resources)
        for field, containers in groups
        for index, container in enumerate(containers)
    ]
    if pod.spec.resources is not None:
        stanzas.append(("spec.resources", pod.spec.resources))
    for here, resources in stanzas:
        yield from _range_errors(resources.limits, _join(path, f"{here}.limits"))
        yield from _range_errors(resources.requests, _join(path, f"{here}.requests"))
    yield from _range_errors(pod.spec.overhead, _join(path, "spec.overhead"))


def _range_errors(amounts: ResourceList | None, path: str) -> Iterator[InputError]:
    for name, amount in (amounts or {}).items():
        if amount.nano > (1 << 63) * 10**9:
            yield InputError(f"{amount} is beyond 64 bits", path=f"{path}[{name}]", remedy="write a smaller amount")


def assign_names(pods: list[LoadedPod], taken: Iterable[str] = ()) -> list[LoadedPod]:
    """Give every pod a name, a namespace and a UID of its own, none of them in `taken`; the same input gets the same
    names."""
    taken = set(taken)
    first = len(taken)
    result = []
    for number, loaded in enumerate(pods):
        metadata = loaded.pod.metadata
        name = metadata.name or f"pod-{number}"
        # Derived from the name, so that two runs over one file agree.
        uid = metadata.uid or f"{metadata.namespace or 'default'}.{name}"
        if uid in taken:
            uid = next(f"{uid}.{i}" for i in range(2, first + len(pods) + 2) if f"{uid}.{i}" not in taken)
        taken.add(uid)
        result.append(loaded._replace(pod=_rename(loaded.pod, name, uid)))
    return result


def _rename(pod: Pod, name: str, uid: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name, uid=uid, namespace=pod.metadata.namespace or "default")
    return msgspec.structs.replace(pod, metadata=metadata)
