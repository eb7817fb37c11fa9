"""The trace of one decision: requests, eligibility, hints, the merge that decided, picks and writes.

Made from a `Record` after the fact, so that admission itself stays fast. Sets of NUMA nodes and CPUs are `CPUSet`s.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from podslice.advise.explain.candidates import Candidate, candidates
from podslice.advise.explain.picks import Unit, units
from podslice.advise.explain.scores import ScoredNodes, scores_of
from podslice.advise.explain.verdict import refusal_code
from podslice.advise.trial.record import Allocation, HintRound, Record
from podslice.api.pod.demand import overflows
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.spec import ResourceList, ResourceRequirements
from podslice.node.checkpoints.names import CPU_STATE_FILE, DEVICE_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.cpu.pod_level import POD_POOL_EMPTY
from podslice.node.refusal import POD_POOL_CODES
from podslice.node.topology.endless import DEFECT as ENDLESS
from podslice.node.topology.hint import NO_AFFINITY, Hint
from podslice.node.topology.hintset import HintSet
from podslice.node.topology.merge import Merged, Merger
from podslice.node.view import NodeView
from podslice.values.cpuset import CPUSet, format_bits
from podslice.values.errors import Refusal, UpstreamDefectError


class Requested(msgspec.Struct, frozen=True, rename="camel"):
    """One amount: what counts, and the field it came from (`requests`, or `limits` where requests are missing)."""

    resource: str
    amount: str
    source: str


class ContainerFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A container, or the pod as a whole (`name` empty): its requests, and whether it may own CPUs and why."""

    name: str
    kind: str
    requested: tuple[Requested, ...]
    eligibility: str
    exclusive_cpus: int


class ShownHint(msgspec.Struct, frozen=True, rename="camel"):
    """One hint: a set of NUMA nodes (None: any), preferred or not."""

    nodes: CPUSet | None
    preferred: bool


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """A provider's hints for one resource. `hints` None: no preference; empty: impossible. `complete` False: the
    machine has too many sets to list; these are some of them."""

    provider: str
    resource: str
    hints: tuple[ShownHint, ...] | None
    complete: bool = True


class MergeStep(msgspec.Struct, frozen=True, rename="camel"):
    """One merge: the answers, its result, and the table of all candidate sets.

    `container` None means the pod as a whole; `common` are the sets that every answer prefers, `nodes` the chosen one.
    `scores` is filled where a policy's scored best-effort decided; `tied` are the sets that differ from the chosen one
    in nothing but their numbers, with it.
    """

    container: str | None
    policy: str
    answers: tuple[Answer, ...]
    common: tuple[CPUSet, ...]
    nodes: CPUSet | None
    preferred: bool
    admitted: bool
    candidates: tuple[Candidate, ...]
    scores: tuple[ScoredNodes, ...] = ()
    tied: tuple[CPUSet, ...] = ()


