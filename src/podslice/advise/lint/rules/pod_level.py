"""Rules about pods with one budget for all containers (`spec.resources`, KEP-2837 and KEP-5526)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from podslice.advise.explain.fixes.edits import POD, with_amounts, with_resources
from podslice.advise.lint.attempt import advise, with_cpus
from podslice.advise.lint.model import CONFIG, ERROR, INFO, WARNING, Problem, Rule
from podslice.advise.lint.subject import ContainerPath, PodSubject
from podslice.api.pod.capped_budget import capped_budgets
from podslice.api.pod.demand import (
    BEST_EFFORT,
    GUARANTEED,
    aggregate,
    is_container_equivalent_guaranteed,
    is_pod_level_resources_set,
    limits_of,
    requests_of,
)
from podslice.api.pod.eligibility import AdmissionPod, integral_cpus
from podslice.api.pod.spec import Pod, ResourceRequirements
from podslice.node.cpu.pod_pool import empty_cpu_pool, empty_memory_pool
from podslice.node.pod_remarks import describe_unused, unused_budget
from podslice.values.gate_table import gate_states
from podslice.values.quantity import ZERO, Quantity
from podslice.values.reasons import EMPTY_POD_SHARED_POOL, POD_LEVEL_RESOURCES

_SHARED = ("cpu", "memory")


def _is_set(subject: PodSubject) -> bool:
    return is_pod_level_resources_set(subject.pod) and subject.gates["PodLevelResources"]


def _empty_shared_pool(subject: PodSubject) -> Iterator[Problem]:
    """Report a budget that leaves nothing to share. It is computed as with the managers' gate; without a configuration
    the node may have it."""
    if not _is_set(subject) or subject.static_cpus is False or subject.qos != GUARANTEED:
        return
    if subject.node is not None and not subject.gates["PodLevelResourceManagers"]:
        return
    # Without a configuration the rule warns of nodes that have the gate.
    admission = AdmissionPod.of(subject.pod, {**subject.gates, "PodLevelResourceManagers": True})
    pool = empty_cpu_pool(admission, subject.quirks)
    if pool is not None:
        sum_text = " + ".join(f"{name} {cpus}" for name, cpus in pool.owners)
        budget = subject.pod_requests.get("cpu", ZERO)
        least = sum(cpus for _, cpus in pool.owners) + 1
        yield Problem(
            "spec.resources.requests[cpu]",
            f"the budget of {budget} CPUs goes to exclusive containers ({sum_text}) and leaves none for "
            f"{', '.join(pool.sharers)}: refused with {EMPTY_POD_SHARED_POOL} where the gate "
            "PodLevelResourceManagers is on",
            advise(subject, [(f"raise the budget to at least {least} CPUs", with_cpus(subject, "", least))]),
            ERROR if subject.node is not None else WARNING,
        )
    elif _may_charge_whole_pods(subject) and (pool := empty_memory_pool(admission)) is not None:
        sum_text = " + ".join(f"{name} {pool.shown(size)}" for name, size in pool.owners)
        yield Problem(
            f"spec.resources.requests[{pool.resource}]",
            f"the budget of {pool.shown(pool.budget)} goes to exclusive containers ({sum_text}) and leaves none for "
            f"{', '.join(pool.sharers)}: refused where the gate PodLevelResourceManagers is on, the Memory Manager is "
            "Static and the Topology Manager has scope pod",
            f"raise the budget of {pool.resource}, or let an exclusive container ask for less of it",
            ERROR if subject.node is not None else WARNING,
        )


def _may_charge_whole_pods(subject: PodSubject) -> bool:
    """Whether the node charges a pod's memory as a whole, or may: no configuration is known."""
    if subject.node is None:
        return True
    config = subject.node.config
    return config.aligns_pods and config.memory_manager_policy == "Static"


