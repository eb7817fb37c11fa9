"""What a pod needs at least of a node of some kind: what can be told by counting, before anybody is asked.

A node that has less refuses the pod for certain; one that has as much may still refuse it. The texts are those of
events, where equal texts are counted together: what a pod asks for is in them, what a node has is not.
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
    Others,
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
_NO_PODS = Others((), {})


def clamp(amount: int) -> int:
    """An amount as columns hold it: sums of two do not overflow, and no real one comes near."""
    return max(-_MOST, min(amount, _MOST))


class PodNeeds(NamedTuple):
    """Lower bounds. `exclusive`: the pod wants something for itself here; where it does not, a node of this kind is not
    asked. `refusal`: every such node refuses it, whatever it has.

    `cpus` and `memory` in all. `aligned_cpus` of them belong together, on `width` NUMA nodes at most (0: any number).
    `units`: CPUs and bytes that belong on one NUMA node, together. `devices` by resource. `asked`: what the sums count.
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
    """What a pod needs of nodes with these rules and devices; `room` is such a node without pods."""
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
    known = room.amounts or {}
    asked = {
        name: clamp(size) for name, size in requests.items() if size and (name in known or not may_be_unknown(name))
    }
    return {PODS: 1, **asked}


def _refusal(rules: NodeRules, room: NodeObject, pod: AdmissionPod) -> str:
    """Why such a node without other pods refuses this one before its managers are asked, in the words of an event."""
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
    )
    return "" if unsupported is None else unsupported.message


def _cpus(rules: NodeRules, pod: AdmissionPod) -> tuple[int, int]:
    """Exclusive CPUs in all, and the most that belong together."""
    if not rules.cpu.static or pod.ignored:
        return 0, 0
    largest = max((one.exclusive_cpus for one in pod.containers), default=0)
    if pod.managed:
        whole = pod.cpus if rules.config.aligns_pods else 0
        return clamp(max(whole, largest)), clamp(max(whole, largest))
    return clamp(pod.cpus), clamp(pod.cpus if rules.config.aligns_pods else largest)


def _width(rules: NodeRules, cpus: int) -> int:
    """On how many NUMA nodes so many CPUs are wanted at most, 0 for any number."""
    if rules.config.topology_manager_policy != RESTRICTED or rules.cpu.options.align_by_socket:
        return 0
    return rules.cpu.topology.fewest_numa_nodes(cpus) if cpus else 0


def _memory(rules: NodeRules, pod: AdmissionPod) -> int:
    """Bytes on NUMA nodes in all."""
    largest = max((_bytes(rules, pod, one) for one in pod.containers), default=0)
    if pod.managed:
        return largest
    return clamp(max(largest, sum(_bytes(rules, pod, one) for one in pod.containers if not one.init)))


def _bytes(rules: NodeRules, pod: AdmissionPod, container: AdmissionContainer) -> int:
    """Bytes on NUMA nodes that a container has for itself."""
    if not rules.memory.static or not pod.guaranteed or pod.ignored or (pod.managed and not container.guaranteed):
        return 0
    return clamp((container.memory or {}).get(_MEMORY, 0))


def _units(rules: NodeRules, pod: AdmissionPod, cpus: int, memory: int) -> Iterator[tuple[int, int]]:
    """CPUs and bytes that belong on one NUMA node, together."""
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
    """Devices by resource, of those that plugins serve."""
    found: dict[str, int] = {}
    for name in {name for one in pod.containers for name in one.limits if name in pools}:
        apps = sum(one.limits.get(name, 0) for one in pod.containers if not one.init)
        most = max([apps, *(one.limits.get(name, 0) for one in pod.containers if one.init)])
        if most:
            found[name] = clamp(most)
    return found


# Words


def few_cpus(needs: PodNeeds) -> str:
    """Fewer CPUs than that can be given away."""
    return f"fewer than {needs.cpus} exclusive CPUs free"


def scattered_cpus() -> str:
    """They are there, but not together."""
    return "exclusive CPUs free only across NUMA nodes (restricted)"


def few_memory(needs: PodNeeds) -> str:
    """Less memory than that can be given away."""
    return f"less than {_size(needs.memory)} of memory free on NUMA nodes"


def not_on_one(cpus: int, memory: int) -> str:
    """Not so much of both on one NUMA node."""
    own = [f"{cpus} exclusive CPUs"] if cpus else []
    return f"no NUMA node has {' and '.join([*own, *([f'{_size(memory)} of memory'] if memory else [])])} free"


def few_devices(resource: str, count: int) -> str:
    """Fewer devices than that can be given away."""
    return f"fewer than {count} {resource} free"


def lacking_sum(resource: str) -> str:
    """All pods together would ask for more; the scheduler's words."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


def refused_by_managers(rules: NodeRules, reason: str) -> str:
    """What a kubelet's managers said, for an event. `reason` is upstream's or a defect's name."""
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
        if size and not size & ((1 << shift) - 1):
            return f"{size >> shift}{unit}"
    return str(size)
