"""Rules about the QoS class and what depends on it: exclusive CPUs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from podslice.advise.lint.attempt import admit_on_empty_node, choose_tried, explain_fix, with_cpus
from podslice.advise.lint.equalize import advice, lost_cpus, unequal_parts, wanting_cpus, whole_cpus
from podslice.advise.lint.model import CONFIG, ERROR, INFO, WARNING, Problem, Rule, count_cpus
from podslice.advise.lint.subject import NodeSubject, PodSubject
from podslice.api.pod.demand import BURSTABLE, GUARANTEED
from podslice.api.pod.eligibility import integral_cpus
from podslice.api.pod.spec import ResourceList
from podslice.values.gate_table import gate_states
from podslice.values.quantity import ZERO, Quantity

_ONE_CPU = Quantity.of(1)
_QUOTA_GATE = "DisableCPUQuotaWithExclusiveCPUs"


def _equal_integral_cpus(requests: ResourceList, limits: ResourceList) -> int:
    cpus = integral_cpus(limits.get("cpu"))
    # Without equality the pod is Burstable, and no CPU is exclusive.
    return cpus if cpus and requests.get("cpu") == limits["cpu"] else 0


def _severity(subject: PodSubject, *, wants_cpus: bool) -> str:
    """Return WARNING where exclusive CPUs are lost on a node that is known to assign them, else INFO."""
    return WARNING if wants_cpus and subject.static_cpus else INFO


def _nearly_guaranteed(subject: PodSubject) -> Iterator[Problem]:
    parts = unequal_parts(subject) if subject.qos == BURSTABLE else []
    if len(parts) != 1 or len(parts[0].gaps) != 1:
        return
    (part,) = parts
    cpus = {place.container.name: whole_cpus(place) for place in subject.places}
    # PS103 reports this case, with the exclusive CPUs that it costs.
    if part.gaps[0].resource == "memory" and (cpus.get(part.name) or _budget_cpus(subject)):
        return
    lost = lost_cpus(subject) if subject.static_cpus is not False and not subject.admission.pod_level else ""
    effect = f", and no container owns CPUs ({lost})" if lost else ""
    yield Problem(
        part.path,
        f"{part.name or 'the pod'} has {part.clauses}; everything else is equal, so the pod is Burstable by this field "
        f"alone{effect}",
        advice(subject, part),
        _severity(subject, wants_cpus=bool(wanting_cpus(subject))),
    )


def _budget_cpus(subject: PodSubject) -> int:
    """Return the whole CPUs that a pod with pod-level resources asks for with equal request and limit."""
    return _equal_integral_cpus(subject.pod_requests, subject.pod_limits) if subject.pod_limits else 0


def _integral_cpus_other_memory(subject: PodSubject) -> Iterator[Problem]:
    if subject.qos != BURSTABLE or subject.static_cpus is False or _claims_devices(subject):
        return
    cpus = {place.container.name: whole_cpus(place) for place in subject.places} | {"": _budget_cpus(subject)}
    for part in unequal_parts(subject):
        if cpus[part.name] and len(part.gaps) == 1:
            yield Problem(
                part.path,
                f"{part.name or 'the pod'} asks for {count_cpus(cpus[part.name], 'whole')} but has {part.clauses}: the "
                "pod is Burstable and the CPUs will not be exclusive",
                advice(subject, part),
                _severity(subject, wants_cpus=True),
            )


def _claims_devices(subject: PodSubject) -> bool:
    """Whether some container uses resource claims; its CPUs may come from a DRA driver, whatever the QoS class."""
    return any(place.container.resources.claims for place in subject.places)


def _fractional_cpus(subject: PodSubject) -> Iterator[Problem]:
    if subject.qos != GUARANTEED or subject.static_cpus is False or subject.admission.ignored:
        return
    mixed = subject.admission.mixed_shares
    sets = [
        (f"{p.path}.resources", p.requests, p.container.name) for p in subject.places if p.container.name not in mixed
    ]
    if subject.admission.managed:
        sets = [("spec.resources", subject.pod_requests, "the pod")]
    for path, requests, owner in sets:
        cpus = requests.get("cpu", ZERO)
        # Below one CPU sharing is meant.
        if cpus > _ONE_CPU and cpus.nano % _ONE_CPU.nano:
            above, name = -(-cpus.nano // _ONE_CPU.nano), "" if owner == "the pod" else owner
            choices = ((str(count), with_cpus(subject, name, count)) for count in (above - 1, above))
            yield Problem(
                f"{path}.limits[cpu]",
                f"{owner} is Guaranteed and asks for {cpus} CPUs, not a whole number, so the static CPU manager "
                "leaves it in the shared pool",
                f"ask for {found} CPUs" if (found := choose_tried(subject, choices, name)) else explain_fix(subject),
                _severity(subject, wants_cpus=True),
            )


def _partial_cores(subject: PodSubject) -> Iterator[Problem]:
    node = subject.node
    if node is None or not node.options.full_pcpus_only or not subject.admission.guaranteed:
        return
    threads, known = 2, ""
    if node.view is not None:
        threads = node.view.topology.cpus_per_core
    else:
        # Two threads are by far the most common with SMT.
        known = " (assumed without --machine)"
    if threads < 2:
        return
    admission = subject.admission
    if admission.managed and admission.cpus % threads:
        yield _partial(subject, "spec.resources.requests[cpu]", "", admission.cpus, (threads, known))
    for place, container in zip(subject.places, admission.containers, strict=True):
        if not admission.ignored and container.exclusive_cpus % threads:
            path = f"{place.path}.resources.limits[cpu]"
            yield _partial(subject, path, container.name, container.exclusive_cpus, (threads, known))


def _partial(subject: PodSubject, path: str, owner: str, cpus: int, cores: tuple[int, str]) -> Problem:
    threads, known = cores
    below = cpus - cpus % threads
    counts = [count for count in (below, below + threads) if count]
    tried = choose_tried(subject, [(str(count), with_cpus(subject, owner, count)) for count in counts], owner)
    return Problem(
        path,
        f"{owner or 'the pod'} asks for {count_cpus(cpus, 'exclusive')}, not a multiple of {threads} threads per "
        f"core{known}: full-pcpus-only refuses the pod with SMTAlignmentError",
        f"ask for {tried} CPUs" if tried else explain_fix(subject),
        WARNING if known else ERROR,
    )


def _pod_level_ignored(subject: PodSubject) -> Iterator[Problem]:
    node = subject.node
    if node is None or not node.static_cpus or not subject.admission.ignored or subject.qos != GUARANTEED:
        return
    cpus = integral_cpus(subject.pod_requests.get("cpu"))
    if not cpus:
        return
    minor = node.release.minor
    gate = "without the gate PodLevelResourceManagers " if "PodLevelResourceManagers" in gate_states(minor) else ""
    yield Problem(
        "spec.resources.requests[cpu]",
        f"the pod's {count_cpus(cpus)} will not be exclusive: {gate}the CPU, memory and topology managers of 1.{minor} "
        "leave pods with spec.resources alone, without an event",
        "enable the kubelet's feature gate PodLevelResourceManagers, or move the resources to the containers"
        if gate and _owns_with_managers(subject, node)
        else "move the resources to the containers",
    )


def _owns_with_managers(subject: PodSubject, node: NodeSubject) -> bool:
    """Whether the pod owns CPUs under the gate, on the empty node where it is known."""
    gates = {**node.config.feature_gates, "PodLevelResources": True, "PodLevelResourceManagers": True}
    config = msgspec.structs.replace(node.config, feature_gates=gates)
    other = NodeSubject(config, node.machine, profile=node.profile, devices=node.devices, policy=node.policy)
    if other.errors or other.gate_error or other.start_error:
        return False
    changed = PodSubject(subject.written, other, policy=subject.policy)
    if other.view is None:
        own = any(one.exclusive_cpus for one in changed.admission.containers)
        return own or (bool(changed.admission.cpus) and config.aligns_pods)
    decision = admit_on_empty_node(changed, changed.written)
    return decision is not None and (bool(decision.pod_cpus) or any(one.exclusive for one in decision.containers))


def _quota_on_exclusive_cpus(subject: PodSubject) -> Iterator[Problem]:
    node = subject.node
    if node is None or not node.static_cpus or not node.config.cpu_cfs_quota:
        return
    if node.gates[_QUOTA_GATE] or subject.admission.ignored:
        return
    minor = node.release.minor
    has_gate = _QUOTA_GATE in gate_states(minor)
    why = f"the kubelet's gate {_QUOTA_GATE} is off" if has_gate else f"a kubelet of 1.{minor} enforces every CPU limit"
    for place, container in zip(subject.places, subject.admission.containers, strict=True):
        if container.exclusive_cpus:
            yield Problem(
                f"{place.path}.resources.limits[cpu]",
                f"{container.name} owns {count_cpus(container.exclusive_cpus)} and is throttled by CFS quota, because "
                f"{why}",
                f"leave the gate {_QUOTA_GATE} on"
                if has_gate
                else "Kubernetes 1.33 leaves the quota out; before it, "
                "cpuCFSQuota: false does, for every pod of the node",
                WARNING if has_gate else INFO,
            )


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS101",
        "nearly-guaranteed",
        INFO,
        "Guaranteed but for one field",
        "A pod is Guaranteed when every container (or spec.resources) has cpu and memory limits and equal requests. "
        "This pod misses it by one field, so it is Burstable: it gets no exclusive CPUs, no NUMA alignment, and is "
        "evicted earlier. Leaving out the CPU limit on purpose is common; then ignore this. It is a warning on a "
        "node with the static CPU manager when some container asks for whole CPUs with request equal to limit.",
        _nearly_guaranteed,
        others=(WARNING,),
    ),
    Rule(
        "PS102",
        "fractional-cpus",
        WARNING,
        "Fractional CPUs are not exclusive",
        "The static CPU manager gives CPUs of their own only to containers of Guaranteed pods that ask for a whole "
        "number. A container that asks for 1500m runs in the shared pool with everyone else. Without a kubelet "
        "configuration this is only an information; below one CPU nothing is reported.",
        _fractional_cpus,
        others=(INFO,),
    ),
    Rule(
        "PS103",
        "whole-cpus-other-memory",
        WARNING,
        "Whole CPUs, but memory request and limit differ",
        "The container asks for whole CPUs with request equal to limit, as one does for exclusive CPUs. Its memory "
        "request and limit differ (or the limit is missing), which makes the pod Burstable, so no CPU is exclusive. "
        "Without a kubelet configuration this is an information; pods with resource claims are left out, because a "
        "DRA driver may give them CPUs.",
        _integral_cpus_other_memory,
        others=(INFO,),
    ),
    Rule(
        "PS105",
        "partial-cores",
        ERROR,
        "CPU count does not fill whole cores",
        "With the CPU manager option full-pcpus-only a container gets whole physical cores. A count that is not a "
        "multiple of the threads per core is refused at admission with SMTAlignmentError. Without a machine two "
        "threads per core are assumed, and the finding is a warning.",
        _partial_cores,
        CONFIG,
        ("PS501",),
        others=(WARNING,),
    ),
    Rule(
        "PS106",
        "pod-level-ignored",
        WARNING,
        "The managers ignore pods with pod-level resources",
        "A Guaranteed pod with spec.resources asks for whole CPUs on a node with the static CPU manager, but the "
        "alpha gate PodLevelResourceManagers is off, or the release has none. The kubelet then runs the pod in the "
        "shared pool without an event.",
        _pod_level_ignored,
        CONFIG,
    ),
    Rule(
        "PS107",
        "quota-on-exclusive-cpus",
        WARNING,
        "CFS quota throttles exclusive CPUs",
        "The quota of a container that owns all its CPUs can only do harm: short overruns of the accounting throttle "
        "it although no other container may run there. Kubernetes switches the quota off since 1.33; the gate "
        "DisableCPUQuotaWithExclusiveCPUs brings the old behaviour back. Before 1.33 it is a note.",
        _quota_on_exclusive_cpus,
        CONFIG,
        others=(INFO,),
    ),
)