class ShownPick(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs that a container (None: the pod as a whole) was assigned, as the units in which they were picked."""

    container: str | None
    cpus: CPUSet
    order: tuple[Unit, ...]


class Write(msgspec.Struct, frozen=True, rename="camel"):
    """A value that admission puts into a state file or a cgroup: where, for which container, and the value."""

    where: str
    owner: str
    value: str


class Trace(msgspec.Struct, frozen=True, rename="camel"):
    """Everything about one decision. `code` is stable (`codes.REFUSALS`), empty when admitted; `reason` and
    `message` are upstream's."""

    name: str
    namespace: str
    uid: str
    qos: str
    admitted: bool
    reason: str
    message: str
    code: str
    scope: str
    containers: tuple[ContainerFacts, ...]
    steps: tuple[MergeStep, ...]
    picks: tuple[ShownPick, ...]
    writes: tuple[Write, ...]
    failed: str = ""
    """The manager that could not allocate on the chosen NUMA nodes, and its error; empty otherwise."""
    reserved: CPUSet = CPUSet()
    """CPUs that are reserved for the system and that no container may own."""


def trace(node: NodeView, pod: AdmissionPod, record: Record, refusal: Refusal | None) -> Trace:
    """Return the trace of an admission that was recorded on a node; `node` is as it was afterwards."""
    rounds = record.steps
    if refusal is not None and refusal.facts.get("name") == ENDLESS:
        # Of these hints nothing was merged: the kubelet never came to the end of them.
        rounds = rounds[:-1]
    steps = tuple(_merge_step(node, pod, step, record.merger) for step in rounds)
    if not steps:
        steps = (_step_without_merge(node, pod, record.before),)
    failed = next((f"{t.provider}: {t.error}" for t in record.allocations if t.error), "")
    metadata = pod.spec.metadata
    return Trace(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=pod.uid,
        qos=pod.qos,
        admitted=refusal is None,
        reason=refusal.reason if refusal else "",
        message=refusal.message if refusal else "",
        code=_code(node, pod, refusal, steps[-1], failed.partition(":")[0]) if refusal else "",
        scope=node.config.topology_manager_scope if node.aligns else "none",
        containers=_facts(node, pod),
        steps=steps,
        picks=() if refusal else tuple(_picks(node, record.allocations)),
        writes=() if refusal else _writes(node, pod),
        failed=failed,
        reserved=CPUSet.from_bits(node.reserved if node.pins_cpus else 0),
    )


def _code(node: NodeView, pod: AdmissionPod, refusal: Refusal, last: MergeStep, failed: str) -> str:
    if refusal.code in POD_POOL_CODES and node.empty_pool(pod) is not None:
        return POD_POOL_EMPTY
    return refusal_code(refusal, last.candidates, policy=last.policy, merged=not last.admitted, failed=failed)


# Requests


def eligibility(node: NodeView, pod: AdmissionPod) -> dict[str, str]:
    """Return for each container the code of why it may own CPUs or not (`codes.ELIGIBILITY`)."""
    return {facts.name: facts.eligibility for facts in _facts(node, pod) if facts.name}


def _facts(node: NodeView, pod: AdmissionPod) -> tuple[ContainerFacts, ...]:
    """Return the requests and the eligibility of every container, with pod-level resources of the pod as well."""
    static = node.pins_cpus
    undivided = static and node.places_whole(pod) and pod.guaranteed and not pod.cpus
    facts = [
        ContainerFacts(
            container.name,
            "sidecar" if container.restartable else "init" if container.init else "container",
            _requests(container.spec.resources),
            "budget-fraction"
            if undivided and container.exclusive_cpus
            else _eligibility(pod, container, static=static),
            container.exclusive_cpus if static and not pod.ignored and not undivided else 0,
        )
        for container in pod.containers
    ]
    if pod.pod_level and pod.spec.spec.resources is not None:
        code = _pod_eligibility(node, pod)
        own = _requests(pod.spec.spec.resources)
        facts.insert(0, ContainerFacts("", "pod", own, code, pod.cpus if code == "exclusive" else 0))
    return tuple(facts)


def _pod_eligibility(node: NodeView, pod: AdmissionPod) -> str:
    """Return the code of why the pod as a whole may own CPUs or not."""
    if not node.pins_cpus:
        return "policy-none"
    if pod.ignored:
        return "pod-level-ignored"
    if not node.gates["PodLevelResources"]:
        return "pod-level-unread"
    if not node.places_whole(pod):
        return "by-container"
    if not pod.guaranteed:
        return "not-guaranteed"
    if pod.cpus:
        return "exclusive"
    requests = (pod.spec.spec.resources.requests if pod.spec.spec.resources else None) or {}
    return "overflow" if "cpu" in requests and overflows("cpu", requests["cpu"]) else "fraction"


def _requests(resources: ResourceRequirements) -> tuple[Requested, ...]:
    requests: ResourceList = resources.requests or {}
    limits: ResourceList = resources.limits or {}
    return tuple(
        Requested(
            name,
            amount.canonical(),
            "requests = limits" if limits.get(name) == amount else "requests" if name in requests else "limits",
        )
        for name, amount in {**limits, **requests}.items()
    )


def _eligibility(pod: AdmissionPod, container: AdmissionContainer, *, static: bool) -> str:
    """Return the code of why a container may own CPUs or not."""
    if not static:
        return "policy-none"
    if pod.ignored:
        return "pod-level-ignored"
    if container.exclusive_cpus:
        return "mixed" if container.mixed else "exclusive"
    cpu = (container.spec.resources.requests or {}).get("cpu")
    if not pod.guaranteed:
        return "not-guaranteed"
    if cpu is None or cpu.is_zero():
        return "no-cpu"
    if pod.managed and not container.guaranteed:
        return "container-not-guaranteed"
    return "overflow" if overflows("cpu", cpu) else "fraction"


# Hints and merge


def _merge_step(node: NodeView, pod: AdmissionPod, step: HintRound, merger: Merger | None) -> MergeStep:
    """Repeat a merge of recorded hints, and set up the table of candidates for it."""
    assert merger is not None, "without a merger there are no hints"
    answers = [
        _answer(provider, resource, hints)
        for provider, answer in step.hints.items()
        for resource, hints in (answer or {}).items()
    ]
    try:
        merged = merger.merge(list(step.hints.values()))
    except UpstreamDefectError:
        merged = Merged(NO_AFFINITY, admitted=False, proven=True)
    affinity = merged.hint
    scores = scores_of(merger, list(step.hints.values()), merged)
    table = candidates(node, pod, step, affinity.mask)
    return MergeStep(
        container=step.container,
        policy=merger.policy,
        answers=tuple(answers),
        common=tuple(row.nodes for row in table if row.verdict == "fits"),
        nodes=None if affinity.mask is None else CPUSet.from_bits(affinity.mask),
        preferred=affinity.preferred,
        admitted=merged.admitted,
        candidates=table,
        scores=scores,
        tied=_tied(merger, step, affinity) if merged.admitted and not scores else (),
    )


def _tied(merger: Merger, step: HintRound, affinity: Hint) -> tuple[CPUSet, ...]:
    """Return the sets of NUMA nodes that are as good as the chosen one, with it; empty where it is the only one."""
    tied = merger.list_tied(list(step.hints.values()), affinity)
    return tuple(map(CPUSet.from_bits, tied)) if len(tied) > 1 else ()


def _answer(provider: str, resource: str, hints: Iterable[Hint] | None) -> Answer:
    if hints is None:
        return Answer(provider, resource, None)
    shown = tuple(map(_show_hint, hints))
    complete = not isinstance(hints, HintSet) or hints.is_listed
    # Sets with very many members are not listed, but the best one is known without a list.
    if not shown and isinstance(hints, HintSet) and (best := hints.best()) is not None:
        shown = (_show_hint(best.hint),)
    return Answer(provider, resource, shown, complete)


def _show_hint(hint: Hint) -> ShownHint:
    return ShownHint(None if hint.mask is None else CPUSet.from_bits(hint.mask), hint.preferred)


def _step_without_merge(node: NodeView, pod: AdmissionPod, before: HintRound) -> MergeStep:
    """Return the step of policy none, which merges nothing; its table still holds what is free where."""
    return MergeStep(None, "none", (), (), None, False, True, candidates(node, pod, before))


# Assignments


def _picks(node: NodeView, allocations: list[Allocation]) -> list[ShownPick]:
    topology = node.topology
    picks = []
    for allocation in allocations:
        cpus = allocation.cpus or allocation.pod_cpus
        if allocation.provider == "cpu" and cpus:
            near = None if allocation.affinity.mask is None else topology.cpus_in_numa_nodes(allocation.affinity.mask)
            picks.append(ShownPick(allocation.container, CPUSet.from_bits(cpus), units(topology, cpus, near)))
    return picks


def _writes(node: NodeView, pod: AdmissionPod) -> tuple[Write, ...]:
    """Return what admission changes on disk, and the values of the containers' cgroups."""
    writes = []
    if node.pins_cpus:
        if pod.uid in node.pod_cpus:
            writes.append(Write(f"{CPU_STATE_FILE} podEntries", pod.uid, format_bits(node.pod_cpus[pod.uid])))
        for name, cpus in node.owners.get(pod.uid, {}).items():
            writes.append(Write(f"{CPU_STATE_FILE} entries", f"{pod.uid}/{name}", format_bits(cpus)))
        if pod.uid in node.owners:
            writes.append(Write(f"{CPU_STATE_FILE} defaultCpuSet", "node", format_bits(node.shared)))
    for container in pod.containers:
        for block in node.blocks_of(pod.uid, container.name):
            value = f"{block.size} bytes of {block.type} on {','.join(map(str, block.numa_affinity or ()))}"
            writes.append(Write(f"{MEMORY_STATE_FILE} entries", f"{pod.uid}/{container.name}", value))
        for resource, ids in node.devices_of(pod.uid, container.name).items():
            owner = f"{pod.uid}/{container.name}"
            writes.append(Write(DEVICE_STATE_FILE, owner, f"{resource}: {', '.join(ids)}"))
        cpus = node.affinity(pod.uid, container.name)
        if cpus:
            writes.append(Write("cpuset.cpus", container.name, format_bits(cpus)))
        nodes = node.numa_nodes(pod.uid, container.name)
        if nodes:
            writes.append(Write("cpuset.mems", container.name, format_bits(nodes)))
    return tuple(writes)
