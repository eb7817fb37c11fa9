"""The subresource `resize`: the part of a submitted pod that counts, and whether it may be stored (KEP-1287, KEP-5419;
pod-level-resources 15.1 to 15.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from podslice.api.pod.demand import compute_qos, container_limits, pod_qos
from podslice.api.pod.field_error import FieldError, forbidden, invalid
from podslice.api.pod.resizable import Stanza, needs_restart, normalize_requirements
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, is_restartable_init
from podslice.api.server.resize_admission import INIT_RESIZE, PLR_RESIZE
from podslice.api.server.update import drop_disabled, has_whole_pages, normalize_spec, uses_pod_level_resources
from podslice.api.server.validate import MIRROR_ANNOTATION, validate_pod
from podslice.values.quantity import ZERO
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

replace = msgspec.structs.replace

_RESIZABLE = ("cpu", "memory")
_ONLY_CPU_AND_MEMORY = "only cpu and memory resources are mutable"


# What counts of a submitted pod


def prepare_for_resize(new: Pod, old: Pod, gates: Mapping[str, bool]) -> Pod:
    """Return the pod to validate: the old one with the submitted resources and resize policies.

    Where the number of containers differs the submitted pod is returned, where a name differs the submitted list;
    validation refuses both.
    """
    theirs, ours = new.spec, old.spec
    if len(theirs.containers) != len(ours.containers) or len(theirs.init_containers) != len(ours.init_containers):
        return drop_disabled(new, old, gates)
    spec = replace(
        ours,
        containers=_take_resources(ours.containers, theirs.containers),
        init_containers=_take_resources(ours.init_containers, theirs.init_containers),
        resources=theirs.resources if gates[PLR_RESIZE] else ours.resources,
    )
    return drop_disabled(replace(old, spec=spec), old, gates)


def _take_resources(old: Sequence[Container], new: Sequence[Container]) -> tuple[Container, ...]:
    if any(one.name != other.name for one, other in zip(old, new, strict=True)):
        return tuple(new)
    return tuple(
        replace(one, resources=other.resources, resize_policy=other.resize_policy)
        for one, other in zip(old, new, strict=True)
    )


# Validation


def validate_resize(new: Pod, old: Pod, gates: Mapping[str, bool], release: Release = DEFAULT) -> list[FieldError]:
    """Return the errors for which an API server of a release does not store a prepared pod."""
    if MIRROR_ANNOTATION in (old.metadata.annotations or {}):
        # `[]` is how Go prints an empty field path.
        return [forbidden("[]", "static pods cannot be resized")]
    if new.spec.os is not None and new.spec.os.name == "windows":
        return [forbidden("[]", "windows pods cannot be resized")]
    # A pod stored before the rule on whole pages may keep its amounts, or it could never be resized.
    errors = [*validate_pod(new, gates, whole_pages=has_whole_pages(old)), *_change_errors(new, old, gates, release)]
    if not errors and normalize_spec(_restore_resources(new, old).spec) != normalize_spec(old.spec):
        errors.append(forbidden("spec", _ONLY_CPU_AND_MEMORY))
    return errors


def _change_errors(new: Pod, old: Pod, gates: Mapping[str, bool], release: Release) -> list[FieldError]:
    """Return the errors of the step from the old pod to the new one that are no resize. Some end the search for
    others."""
    errors = []
    if pod_qos(old, gates) != compute_qos(new, gates):
        errors.append(invalid("spec", new.status.qos_class, "Pod QOS Class may not change as a result of resizing"))
    if not _node_supports_resize(old):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    if uses_pod_level_resources(new) or uses_pod_level_resources(old):
        if not release.resizes_pod_level:
            return [*errors, forbidden("[]", "pods with pod-level resources cannot be resized")]
        if not gates[PLR_RESIZE]:
            text = (
                "resize of pods with pod-level resources is forbidden when "
                "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled"
            )
            # Upstream ends the validation here; the errors found before are still reported (pod-level-resources 15.2).
            return [*errors, forbidden("[]", text)]
        errors += _pod_level_errors(new.spec.resources, old.spec.resources)
    if old.status.node_allocatable_resource_claim_statuses:
        errors.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    moved = _order_errors("containers", new.spec.containers, old.spec.containers) + _order_errors(
        "initContainers", new.spec.init_containers, old.spec.init_containers
    )
    # The containers are compared by position, so nothing can be said of their resources once the order differs.
    if not moved and not release.lowers_memory_limits:
        errors += _lowered_limit_errors(new.spec.containers, old.spec.containers)
    return [*errors, *(moved or _resource_errors(new, old, gates))]


def _lowered_limit_errors(new: Sequence[Container], old: Sequence[Container]) -> Iterator[FieldError]:
    """Yield an error for every container that gets a lower memory limit and does not restart for it."""
    for index, (one, was) in enumerate(zip(new, old, strict=True)):
        limit, before = (container_limits(container).get("memory", ZERO) for container in (one, was))
        if limit < before and not needs_restart(one, "memory"):
            path = f"spec.containers[{index}].resources.limits[memory]"
            yield forbidden(path, "memory limits cannot be decreased unless resizePolicy is RestartContainer")


def _node_supports_resize(old: Pod) -> bool:
    """Whether the node resizes: the status of its first running container has resources."""
    running = (status for status in old.status.container_statuses if status.state.running is not None)
    first = next(running, None)
    return first is None or first.resources is not None


def _pod_level_errors(new: ResourceRequirements | None, old: ResourceRequirements | None) -> list[FieldError]:
    if new is None:
        # Without the stanza, upstream skips the other checks of the pod level; adding one is allowed.
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    was = old or ResourceRequirements()
    errors = []
    if _removes_resource(new.requests, was.requests):
        errors.append(forbidden("spec.resources.requests", "pod-level resource requests cannot be removed"))
    if _removes_resource(new.limits, was.limits):
        errors.append(forbidden("spec.resources.limits", "pod-level resource limits cannot be removed"))
    if _immutable_part(new) != _immutable_part(was):
        errors.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    return errors


def _order_errors(field: str, new: Sequence[Container], old: Sequence[Container]) -> list[FieldError]:
    if len(new) != len(old):
        return [forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")]
    return [
        forbidden(f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize")
        for index, (one, other) in enumerate(zip(new, old, strict=True))
        if one.name != other.name
    ]


def _resource_errors(new: Pod, old: Pod, gates: Mapping[str, bool]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, (one, was) in enumerate(zip(new.spec.init_containers, old.spec.init_containers, strict=True)):
        errors += _init_errors(f"spec.initContainers[{index}]", one, was, gates)
    for index, (one, was) in enumerate(zip(new.spec.containers, old.spec.containers, strict=True)):
        errors += _removal_errors(f"spec.containers[{index}]", one, was)
        if _immutable_part(one.resources) != _immutable_part(was.resources) or one.resize_policy != was.resize_policy:
            errors.append(forbidden("spec", _ONLY_CPU_AND_MEMORY))
    return errors


def _init_errors(path: str, new: Container, old: Container, gates: Mapping[str, bool]) -> list[FieldError]:
    sidecar = is_restartable_init(new)
    other_policy = new.resize_policy != old.resize_policy
    if not sidecar and not gates[INIT_RESIZE]:
        changed = other_policy or normalize_requirements(new.resources) != normalize_requirements(old.resources)
        return [forbidden("spec", "resources for non-sidecar init containers are immutable")] if changed else []
    errors = _removal_errors(path, new, old)
    if _immutable_part(new.resources) != _immutable_part(old.resources) or other_policy:
        text = "only cpu and memory resources for init or sidecar containers are mutable"
        errors.append(forbidden(path, text))
    if not sidecar:
        text = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        errors += [forbidden(path, text) for policy in new.resize_policy if policy.restart_policy == "RestartContainer"]
    return errors


def _removal_errors(path: str, new: Container, old: Container) -> list[FieldError]:
    errors = []
    if _removes_resource(new.resources.requests, old.resources.requests):
        errors.append(forbidden(f"{path}.resources.requests", "resource requests cannot be removed"))
    if _removes_resource(new.resources.limits, old.resources.limits):
        errors.append(forbidden(f"{path}.resources.limits", "resource limits cannot be removed"))
    return errors


def _removes_resource(new: ResourceList | None, old: ResourceList | None) -> bool:
    return not (old or {}).keys() <= (new or {}).keys()


def _immutable_part(resources: ResourceRequirements) -> Stanza:
    """Return the part of a stanza that a resize must leave alone."""
    requests, limits, claims = normalize_requirements(resources)
    return _drop_cpu_and_memory(requests), _drop_cpu_and_memory(limits), claims


def _drop_cpu_and_memory(amounts: ResourceList) -> ResourceList:
    return {name: amount for name, amount in amounts.items() if name not in _RESIZABLE}


def _restore_resources(new: Pod, old: Pod) -> Pod:
    """Return the new pod with the old one's resources; a difference that remains is not a resize.

    An init container's resizePolicy has an error of its own, so it is restored too. An empty `spec.resources` that
    comes or goes is not restored: it is not a resize either.
    """

    def containers(mine: Sequence[Container], theirs: Sequence[Container]) -> tuple[Container, ...]:
        return tuple(replace(one, resources=other.resources) for one, other in zip(mine, theirs, strict=True))

    pod_level = uses_pod_level_resources(new) or uses_pod_level_resources(old)
    spec = replace(
        new.spec,
        containers=containers(new.spec.containers, old.spec.containers),
        init_containers=tuple(
            replace(one, resources=other.resources, resize_policy=other.resize_policy)
            for one, other in zip(new.spec.init_containers, old.spec.init_containers, strict=True)
        ),
        resources=(old if pod_level else new).spec.resources,
    )
    return replace(new, spec=spec)
