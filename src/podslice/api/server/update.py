"""Ordinary updates of a pod: nearly nothing of its specification may change (pod-level-resources 2, 5.4).

Only fields that `api.pod.spec` carries are compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.api.pod.field_error import FieldError, forbidden, invalid
from podslice.api.pod.resource_names import is_hugepages
from podslice.api.pod.spec import Container, Pod, PodSpec, ResourceRequirements, map_containers, map_requirements
from podslice.api.server.validate import validate_pod
from podslice.api.server.validate_resources import is_whole_pages

replace = msgspec.structs.replace

IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
"""Upstream appends a diff to this text."""


def prepare_for_update(new: Pod, old: Pod, gates: Mapping[str, bool]) -> Pod:
    """Return the pod to validate: an update does not touch the status, and fields of disabled features stay only where
    the old pod has them."""
    return drop_disabled(replace(new, status=old.status), old, gates)


def drop_disabled(new: Pod, old: Pod, gates: Mapping[str, bool]) -> Pod:
    """Return the pod without `spec.resources` and pod-level status where their gate is off and the old pod has none."""
    if not gates["PodLevelResources"] and not uses_pod_level_resources(old) and new.spec.resources is not None:
        new = replace(new, spec=replace(new.spec, resources=None))
    reported = (old.status.resources, old.status.allocated_resources)
    if not gates["InPlacePodLevelResourcesVerticalScaling"] and reported == (None, None):
        new = replace(new, status=replace(new.status, resources=None, allocated_resources=None))
    return new


def uses_pod_level_resources(pod: Pod) -> bool:
    """Whether `spec.resources` holds any request or limit, whatever its name."""
    resources = pod.spec.resources
    return resources is not None and bool(resources.requests or resources.limits)


def validate_update(new: Pod, old: Pod, gates: Mapping[str, bool]) -> list[FieldError]:
    """Return the errors for which a prepared pod may not replace the old one."""
    return [*validate_pod(new, gates, whole_pages=has_whole_pages(old)), *_change_errors(new, old)]


def has_whole_pages(pod: Pod) -> bool:
    """Whether all amounts of huge pages in the pod are multiples of their page size."""
    stanzas = [one.resources for one in (*pod.spec.containers, *pod.spec.init_containers)]
    if pod.spec.resources is not None:
        stanzas.append(pod.spec.resources)
    amounts = [*(pod.spec.overhead or {}).items()]
    for stanza in stanzas:
        amounts += [*(stanza.requests or {}).items(), *(stanza.limits or {}).items()]
    return all(not is_hugepages(name) or is_whole_pages(name, amount) for name, amount in amounts)


def _change_errors(new: Pod, old: Pod) -> list[FieldError]:
    counts = _count_errors(new, old)
    if counts:
        return counts
    errors = _deadline_errors(new.spec.active_deadline_seconds, old.spec.active_deadline_seconds)
    if normalize_spec(_undo_mutable_changes(old.spec, new.spec)) != normalize_spec(old.spec):
        errors.append(forbidden("spec", IMMUTABLE))
    return errors


def _count_errors(new: Pod, old: Pod) -> list[FieldError]:
    """Return an error for the first list of containers whose length changed."""
    text = "pod updates may not add or remove containers"
    if len(new.spec.containers) != len(old.spec.containers):
        return [forbidden("spec.containers", text)]
    if len(new.spec.init_containers) != len(old.spec.init_containers):
        return [forbidden("spec.initContainers", text)]
    return []


def _deadline_errors(new: int | None, old: int | None) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if old is None or new == old:
        return []
    if new is None:
        return [invalid(path, "null", "must not update from a positive integer to nil value")]
    return [invalid(path, new, "must be less than or equal to previous value")] if new > old else []


def _undo_mutable_changes(old: PodSpec, new: PodSpec) -> PodSpec:
    """Return the new specification with the fields that an update may change set back to the old ones."""

    def container(mine: Container, theirs: Container) -> Container:
        # The policy is taken of the new image before the old image is put back: its default depends on the tag.
        return replace(mine, image=theirs.image, image_pull_policy=pull_policy(mine))

    return replace(
        new,
        containers=tuple(map(container, new.containers, old.containers)),
        init_containers=tuple(map(container, new.init_containers, old.init_containers)),
        active_deadline_seconds=old.active_deadline_seconds,
    )


# Comparing specifications


def normalize_spec(spec: PodSpec) -> PodSpec:
    """Return the specification in a form in which equal means the same to the API server: empty is absent, and defaults
    that depend on other fields are filled in."""
    spec = map_requirements(spec, _empty_to_absent)
    spec = map_containers(spec, lambda one: replace(one, image_pull_policy=pull_policy(one)))
    return replace(
        spec,
        overhead=spec.overhead or None,
        node_selector=spec.node_selector or None,
        restart_policy=spec.restart_policy or "Always",
    )


def _empty_to_absent(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(resources.requests or None, resources.limits or None, resources.claims or None)


def pull_policy(container: Container) -> str:
    """Return `imagePullPolicy` with its default: Always for the tag latest, written or not, else IfNotPresent.

    The field is immutable, so an image with a tag cannot replace one without by changing the image alone.
    """
    if container.image_pull_policy:
        return container.image_pull_policy
    reference, _, digest = container.image.partition("@")
    _, _, tag = reference.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"
