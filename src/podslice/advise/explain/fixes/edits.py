"""Edited copies of a pod: other amounts for one container or for the pod as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from podslice.advise.explain.fixes.fix import Edit, text_of
from podslice.api.pod.demand import aggregate, is_supported_pod_level_resource, requests_of
from podslice.api.pod.spec import Container, Pod, ResourceList, ResourceRequirements, map_containers
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_pod
from podslice.values.quantity import Quantity

replace = msgspec.structs.replace
POD = ""
"""The name of the pod as a whole where a container's name is expected."""


def places(pod: Pod) -> list[tuple[str, ResourceRequirements]]:
    """Return the places with amounts: the pod (if it has any), then init and app containers, each with its
    resources."""
    found = [] if pod.spec.resources is None else [(POD, pod.spec.resources)]
    return found + [(c.name, c.resources) for c in (*pod.spec.init_containers, *pod.spec.containers)]


def field_path(pod: Pod, place: str) -> str:
    """Return the path of a place's resources, as in a manifest."""
    if place == POD:
        return "spec.resources"
    for group, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for container in containers:
            if container.name == place:
                return f"spec.{group}[{place}].resources"
    raise KeyError(place)


def request_of(resources: ResourceRequirements, name: str) -> Quantity | None:
    """Return the request for a resource, which is the amount that counts."""
    return (resources.requests or {}).get(name)


def with_amounts(pod: Pod, amounts: Mapping[tuple[str, str], Quantity | None]) -> Pod:
    """Return the pod with other amounts by (place, resource); None removes the resource. A limit that equalled its
    request still does, and never lies below it."""
    for (place, name), quantity in amounts.items():
        pod = _with_resources(pod, place, partial(_set_amount, name=name, quantity=quantity))
    return pod


def without_limit(pod: Pod, place: str, name: str) -> Pod:
    """Return the pod without the limit, but with the request, of one resource of one place."""

    def edit(old: ResourceRequirements) -> ResourceRequirements:
        limits = {key: value for key, value in (old.limits or {}).items() if key != name}
        return replace(old, limits=limits or None)

    return _with_resources(pod, place, edit)


def with_resources(pod: Pod, place: str, resources: ResourceRequirements) -> Pod:
    """Return the pod with other resources in one place; its claims stay."""
    return _with_resources(pod, place, lambda old: replace(resources, claims=old.claims))


def without_resources(pod: Pod, place: str) -> Pod:
    """Return the pod with a place that requests nothing."""
    if place == POD:
        return replace(pod, spec=replace(pod.spec, resources=None))
    return with_resources(pod, place, ResourceRequirements())


def _with_resources(pod: Pod, place: str, edit: Callable[[ResourceRequirements], ResourceRequirements]) -> Pod:
    spec = pod.spec
    if place == POD:
        return replace(pod, spec=replace(spec, resources=edit(spec.resources or ResourceRequirements())))

    def edit_container(container: Container) -> Container:
        return container if container.name != place else replace(container, resources=edit(container.resources))

    return replace(pod, spec=map_containers(spec, edit_container))


def _set_amount(old: ResourceRequirements, name: str, quantity: Quantity | None) -> ResourceRequirements:
    requests, limits = dict(old.requests or {}), dict(old.limits or {})
    before, limit = requests.get(name), limits.get(name)
    if quantity is None:
        requests.pop(name, None)
        limits.pop(name, None)
    else:
        requests[name] = quantity
        # A limit equal to its request follows it, so that the pod keeps its QoS class.
        if limit is not None and (limit == before or limit < quantity):
            limits[name] = quantity
    return replace(old, requests=requests or None, limits=limits or None)


def removed_names(before: ResourceRequirements, after: ResourceRequirements) -> set[str]:
    """Return the resources that one stanza has, in its requests or limits, and another has not."""
    kinds = ((before.requests, after.requests), (before.limits, after.limits))
    return {name for was, now in kinds for name in was or {} if name not in (now or {})}


def is_valid(pod: Pod, gates: Mapping[str, bool]) -> bool:
    """Whether the API server would accept the pod, as far as resources go."""
    return is_covered(pod) and not validate_pod(default_pod(pod, gates), gates)


def is_covered(pod: Pod) -> bool:
    """Whether pod-level amounts cover those of the containers. Most useless edits fail here, which is far cheaper than
    a validation."""
    resources = pod.spec.resources
    if resources is None:
        return True
    total = aggregate(pod, lambda container: requests_of(container.resources))
    own: ResourceList = resources.requests or {}
    for name, quantity in own.items():
        if is_supported_pod_level_resource(name) and name in total and total[name] > quantity:
            return False
    limits: ResourceList = resources.limits or {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for name, limit in (container.resources.limits or {}).items():
            if name in limits and limit > limits[name]:
                return False
    return all(own[name] <= limit for name, limit in limits.items() if name in own)


def differences(before: Pod, after: Pod) -> tuple[Edit, ...]:
    """Return the fields in which two versions of a pod differ, limits and requests as in a manifest."""
    changed = []
    now = dict(places(after))
    for place, old in places(before):
        new = now.get(place, ResourceRequirements())
        for kind in ("requests", "limits"):
            was, is_now = getattr(old, kind) or {}, getattr(new, kind) or {}
            for name in {**was, **is_now}:
                if was.get(name) != is_now.get(name):
                    path = f"{field_path(before, place)}.{kind}.{name}"
                    changed.append(Edit(path, text_of(was.get(name)), text_of(is_now.get(name))))
    return tuple(changed)