def _requests_over_budget(subject: PodSubject) -> Iterator[Problem]:
    if not _is_set(subject):
        return
    for name, total in sorted(aggregate(subject.pod, lambda c: requests_of(c.resources)).items()):
        budget = subject.pod_requests.get(name)
        if budget is not None and total > budget:
            yield Problem(
                f"spec.resources.requests[{name}]",
                f"the containers request {total} {name} together, the pod only {budget}: the API server refuses it",
                advise(subject, _raised(subject, name, total)),
            )


def _limit_over_pod_limit(subject: PodSubject) -> Iterator[Problem]:
    if not _is_set(subject):
        return
    for place in subject.places:
        for name, limit in sorted(place.limits.items()):
            budget = subject.pod_limits.get(name)
            if budget is None or limit <= budget:
                continue
            # The API server checks app containers only.
            app = place.kind == "container"
            effect = "the API server refuses it" if app else "only the pod's limit ever takes effect"
            yield Problem(
                f"{place.path}.resources.limits[{name}]",
                f"{name} limit {limit} of {place.container.name} is above the pod's limit {budget}: {effect}",
                advise(subject, _limits_that_agree(subject, place, name, budget)),
                ERROR if app else WARNING,
            )


def _raised(subject: PodSubject, name: str, amount: Quantity) -> Iterator[tuple[str, Pod]]:
    """Yield the pod with a larger request of its own, and its limit raised with it where that would be below."""
    limit = subject.pod_limits.get(name)
    text = f"set spec.resources.requests.{name}: {amount}"
    if limit is not None and limit < amount:
        text += f" and spec.resources.limits.{name}: {amount}"
    yield text, with_amounts(subject.pod, {(POD, name): amount})


def _limits_that_agree(
    subject: PodSubject, place: ContainerPath, name: str, budget: Quantity
) -> Iterator[tuple[str, Pod]]:
    """Yield the pod with the container's limit lowered to the pod's, and with the pod's raised to the container's."""
    own = place.container.resources
    lowered = msgspec.structs.replace(own, limits={**limits_of(own), name: budget})
    yield (
        f"set limits.{name} of {place.container.name}: {budget}",
        with_resources(subject.pod, place.container.name, lowered),
    )
    pod_level = subject.pod.spec.resources or ResourceRequirements()
    raised = msgspec.structs.replace(pod_level, limits={**subject.pod_limits, name: place.limits[name]})
    yield f"set spec.resources.limits.{name}: {place.limits[name]}", with_resources(subject.pod, POD, raised)


def _limits_over_budget(subject: PodSubject) -> Iterator[Problem]:
    if not _is_set(subject):
        return
    totals = aggregate(subject.pod, lambda c: limits_of(c.resources))
    for name in _SHARED:
        total, budget = totals.get(name, ZERO), subject.pod_limits.get(name)
        # PS205 reports a single limit above the pod's.
        above = [place for place in subject.places if budget is not None and place.limits.get(name, ZERO) > budget]
        if budget is not None and total > budget and not above:
            effect = "are throttled" if name == "cpu" else "meet the OOM killer"
            yield Problem(
                f"spec.resources.limits[{name}]",
                f"the containers' {name} limits add up to {total}, the pod's limit is {budget}: containers that use "
                f"their limits at the same time {effect} below them",
                f"fine if they take turns; else set spec.resources.limits.{name}: {total}",
            )


def _sidecars_eat_budget(subject: PodSubject) -> Iterator[Problem]:
    if not _is_set(subject):
        return
    sidecars = [place for place in subject.places if place.kind == "sidecar"]
    if not sidecars:
        return
    for name in _SHARED:
        budget = subject.pod_requests.get(name, ZERO)
        total = ZERO
        for place in sidecars:
            total = total.add(place.requests.get(name, ZERO))
        # Up to half of the budget is taken as intended.
        if budget.is_zero() or total.nano * 2 <= budget.nano:
            continue
        share = total.nano * 100 // budget.nano
        names = ", ".join(f"{p.container.name} {p.requests[name]}" for p in sidecars if name in p.requests)
        yield Problem(
            f"spec.resources.requests[{name}]",
            f"sidecars take {total} of the pod's {budget} {name} ({share} %: {names}), {budget.sub(total)} is left "
            "for the app containers",
            f"raise the pod's {name} by what the sidecars take, or lower their requests",
        )


