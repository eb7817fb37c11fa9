"""Validation of a pod by the API server, as far as it concerns resources (pod-level-resources 5).

Everything else in a pod (images, volumes, probes) is not checked. So a pod without errors here can still be refused for
other reasons; a pod with errors here is refused for certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from podslice.api.pod.demand import aggregate, container_limits, container_requests
from podslice.api.pod.field_error import FieldError, duplicate, forbidden, invalid, not_supported, required
from podslice.api.pod.names import label_problems, label_value_problems, subdomain_problems
from podslice.api.pod.resource_names import is_hugepages, qualified_name_problems
from podslice.api.pod.spec import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResizePolicy,
    ResourceList,
    ResourceRequirements,
    is_restartable_init,
)
from podslice.api.server.validate_claims import pod_claim_errors
from podslice.api.server.validate_resources import is_plain, requirements_errors

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_POD_LEVEL = "spec.resources"
_LONGEST_DEADLINE = (1 << 31) - 1


def validate_create(pod: Pod, gates: Mapping[str, bool]) -> list[FieldError]:
    """Return the errors of a create request, for a pod that `prepare_for_create` returned; none for an acceptable
    pod."""
    errors = validate_pod(pod, gates)
    if pod.spec.ephemeral_containers:
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    return errors


def validate_pod(pod: Pod, gates: Mapping[str, bool], *, whole_pages: bool = True) -> list[FieldError]:
    """Return the errors of a pod as such, also when it is updated. Upstream reports them in random order.

    `whole_pages` as in `requirements_errors`.
    """
    spec = pod.spec
    claims = [claim.name for claim in spec.resource_claims]
    errors: list[FieldError] = []
    if not spec.containers:
        errors.append(required("spec.containers"))
    _check_containers(errors, spec.containers, "containers", claims, whole_pages=whole_pages)
    if spec.init_containers:
        _check_containers(errors, spec.init_containers, "initContainers", claims, whole_pages=whole_pages)
    if spec.ephemeral_containers:
        _check_containers(errors, spec.ephemeral_containers, "ephemeralContainers", claims, whole_pages=whole_pages)
        errors += _ephemeral_errors(spec.ephemeral_containers)
    errors += name_errors(pod)
    errors += policy_errors(spec)
    if spec.resource_claims:
        errors += pod_claim_errors(spec)
    if spec.resources is not None and gates["PodLevelResources"]:
        errors += _pod_level_errors(pod, spec.resources, claims, whole_pages=whole_pages)
    if spec.overhead:
        errors += _overhead_errors(spec.overhead, whole_pages=whole_pages)
    if spec.os is not None or spec.active_deadline_seconds is not None or pod.metadata.annotations:
        errors += _other_errors(pod)
    return errors


def _check_containers(
    errors: list[FieldError],
    containers: tuple[Container, ...],
    field: str,
    claims: Collection[str],
    *,
    whole_pages: bool,
) -> None:
    """Append the errors of containers with other than plain resources."""
    for index, container in enumerate(containers):
        if not is_plain(container.resources):
            path = f"spec.{field}[{index}].resources"
            errors += requirements_errors(container.resources, path, claims=claims, whole_pages=whole_pages)


def _ephemeral_errors(containers: tuple[Container, ...]) -> Iterator[FieldError]:
    for index, container in enumerate(containers):
        if container.resources != ResourceRequirements():
            yield forbidden(f"spec.ephemeralContainers[{index}].resources", "cannot be set for an Ephemeral Container")


def _pod_level_errors(
    pod: Pod, resources: ResourceRequirements, claims: Collection[str], *, whole_pages: bool
) -> Iterator[FieldError]:
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        yield forbidden(_POD_LEVEL, "may not be set for a windows pod")
        return
    if resources.claims is not None:
        yield forbidden(f"{_POD_LEVEL}.claims", "claims may not be set for Resources at pod-level")
    yield from requirements_errors(resources, _POD_LEVEL, pod_level=True, claims=claims, whole_pages=whole_pages)
    if resources.requests:
        yield from _aggregate_request_errors(pod, resources.requests)
    if resources.limits:
        yield from _page_limit_errors(pod, resources.limits)
        yield from _container_limit_errors(pod, resources.limits)


def budget_errors(pod: Pod) -> Iterator[FieldError]:
    """Yield an error for each amount of the containers that exceeds the pod-level resources."""
    resources = pod.spec.resources or ResourceRequirements()
    yield from _aggregate_request_errors(pod, resources.requests or {})
    yield from _container_limit_errors(pod, resources.limits or {})


def _aggregate_request_errors(pod: Pod, requests: ResourceList) -> Iterator[FieldError]:
    for name, total in aggregate(pod, container_requests).items():
        given = requests.get(name)
        if given is not None and total > given:
            detail = f"must be greater than or equal to aggregate container requests of {total}"
            yield invalid(f"{_POD_LEVEL}.requests[{name}]", given, detail)


def _page_limit_errors(pod: Pod, limits: ResourceList) -> Iterator[FieldError]:
    if any(map(is_hugepages, limits)):
        for name, total in aggregate(pod, container_limits).items():
            given = limits.get(name)
            if given is not None and is_hugepages(name) and total > given:
                detail = f"must be greater than or equal to aggregate container limits of {total}"
                yield invalid(f"{_POD_LEVEL}.limits[{name}]", given, detail)


def _container_limit_errors(pod: Pod, limits: ResourceList) -> Iterator[FieldError]:
    # App containers only: upstream checks neither init containers nor sidecars, and no sum of cpu or memory limits.
    for index, container in enumerate(pod.spec.containers):
        for name, limit in (container.resources.limits or {}).items():
            given = limits.get(name)
            if given is not None and limit.nano > given.nano:
                detail = f"must be less than or equal to pod limits of {given}"
                # The path is what upstream reports; there is no such field.
                yield invalid(f"{_POD_LEVEL}.containers[{index}][{name}].limits", limit, detail)


def _overhead_errors(overhead: ResourceList, *, whole_pages: bool) -> list[FieldError]:
    return requirements_errors(ResourceRequirements(limits=overhead), "spec.overhead", whole_pages=whole_pages)


def _other_errors(pod: Pod) -> Iterator[FieldError]:
    spec = pod.spec
    if spec.os is not None:
        if not spec.os.name:
            yield required("spec.os.name")
        elif spec.os.name not in ("linux", "windows"):
            yield not_supported("spec.os", spec.os.name, ("linux", "windows"))
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= _LONGEST_DEADLINE:
        detail = f"must be between 1 and {_LONGEST_DEADLINE}, inclusive"
        yield invalid("spec.activeDeadlineSeconds", deadline, detail)
    mirror = (pod.metadata.annotations or {}).get(MIRROR_ANNOTATION)
    if mirror is not None and not spec.node_name:
        path = f"metadata.annotations[{MIRROR_ANNOTATION}]"
        yield invalid(path, mirror, "must set spec.nodeName if mirror pod annotation is set")


# Names, labels and annotations


def name_errors(pod: Pod) -> Iterator[FieldError]:
    """Yield an error for every name that the API server refuses. A pod without a name is no error here: readers of
    manifests give it one."""
    yield from _metadata_errors(pod.metadata)
    if pod.spec.node_name:
        for problem in subdomain_problems(pod.spec.node_name):
            yield invalid("spec.nodeName", pod.spec.node_name, problem)
    yield from _container_errors(pod.spec)


def _metadata_errors(metadata: ObjectMeta) -> Iterator[FieldError]:
    if metadata.name:
        for problem in subdomain_problems(metadata.name):
            yield invalid("metadata.name", metadata.name, problem)
    if metadata.namespace:
        for problem in label_problems(metadata.namespace):
            yield invalid("metadata.namespace", metadata.namespace, problem)
    for key, value in (metadata.labels or {}).items():
        for problem in qualified_name_problems(key):
            yield invalid("metadata.labels", key, problem)
        for problem in label_value_problems(value):
            yield invalid("metadata.labels", value, problem)
    for key in metadata.annotations or {}:
        # Annotation keys are checked in lower case: upstream lets upper case pass.
        for problem in qualified_name_problems(key.lower()):
            yield invalid("metadata.annotations", key, problem)


def _container_errors(spec: PodSpec) -> Iterator[FieldError]:
    groups = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    seen: set[str] = set()
    for field, containers in groups:
        for index, container in enumerate(containers):
            name, path = container.name, f"spec.{field}[{index}].name"
            if not name:
                yield required(path)
            else:
                for problem in label_problems(name):
                    yield invalid(path, name, problem)
            if name in seen:
                yield duplicate(path, name)
            seen.add(name)


# Restart and resize policies


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
