"""The least that a pod needs of a node of some kind: conditions that counting can check before an exact decision.

A node that has less refuses the pod for certain; one that has as much may still refuse it. The texts are for events,
where the scheduler counts equal texts: they name what the pod asks for, never what a node has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.config.annotations import annotation_problems
from podslice.config.policy import NO_POLICY
from podslice.config.policy_options import RESTRICTED
from podslice.node.devices.pool import DevicePool
from podslice.node.refusal import alignment_demand_text
from podslice.node.rules import NodeRules
from podslice.scheduling.pod_features import pod_level_refusal
from podslice.scheduling.predicates import (
    PODS,
    NodeObject,
    OtherPods,
    general_predicates,
    may_be_unknown,
    pod_on_node,
)
from podslice.values.reasons import (
    AMOUNT_OVERFLOW,
    EMPTY_NODE_SHARED_POOL,
    EMPTY_POD_SHARED_POOL,
    INVALID_ANNOTATION,
    SMT_ALIGNMENT,
    TOPOLOGY_AFFINITY,
    out_of,
)

_MEMORY = "memory"
_MOST = 1 << 60
_NO_PODS = OtherPods((), {})


def clamp(amount: int) -> int:
    """Limit an amount to 2^60, so that sums of two fit in int64."""
    return max(-_MOST, min(amount, _MOST))


class PodNeeds(NamedTuple):
    """Lower bounds for a pod on a kind of node.

    - `exclusive`: the pod gets exclusive resources here; otherwise every node of this kind takes it.
    - `refusal`: the cause, where every such node refuses the pod.
    - `cpus`, `memory`: CPUs and bytes in all. `aligned_cpus` of them must be on at most `width` NUMA nodes (0: any).
    - `units`: pairs of CPUs and bytes that must be on one NUMA node together.
    - `devices`: by resource. `asked`: requests that count against allocatable amounts.
    """

    exclusive: bool
    refusal: str = ""
    cpus: int = 0
    aligned_cpus: int = 0
    width: int = 0
    memory: int = 0
    units: tuple[tuple[int, int], ...] = ()
    devices: Mapping[str, int] = {}
    asked: Mapping[str, int] = {}


def needs_of(rules: NodeRules, pools: Mapping[str, DevicePool], room: NodeObject, pod: AdmissionPod) -> PodNeeds:
    """Return the needs of a pod on nodes with these rules and devices; `room` is such a node without pods."""
    seen = pod_on_node(pod.spec, rules.gates, rules.quirks)
    cpus, aligned_cpus = _cpus(rules, pod)
    memory = _memory(rules, pod)
    devices = _devices(pools, pod)
    width = _width(rules, aligned_cpus)
    return PodNeeds(
        exclusive=bool(cpus or memory or devices or pod.overflow),
        refusal=_refusal(rules, room, pod),
        cpus=cpus,
        aligned_cpus=aligned_cpus if width else 0,
        width=width,
        memory=memory,
        units=tuple(dict.fromkeys(_units(rules, pod, cpus, memory))),
        devices=devices,
        asked=_counted_requests(room, seen.requests) if rules.predicates else {},
    )


def _counted_requests(room: NodeObject, requests: Mapping[str, int]) -> dict[str, int]:
    # A resource that the node does not report is not checked where another component may provide it.
    known = room.amounts or {}
    asked = {
        name: clamp(size) for name, size in requests.items() if size and (name in known or not may_be_unknown(name))
    }
    return {PODS: 1, **asked}


def _refusal(rules: NodeRules, room: NodeObject, pod: AdmissionPod) -> str:
    """Return why such a node refuses the pod even without other pods, as a text for an event; empty for no reason."""
    if pod.overflow and not rules.quirks.amounts_wrap:
        return refused_by_managers(rules, AMOUNT_OVERFLOW)
    if rules.policy is not NO_POLICY and rules.policy.annotations.invalid == "refuse":
        for problem in annotation_problems(rules.policy, pod.spec):
            return problem.message
    if not rules.predicates:
        return ""
    alone = general_predicates(pod_on_node(pod.spec, rules.gates, rules.quirks), _NO_PODS, room).refusal
    if alone is not None and alone.reason.startswith(out_of("")):
        return f"node too small: {alone.facts['resource']}"
    if alone is not None:
        return alone.message
    if not pod.pod_level:
        return ""
    unsupported = pod_level_refusal(
        pod.spec,
        rules.gates,
        rules.quirks,
        os=rules.machine.operating_system,
        cgroup_version=rules.cgroup_version,
        release=rules.release,
    )
    return "" if unsupported is None else unsupported.message


def _cpus(rules: NodeRules, pod: AdmissionPod) -> tuple[int, int]:
    """Return the exclusive CPUs in all, and the most that belong together."""
    if not rules.cpu.static or pod.ignored:
        return 0, 0
    largest = max((one.exclusive_cpus for one in pod.containers), default=0)
    # In container scope a managed pod gets no CPUs as a whole, only its containers do.
    if pod.managed:
        whole = pod.cpus if rules.config.aligns_pods else 0
        return clamp(max(whole, largest)), clamp(max(whole, largest))
    return clamp(pod.cpus), clamp(pod.cpus if rules.config.aligns_pods else largest)


def _width(rules: NodeRules, cpus: int) -> int:
    """Return on how many NUMA nodes so many CPUs may be at most, 0 for any number."""
    # `best-effort` takes any nodes, and `single-numa-node` is checked by units; sockets are aligned by other rules, and
    # how many nodes a CPU class needs depends on the class.
    if rules.cpu.classes is not None:
        return 0
    if rules.config.topology_manager_policy != RESTRICTED or rules.cpu.options.align_by_socket:
        return 0
    return rules.cpu.fewest_numa_nodes(cpus) if cpus else 0


def _memory(rules: NodeRules, pod: AdmissionPod) -> int:
    """Return the bytes on NUMA nodes in all."""
    largest = max((_bytes(rules, pod, one) for one in pod.containers), default=0)
    if pod.managed:
        return largest
    return clamp(max(largest, sum(_bytes(rules, pod, one) for one in pod.containers if not one.init)))


def _bytes(rules: NodeRules, pod: AdmissionPod, container: AdmissionContainer) -> int:
    """Return the bytes on NUMA nodes that the Memory Manager assigns to a container."""
    if not rules.memory.static or not pod.guaranteed or pod.ignored or (pod.managed and not container.guaranteed):
        return 0
    return clamp((container.memory or {}).get(_MEMORY, 0))


def _units(rules: NodeRules, pod: AdmissionPod, cpus: int, memory: int) -> Iterator[tuple[int, int]]:
    """Yield CPUs and bytes that must be on one NUMA node together."""
    if rules.merger is None or not rules.merger.single_numa_node or not (cpus or memory):
        return
    if rules.config.aligns_pods:
        yield cpus, memory
        return
    for one in pod.containers:
        own = clamp(one.exclusive_cpus) if cpus else 0, _bytes(rules, pod, one)
        if any(own):
            yield own


def _devices(pools: Mapping[str, DevicePool], pod: AdmissionPod) -> dict[str, int]:
    """Return the devices that the pod needs, by resource that a plugin serves."""
    found: dict[str, int] = {}
    for name in {name for one in pod.containers for name in one.limits if name in pools}:
        # Init containers run one after the other and leave their devices to the app containers.
        apps = sum(one.limits.get(name, 0) for one in pod.containers if not one.init)
        most = max([apps, *(one.limits.get(name, 0) for one in pod.containers if one.init)])
        if most:
            found[name] = clamp(most)
    return found


# Texts of causes


def few_cpus(needs: PodNeeds) -> str:
    """Return the cause of too few free CPUs."""
    return f"fewer than {needs.cpus} exclusive CPUs free"


def scattered_cpus() -> str:
    """Return the cause of free CPUs on too many NUMA nodes."""
    return "exclusive CPUs free only across NUMA nodes (restricted)"


def few_memory(needs: PodNeeds) -> str:
    """Return the cause of too little free memory."""
    return f"less than {_size(needs.memory)} of memory free on NUMA nodes"


def short_on_every_numa_node(cpus: int, memory: int) -> str:
    """Return the cause for a pod that needs exclusive CPUs, bytes of memory, or both, where no NUMA node has as much
    free."""
    own = [f"{cpus} exclusive CPUs"] if cpus else []
    return f"no NUMA node has {' and '.join([*own, *([f'{_size(memory)} of memory'] if memory else [])])} free"


def few_devices(resource: str, count: int) -> str:
    """Return the cause of too few free devices."""
    return f"fewer than {count} {resource} free"


def lacking_sum(resource: str) -> str:
    """Return the cause of too small an allocatable amount, in kube-scheduler's words."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


def refused_by_managers(rules: NodeRules, reason: str) -> str:
    """Return a text for a refusal by a kubelet's managers. `reason` is upstream's, or the name of a defect."""
    if reason == TOPOLOGY_AFFINITY:
        return f"CPUs, memory and devices not free together: {alignment_demand_text(rules.config)}"
    if reason == SMT_ALIGNMENT:
        return "not enough whole cores free (full-pcpus-only)"
    known = {
        EMPTY_POD_SHARED_POOL: "the pod's exclusive containers leave nothing to the others",
        EMPTY_NODE_SHARED_POOL: "no CPUs would be left to share",
        AMOUNT_OVERFLOW: "the pod asks for more than 64 bits hold",
        INVALID_ANNOTATION: "an annotation of the pod is invalid",
    }
    return known.get(reason, f"the node would refuse the pod: {reason}")


def _size(size: int) -> str:
    for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        # Only exact multiples: the same text means the same amount, and equal texts are counted together.
        if size and not size & ((1 << shift) - 1):
            return f"{size >> shift}{unit}"
    return str(size)