def _budget_used_up(subject: PodSubject) -> Iterator[Problem]:
    if not _is_set(subject):
        return
    totals = aggregate(subject.pod, lambda c: requests_of(c.resources))
    for name in _SHARED:
        budget = subject.pod_requests.get(name, ZERO)
        bare = [p.container.name for p in subject.places if p.kind != "init" and p.requests.get(name, ZERO).is_zero()]
        if budget.is_zero() or not bare or totals.get(name, ZERO) != budget:
            continue
        # The kubelet derives the weight from the pod's limit then (PS207).
        if name == "cpu" and name in subject.pod_limits:
            continue
        effect = "lowest CPU weight" if name == "cpu" else "no share of the pod's memory in their OOM score"
        names = ", ".join(bare)
        yield Problem(
            f"spec.resources.requests[{name}]",
            f"the containers' own requests use up the pod's {budget} {name}, nothing is left for {names}: {effect}",
            f"raise spec.resources.requests.{name} by what {names} will use",
        )


def _empty_stanza(subject: PodSubject) -> Iterator[Problem]:
    if subject.written.spec.resources is None or _is_set(subject) or not subject.gates["PodLevelResources"]:
        return
    if any(place.requests or place.limits for place in subject.places):
        yield Problem(
            "spec.resources",
            f"names no cpu, memory or huge pages; Kubernetes v1.36.2 then ignores the containers and makes the pod "
            f"{BEST_EFFORT}: no limits on the pod, OOM score 1000, evicted first",
            "remove spec.resources",
        )


def _weight_from_pod_limit(subject: PodSubject) -> Iterator[Problem]:
    limit = subject.pod_limits.get("cpu", ZERO)
    if not _is_set(subject) or limit.is_zero():
        return
    running = [place for place in subject.places if place.kind != "init"]
    asking = [place for place in running if "cpu" in place.requests and not _may_own_cpus(subject, place)]
    bare = [place for place in running if "cpu" not in place.requests and "cpu" not in place.limits]
    lighter = max(asking, key=lambda place: place.requests["cpu"].nano, default=None)
    if not bare or lighter is None or lighter.requests["cpu"] >= limit:
        return
    names = ", ".join(place.container.name for place in bare)
    yield Problem(
        f"{bare[0].path}.resources",
        f"no cpu request: in v1.36.2 {names} has the CPU weight of the pod's whole limit ({limit}), more than "
        f"{lighter.container.name} with its request of {lighter.requests['cpu']}",
        f"give {names} a cpu request",
    )


def _may_own_cpus(subject: PodSubject, place: ContainerPath) -> bool:
    """Whether the container owns CPUs where the managers act, so that weights do not concern it."""
    whole = bool(integral_cpus(place.requests.get("cpu"))) and is_container_equivalent_guaranteed(place.container)
    return whole and subject.qos == GUARANTEED and subject.static_cpus is not False


def _partial_budget(subject: PodSubject) -> Iterator[Problem]:
    if not _is_set(subject) or "memory" in subject.pod_requests:
        return
    memory: Quantity = aggregate(subject.pod, lambda c: requests_of(c.resources)).get("memory", ZERO)
    if not memory.is_zero():
        yield Problem(
            "spec.resources.requests",
            f"names no memory, so v1.36.2 counts 0 when it ranks pods for eviction although the containers request "
            f"{memory}: the pod is evicted first under memory pressure",
            advise(subject, _raised(subject, "memory", memory)),
        )


