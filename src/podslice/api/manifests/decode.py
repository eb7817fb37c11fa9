"""A found pod becomes a `Pod`, checked as the API server checks it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podslice.api.manifests.found import FoundPod
from podslice.api.manifests.objects import describe_value, join_path
from podslice.api.pod.field_error import FieldError
from podslice.api.pod.spec import Pod, ResourceList, pod_from_dict
from podslice.api.server.create import is_live, prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_create, validate_pod
from podslice.values.errors import InputError, raise_all
from podslice.values.gates import FeatureGates

MAX_CONTAINERS = 5000
"""Bound against manifests that would exhaust memory; no cluster runs such pods."""
_REFUSED = "the API server refuses this pod"
_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:]{0,252}\Z")
_GATES = FeatureGates.from_overrides({})
"""Default gates of an API server: a manifest does not say with which ones its server runs."""


def decode_pod(found: FoundPod, *, validate: bool) -> Pod:
    """Decode a pod. Raises `InputError`, with `validate` also for a pod that the API server refuses."""
    path = found.path
    spec = found.data.get("spec")
    if not isinstance(spec, dict):
        problem = "is missing" if spec is None else f"expected an object, got {describe_value(spec)}"
        raise InputError(problem, path=join_path(path, "spec"), remedy="a pod needs spec.containers")
    for field in ("containers", "initContainers"):
        listed = spec.get(field)
        if isinstance(listed, list) and len(listed) > MAX_CONTAINERS:
            raise InputError(
                f"{len(listed)} containers", path=join_path(path, f"spec.{field}"), remedy=f"at most {MAX_CONTAINERS}"
            )
    try:
        pod = pod_from_dict(found.data)
    except InputError as error:
        raise InputError(error.problem, path=join_path(path, error.path), remedy=error.remedy) from None
    if validate:
        raise_all([*_server_errors(pod, found), *_local_errors(pod, path)])
    return pod


def _server_errors(pod: Pod, found: FoundPod) -> Iterator[InputError]:
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
        yield InputError(error.sentence, path=join_path(prefix, error.field), remedy=_REFUSED)


def _is_owned(error: FieldError, found: FoundPod) -> bool:
    return error.field.startswith("metadata.") and error.field.removeprefix("metadata.") in found.owned


def _local_errors(pod: Pod, path: str) -> Iterator[InputError]:
    """Yield errors that the API server does not check and that would reach state files and cgroups: the server
    generates UIDs, and cuts amounts beyond 64 bits."""
    uid = pod.metadata.uid
    if uid and not _UID.match(uid):
        yield InputError(
            f"{uid!r} is not a UID", path=join_path(path, "metadata.uid"), remedy="letters, digits, -, _, ., :"
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
        yield from _range_errors(resources.limits, join_path(path, f"{here}.limits"))
        yield from _range_errors(resources.requests, join_path(path, f"{here}.requests"))
    yield from _range_errors(pod.spec.overhead, join_path(path, "spec.overhead"))


def _range_errors(amounts: ResourceList | None, path: str) -> Iterator[InputError]:
    for name, amount in (amounts or {}).items():
        if amount.nano > (1 << 63) * 10**9:
            yield InputError(f"{amount} is beyond 64 bits", path=f"{path}[{name}]", remedy="write a smaller amount")
