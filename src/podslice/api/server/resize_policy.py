"""Validation of `restartPolicy` and `resizePolicy` by the API server (KEP-1287, KEP-753)."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.api.pod.field_error import FieldError, duplicate, invalid, not_supported, required
from podslice.api.pod.spec import Container, PodSpec, ResizePolicy, is_restartable_init

_RESOURCES = ("cpu", "memory")
_POLICIES = ("NotRequired", "RestartContainer")
_POD_POLICIES = ("Always", "OnFailure", "Never")
_CONTAINER_POLICIES = ("Always", "Never", "OnFailure")


def policy_errors(spec: PodSpec) -> Iterator[FieldError]:
    """Yield an error for every policy of a pod, its containers and their resizes that the API server refuses."""
    if spec.restart_policy not in ("", *_POD_POLICIES):
        yield not_supported("spec.restartPolicy", spec.restart_policy, _POD_POLICIES)
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            path = f"spec.{field}[{index}]"
            if container.restart_policy is not None and container.restart_policy not in _CONTAINER_POLICIES:
                yield not_supported(f"{path}.restartPolicy", container.restart_policy, _CONTAINER_POLICIES)
            if container.resize_policy:
                yield from _resize_errors(container.resize_policy, f"{path}.resizePolicy", spec.restart_policy)
                if field == "initContainers" and not is_restartable_init(container):
                    yield from _init_errors(container, f"{path}.resizePolicy")


def _resize_errors(policies: tuple[ResizePolicy, ...], path: str, pod_policy: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if not policy.resource_name:
            yield required(path)
        elif policy.resource_name not in _RESOURCES:
            yield not_supported(path, policy.resource_name, _RESOURCES)
        if policy.resource_name in seen:
            yield duplicate(f"{path}[{index}]", policy.resource_name)
        seen.add(policy.resource_name)
        if not policy.restart_policy:
            yield required(path)
        elif policy.restart_policy not in _POLICIES:
            yield not_supported(path, policy.restart_policy, _POLICIES)
        if pod_policy == "Never" and policy.restart_policy != "NotRequired":
            yield invalid(path, policy.restart_policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _init_errors(container: Container, path: str) -> Iterator[FieldError]:
    for index, policy in enumerate(container.resize_policy):
        if policy.restart_policy == "RestartContainer":
            detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            yield invalid(f"{path}[{index}].restartPolicy", policy.restart_policy, detail)
