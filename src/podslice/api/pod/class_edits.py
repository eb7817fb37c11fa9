"""Equal requests and limits for what keeps a pod from being Guaranteed, and who spoils the class, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from podslice.api.pod.class_gaps import ClassGap, class_gaps, close_gaps
from podslice.api.pod.demand import BURSTABLE, GUARANTEED, compute_qos
from podslice.api.pod.eligibility import AdmissionPod, integral_cpus
from podslice.api.pod.injected import injector_of
from podslice.api.pod.spec import Container, Pod, PodStatus, ResourceRequirements, map_containers
from podslice.values.quantity import Quantity, plural

Amounts = dict[str, Quantity]
EXAMPLES = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("128Mi")}
"""Amounts for a container that names none."""
_MOST_NAMED = 2


def closing_amounts(gaps: Iterable[ClassGap], *, lower_cpu: bool) -> Amounts:
    """Return amounts that close gaps as requests and limits. `lower_cpu`: a CPU limit goes down to the request, so that
    a sidecar asks for no whole CPUs; else requests go up to the limit."""
    amounts = {}
    for gap in gaps:
        if gap.missing:
            amounts[gap.resource] = EXAMPLES[gap.resource] if gap.request.is_zero() else gap.request
        else:
            lower = lower_cpu and gap.resource == "cpu" and not gap.request.is_zero()
            amounts[gap.resource] = gap.request if lower else gap.limit
    return amounts


def with_amounts(pod: Pod, changes: Mapping[str, Amounts]) -> Pod:
    """Return a pod whose containers, by name, have these amounts as requests and limits; an empty name is the pod."""
    spec = map_containers(pod.spec, partial(_edit_container, changes=changes))
    if "" in changes:
        spec = msgspec.structs.replace(
            spec, resources=close_gaps(spec.resources or ResourceRequirements(), changes[""])
        )
    return msgspec.structs.replace(pod, spec=spec)


def _edit_container(container: Container, *, changes: Mapping[str, Amounts]) -> Container:
    if container.name not in changes:
        return container
    return msgspec.structs.replace(container, resources=close_gaps(container.resources, changes[container.name]))


def edit_words(gaps: Sequence[ClassGap], amounts: Amounts, *, guess: bool = True) -> str:
    """Return the fields to set, such as `limits.cpu: 100m and requests.memory: 1Gi`. `guess`: name an example where the
    container names no amount."""
    fields = []
    for gap in gaps:
        amount = amounts[gap.resource]
        if gap.missing and gap.request.is_zero():
            example = f" (say {amount})" if guess and gap.owner else ""
            fields.append(f"an equal {gap.resource} request and limit{example}")
        elif gap.missing or amount != gap.limit:
            fields.append(f"limits.{gap.resource}: {amount}")
        else:
            fields.append(f"requests.{gap.resource}: {amount}")
    return " and ".join(fields)


def gap_words(gaps: Sequence[ClassGap]) -> str:
    """Return what differs, after `has`: `no cpu and no memory limit`, `cpu request 100m below its limit 2`."""
    missing = [gap.resource for gap in gaps if gap.missing]
    clauses = [f"no {' and no '.join(missing)} limit"] if missing else []
    return " and ".join(clauses + [gap.clause for gap in gaps if not gap.missing])


def gaps_by_owner(pod: Pod, gates: Mapping[str, bool]) -> dict[str, list[ClassGap]]:
    """Return what keeps a defaulted pod from being Guaranteed, by container; an empty name is the pod."""
    groups: dict[str, list[ClassGap]] = {}
    for gap in class_gaps(pod, gates):
        groups.setdefault(gap.owner, []).append(gap)
    return groups


class Spoiler(NamedTuple):
    """A container, or the pod as a whole (empty name), that keeps a pod from being Guaranteed: `who` it is, `has` what
    differs, and the `edit` that, with those of the others, makes the pod Guaranteed."""

    name: str
    who: str
    has: str
    edit: str


class SpoiledPod(NamedTuple):
    """A pod whose containers ask for whole CPUs, and own none because of its class: the `spoilers`, the `edited` pod,
    and the whole CPUs that containers of it are entitled to, by name."""

    qos: str
    spoilers: tuple[Spoiler, ...]
    edited: Pod
    owners: Mapping[str, int]


def find_spoiled(pod: Pod, gates: Mapping[str, bool]) -> SpoiledPod | None:
    """Return why the containers of a defaulted pod that request whole CPUs own none; None where its class is not the
    reason, or where no equal amounts change it."""
    qos = pod.status.qos_class or compute_qos(pod, gates)
    wanting = {one.name for one in _lasting(pod) if _wants(one)}
    # Where no limit equals its request, a container that requests whole CPUs spoils its own pod.
    if not wanting and pod.spec.resources is None:
        wanting = {one.name for one in _lasting(pod) if _requests_whole(one)}
    if qos != BURSTABLE or not wanting:
        return None
    groups = gaps_by_owner(pod, gates)
    changes = {name: closing_amounts(gaps, lower_cpu=True) for name, gaps in groups.items()}
    # A class that the API server has stored is that of the pod before the edit.
    edited = msgspec.structs.replace(with_amounts(pod, changes), status=PodStatus())
    if not groups or compute_qos(edited, gates) != GUARANTEED:
        return None
    owners = {one.name: one.exclusive_cpus for one in AdmissionPod.of(edited, gates).containers if one.exclusive_cpus}
    kinds = container_kinds(pod)
    spoilers = [
        Spoiler(
            name,
            describe_container(name, kinds),
            gap_words(gaps),
            _edit_of(name, gaps, changes[name], guess=name not in wanting),
        )
        for name, gaps in groups.items()
    ]
    return SpoiledPod(qos, tuple(spoilers), edited, owners) if owners else None


def spoiled_sentences(found: SpoiledPod, *, admits: bool | None = None) -> tuple[str, str]:
    """Return why no container owns CPUs, and the smallest edit. `admits`: whether the node as it is admits the edited
    pod, None where that is not known."""
    named = [f"{one.who} has {one.has}" for one in found.spoilers[:_MOST_NAMED]]
    rest = len(found.spoilers) - _MOST_NAMED
    more = f", and {rest} more like that" if rest > 0 else ""
    why = f"No container owns CPUs, because {', and '.join(named)}{more}: the pod is {found.qos}."
    edits = "; ".join(one.edit for one in found.spoilers)
    verb = "owns" if admits else "can own"
    owned = " and ".join(f"{name} {verb} {plural(cpus, 'CPU')}" for name, cpus in found.owners.items())
    effect = owned if admits is not False else "the node as it is would refuse the pod"
    return why, f"Smallest edit: set {edits}. Then {effect}."


def _edit_of(name: str, gaps: Sequence[ClassGap], amounts: Amounts, *, guess: bool) -> str:
    """Return the fields to set and of what, with the annotations by which a webhook takes them."""
    source = injector_of(name)
    pairs = (
        [(source.settings[gap.resource], amounts[gap.resource]) for gap in gaps] if source and source.settings else []
    )
    keys = ", ".join(f"{request} and {limit}: {amount}" for (request, limit), amount in pairs)
    by = f", by the pod's annotations {keys}" if keys else ""
    return f"{edit_words(gaps, amounts, guess=guess)}{f' of {name}' if name else ' of the pod'}{by}"


def describe_container(name: str, kinds: Mapping[str, str]) -> str:
    """Return `sidecar istio-proxy (added by Istio)`; an empty name is the pod."""
    if not name:
        return "spec.resources"
    source = injector_of(name)
    return f"{kinds.get(name, 'container')} {name}{f' (added by {source.title})' if source else ''}"


def container_kinds(pod: Pod) -> dict[str, str]:
    """Return the kind of each container by its name, in words."""
    inits = {one.name: "sidecar" if one.restart_policy == "Always" else "init container"
             for one in pod.spec.init_containers}  # fmt: skip
    return inits | {one.name: "container" for one in pod.spec.containers}


def _lasting(pod: Pod) -> Iterable[Container]:
    """Return the containers that run as long as the pod."""
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    return (*sidecars, *pod.spec.containers)


def _wants(container: Container) -> bool:
    """Whether a container asks for whole CPUs with equal request and limit, as one does for exclusive ones."""
    limit = (container.resources.limits or {}).get("cpu")
    return bool(integral_cpus(limit)) and (container.resources.requests or {}).get("cpu") == limit


def _requests_whole(container: Container) -> bool:
    return bool(integral_cpus((container.resources.requests or {}).get("cpu")))