def _not_supported(subject: PodSubject) -> Iterator[Problem]:
    node = subject.node
    if node is None or node.gates["PodLevelResources"] or not is_pod_level_resources_set(subject.pod):
        return
    minor = node.release.minor
    has_gate = "PodLevelResources" in gate_states(minor)
    fix = (
        "enable the gate PodLevelResources"
        if has_gate
        else f"move them to the containers: 1.{minor} has no gate for it"
    )
    if node.release.refuses_pod_level_resources:
        message = f"the kubelet's gate PodLevelResources is off: the pod is refused with {POD_LEVEL_RESOURCES}"
        yield Problem("spec.resources", message, fix)
    else:
        message = (
            f"a kubelet of 1.{minor} without the gate PodLevelResources does not read it: only the containers count"
        )
        yield Problem("spec.resources", message, fix, WARNING)


def _container_scope(subject: PodSubject) -> Iterator[Problem]:
    node = subject.node
    if node is None or not _is_set(subject) or not subject.gates["PodLevelResourceManagers"]:
        return
    config = node.config
    if not config.aligns or config.topology_manager_scope == "pod" or subject.qos != GUARANTEED:
        return
    sharing = [
        place.container.name for place in subject.places if not is_container_equivalent_guaranteed(place.container)
    ]
    if sharing:
        yield Problem(
            "spec.resources",
            f"scope container aligns each container by itself and looks at no budget: {', '.join(sharing)} will run on "
            "the node's shared pool",
            "set topologyManagerScope to pod, or give these containers requests equal to limits",
        )


def _budget_unused(subject: PodSubject) -> Iterator[Problem]:
    """Report CPUs that are reserved in pod scope and that no container can use."""
    node = subject.node
    if node is None or not _is_set(subject) or not subject.gates["PodLevelResourceManagers"]:
        return
    admission = AdmissionPod.of(subject.pod, subject.gates)
    if not (subject.static_cpus and node.config.aligns_pods and admission.cpus):
        return
    if left := unused_budget(admission):
        yield Problem(
            "spec.resources.requests[cpu]",
            describe_unused(admission),
            advise(
                subject,
                [(f"lower the budget to {admission.cpus - left} CPUs", with_cpus(subject, "", admission.cpus - left))],
                "let a container share what is left",
            ),
        )


