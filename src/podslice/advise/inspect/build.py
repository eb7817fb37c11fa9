"""Building the page about a pod, one step after the other, from the functions that the rest of the library uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from podslice.advise.inspect import cgroups
from podslice.advise.inspect.counts import counts
from podslice.advise.inspect.facts import Gates, KnownNode
from podslice.advise.inspect.formula import PodDefaults, effective
from podslice.advise.inspect.page import Page, Placement
from podslice.advise.inspect.qos_reason import qos
from podslice.advise.inspect.remarks import remarks
from podslice.advise.inspect.stages import Stages, amount_rows
from podslice.api.pod.capped_budget import capped_budgets
from podslice.api.pod.implicit_claims import complete_claims
from podslice.api.pod.spec import Pod
from podslice.api.server.create import as_stored, is_live, prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.limitrange import POD, LimitRange, apply_defaults
from podslice.api.server.limitrange_check import limit_range_refusals
from podslice.api.server.validate import validate_create, validate_pod
from podslice.api.server.warnings import create_warnings
from podslice.config.mixed import make_admission_pod
from podslice.node.decision import Decision
from podslice.node.effects.quota_words import quota_sentence
from podslice.node.node import Node
from podslice.node.pod_remarks import budget_remarks, describe_reserved
from podslice.values.errors import UpstreamDefectError
from podslice.values.quirks import Quirks
from podslice.values.reasons import UPSTREAM_DEFECT

_NO_OWNERS: Mapping[str, bool] = {}


def inspect_pod(
    pod: Pod,
    gates: Gates,
    quirks: Quirks,
    *,
    kind: str = "Pod",
    data: Mapping[str, Any] | None = None,
    limit_ranges: Sequence[LimitRange] = (),
    view: KnownNode | None = None,
    node: Node | None = None,
) -> Page:
    """Return the page about a pod as it was written.

    `kind` is the object it came from; `data` is the pod's plain data, for amounts as they were spelled. `view` holds
    the known facts of the node. `node` is an empty node on which the pod is admitted and removed again, which decides
    about exclusive CPUs.
    """
    view = view or KnownNode()
    stages = _stages(pod, gates, limit_ranges)
    live = is_live(pod)
    # A pod read from the API server has its defaults, and is not created again.
    kept = live or pod.status.qos_class
    prepared = stages.final if kept else prepare_for_create(stages.final, gates)
    checked = stages.final if kept else _as_created(stages, gates, limit_ranges)
    errors = validate_pod(checked, gates) if live else validate_create(checked, gates)
    placement, owners, seen = _place(prepared, node) if node is not None else (None, _NO_OWNERS, ())
    if node is None:
        owners = _entitled(prepared, gates, view)
        seen = tuple(one.sentence for one in capped_budgets(prepared, gates))
    owning = [name for name, limited in owners.items() if not limited]
    return Page(
        kind=kind,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        amounts=amount_rows(_as_stored(stages), data),
        errors=tuple(sorted(str(error) for error in errors)),
        warnings=tuple(create_warnings(checked)),
        refusals=_refusals(checked, gates, limit_ranges),
        remarks=(*remarks(pod, prepared, gates, quirks, view), *seen),
        qos=qos(stages.final, gates),
        effective=effective(prepared, gates, pod, _pod_defaults(limit_ranges)),
        cgroups=cgroups.cgroups(prepared, gates, quirks, view, owners),
        cgroup_notes=cgroups.notes(prepared, gates, quirks, view, owners),
        counts=counts(prepared, gates, quirks, view),
        placement=placement,
        quota=quota_sentence(prepared, gates, view.release, owning, cfs_quota=view.config.cpu_cfs_quota),
    )


def _entitled(pod: Pod, gates: Gates, view: KnownNode) -> Mapping[str, bool]:
    """Return the containers that own CPUs once a node with this configuration admits the pod, as `_place`."""
    if view.config.cpu_manager_policy != "static":
        return _NO_OWNERS
    admission = make_admission_pod(view.policy, pod, gates, release=view.release)
    return {one.name: False for one in admission.containers if one.exclusive_cpus and not one.mixed}


def _stages(pod: Pod, gates: Gates, limit_ranges: Sequence[LimitRange]) -> Stages:
    """Return the pod at each stage. LimitRange objects come after the defaults; reading the pod back applies the
    defaults once more."""
    defaulted = default_pod(pod, gates)
    final = default_pod(apply_defaults(defaulted, limit_ranges, gates), gates) if limit_ranges else defaulted
    if pod.spec.resources is not None and not gates["PodLevelResources"]:
        final = msgspec.structs.replace(final, spec=msgspec.structs.replace(final.spec, resources=None))
    return Stages(pod, defaulted, final)


def _as_created(stages: Stages, gates: Gates, limit_ranges: Sequence[LimitRange]) -> Pod:
    """Return the pod as it is validated on creation: before it is read back."""
    return prepare_for_create(apply_defaults(stages.defaulted, limit_ranges, gates), gates)


def _as_stored(stages: Stages) -> Stages:
    """Return the pod as readers see it: a sum in units of 1024 that is beyond 64 bits is cut on its way."""
    return stages._replace(defaulted=as_stored(stages.defaulted), final=as_stored(stages.final))


def _pod_defaults(limit_ranges: Sequence[LimitRange]) -> PodDefaults:
    """Return the defaults of the objects for whole pods; later ones win."""
    found = {}
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits:
            if item.type == POD:
                for field, amounts in (("requests", item.default_request), ("limits", item.default)):
                    for name, amount in (amounts or {}).items():
                        found[f"spec.resources.{field}", name] = (amount, limit_range.metadata.name)
    return found


def _refusals(pod: Pod, gates: Gates, limit_ranges: Sequence[LimitRange]) -> tuple[str, ...]:
    found = []
    for limit_range in limit_ranges:
        name = limit_range.metadata.name or "LimitRange"
        found += [f"{name}: {text}" for text in dict.fromkeys(limit_range_refusals(pod, limit_range, gates))]
    return tuple(found)


def _place(pod: Pod, node: Node) -> tuple[Placement, Mapping[str, bool], tuple[str, ...]]:
    """Return the verdict, for each container that owns CPUs whether its CPU limit is enforced all the same, and remarks
    about its CPUs."""
    try:
        decision = node.admit(complete_claims(pod)[0])
    except UpstreamDefectError as defect:
        return Placement(False, UPSTREAM_DEFECT, defect.sentence), _NO_OWNERS, ()
    if not decision.admitted:
        return Placement(False, decision.reason, decision.message), _NO_OWNERS, ()
    seen = tuple(_remarks_of(decision, node))
    # The next page begins on an empty node as well.
    node.remove(decision.uid)
    cpus = {one.name: str(one.cpus) for one in decision.containers if one.isolation != "host"}
    events = tuple(f"{event.type} {event.reason}: {event.message}" for event in decision.events)
    mixed = {one.name: one.cfs_quota for one in decision.containers if one.isolation == "mixed"}
    owners = {one.name: False for one in decision.containers if one.exclusive}
    return Placement(True, cpus=cpus, events=events), owners | mixed, seen


def _remarks_of(decision: Decision, node: Node) -> Iterator[str]:
    for container in decision.containers:
        if given := container.exclusive_cpus & node.reserved_cpus:
            yield describe_reserved(container.name, given)
    admission = node.view.pods.get(decision.uid)
    if admission is not None:
        yield from budget_remarks(admission, node.view.gates, whole=node.view.places_whole(admission))