def _budget_capped(subject: PodSubject) -> Iterator[Problem]:
    # PS213 reports CPUs that the managers divide.
    divided = any(_budget_unused(subject))
    for one in capped_budgets(subject.pod, subject.gates):
        if one.resource == "cpu" and divided:
            continue
        yield Problem(
            f"spec.resources.requests[{one.resource}]",
            one.sentence,
            f"set spec.resources.requests.{one.resource}: {one.usable}, or leave a container without a limit",
        )


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS201",
        "empty-pod-shared-pool",
        ERROR,
        "The pod's shared pool would be empty",
        "In a Guaranteed pod with spec.resources, containers with whole CPUs of their own take them out of the pod's "
        "budget (gate PodLevelResourceManagers). If they take all of it while other containers have to share, the "
        "kubelet refuses the pod. With the static Memory Manager in pod scope the same holds for memory and huge "
        "pages. Without a configuration this is a warning.",
        _empty_shared_pool,
        replaces=("PS501",),
        others=(WARNING,),
    ),
    Rule(
        "PS203",
        "sidecars-eat-budget",
        WARNING,
        "Sidecars take more than half of the pod's budget",
        "Restartable init containers run as long as the pod and their requests come out of spec.resources. When the "
        "budget was sized for the application alone, an injected proxy or log shipper takes it away.",
        _sidecars_eat_budget,
    ),
    Rule(
        "PS204",
        "requests-over-budget",
        ERROR,
        "Containers request more than the pod",
        "The aggregate of the containers' requests (the larger of the running sum and the init peak) must fit into "
        "spec.resources.requests, else the API server refuses the pod. Requests that the pod does not name are "
        "defaulted from the containers, or else from the pod's limits.",
        _requests_over_budget,
    ),
    Rule(
        "PS205",
        "limit-over-pod-limit",
        ERROR,
        "A container's limit is above the pod's limit",
        "An app container's limit must not exceed the pod's. For init containers and sidecars the API server does not "
        "check it; the pod's cgroup wins, so the larger figure only misleads (a warning).",
        _limit_over_pod_limit,
        others=(WARNING,),
    ),
    Rule(
        "PS206",
        "empty-pod-resources",
        WARNING,
        "spec.resources without any supported resource",
        "An empty spec.resources (or one that names nothing supported) hides the containers when v1.36.2 computes the "
        "QoS class: the pod becomes BestEffort whatever its containers have. KEP-2837 calls this a defect and fixes "
        "it with the gate PodLevelResourcesFixKubeletQOSClass in a later release.",
        _empty_stanza,
    ),
    Rule(
        "PS207",
        "weight-from-pod-limit",
        INFO,
        "A container without cpu request outweighs its neighbours",
        "The kubelet of v1.36.2 derives the CPU weight of a container without cpu request from its limit, and a "
        "container without limit has the pod's. So the container that asks for nothing gets the weight of the whole "
        "pod, and more CPU time under contention than a neighbour with a request.",
        _weight_from_pod_limit,
    ),
    Rule(
        "PS208",
        "budget-without-memory",
        WARNING,
        "A budget without memory loses the memory requests at eviction",
        "As soon as spec.resources names any resource, the ranking for eviction and preemption reads only "
        "spec.resources. A budget with cpu alone therefore counts as a memory request of 0, and the pod is evicted "
        "before pods that ask for less.",
        _partial_budget,
    ),
    Rule(
        "PS209",
        "budget-used-up",
        INFO,
        "The containers' own requests use up the budget",
        "Containers without a request share what the others leave of spec.resources.requests. Here nothing is left: "
        "they get the lowest CPU weight, or no share of the pod's memory in the OOM score.",
        _budget_used_up,
    ),
    Rule(
        "PS210",
        "limits-over-budget",
        INFO,
        "Container limits add up to more than the pod's limit",
        "Sharing is the purpose of pod-level limits, so this is an information: when containers use their limits at "
        "the same time, the pod's cgroup throttles them (cpu) or the OOM killer acts inside the pod (memory) although "
        "no container is above its own limit.",
        _limits_over_budget,
    ),
    Rule(
        "PS211",
        "pod-level-not-supported",
        ERROR,
        "The kubelet refuses pod-level resources",
        "With the gate PodLevelResources off the kubelet refuses every pod that has spec.resources, with reason "
        "PodLevelResourcesNotSupported. Before 1.34 it does not read the field instead, which is a warning.",
        _not_supported,
        needs=CONFIG,
        others=(WARNING,),
        replaces=("PS501",),
    ),
    Rule(
        "PS212",
        "pod-level-in-container-scope",
        WARNING,
        "The Topology Manager's scope ignores the pod's budget",
        "With scope container the resource managers look at containers only: those without whole resources of their "
        "own get the node's shared pool, and the budget of spec.resources is neither exclusive nor aligned. KEP-2837 "
        "wanted such pods refused with a word about scope pod; KEP-5526 and v1.36.2 admit them.",
        _container_scope,
        needs=CONFIG,
    ),
    Rule(
        "PS213",
        "budget-nobody-can-use",
        WARNING,
        "CPUs of the pod's budget that no container can use",
        "In pod scope the whole budget is taken from the node. Containers with whole CPUs own their part; what is left "
        "is the pod's shared pool. Where no container shares, its CPUs stay idle (KEP-5526, underutilization).",
        _budget_unused,
        needs=CONFIG,
    ),
    Rule(
        "PS214",
        "budget-above-limits",
        INFO,
        "The pod reserves more than its containers' limits allow",
        "The scheduler and the kubelet count spec.resources. Where every container has a limit of its own, and the "
        "limits add up to less, the rest is reserved and never used.",
        _budget_capped,
    ),
)
