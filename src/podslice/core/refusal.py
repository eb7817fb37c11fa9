"""Why a pod was refused, in words a person can act on.

Upstream answers every misfit with a fixed sentence. The facts behind it are all there: what was asked, what each
NUMA node still has, what the policy demands. This module puts them into one or two sentences; it decides nothing.
"""

from __future__ import annotations

from podslice.core.allocate.picker import SMT_FRACTION, SMT_SHORT
from podslice.core.allocate.pod_level import POD_POOL_EMPTY
from podslice.core.allocate.pod_pool import EmptyPool, used_up
from podslice.core.errors import Refusal
from podslice.core.managers.container import ContainerManager
from podslice.core.managers.topology import NOT_ALIGNED
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.scheduling.allocatable import max_pods
from podslice.core.scheduling.predicates import NODE_TOTAL, TOO_MANY_PODS

POD_POOL_CODES = (POD_POOL_EMPTY, NOT_ALIGNED)
"""Codes of pods whose exclusive containers may leave nothing for the others: a manager says so, or has no hints."""


def explain_refusal(manager: ContainerManager, pod: AdmissionPod, refusal: Refusal) -> str:
    """One or two sentences beside upstream's message; call it after the refused pod's traces are gone."""
    if refusal.code == TOO_MANY_PODS:
        most = max_pods(manager.machine, manager.config)
        return f"The node takes no more pods than {most} at a time (maxPods, podsPerCore)."
    if refusal.code == NODE_TOTAL:
        return "All pods of the node together would ask for more than it has after reservations."
    pool = empty_pool(manager, pod) if refusal.code in POD_POOL_CODES else None
    if pool is not None:
        text = str(pool)
        return f"{text[:1].upper()}{text[1:]}; raise spec.resources or make one container share."
    if refusal.code == NOT_ALIGNED:
        free = f"{_free_cpus(manager)}.{_free_memory(manager)}"
        return f"{_asked(manager, pod)} {free} {_policy_demand(manager)}{_failed(manager)}"
    if refusal.code in (SMT_FRACTION, SMT_SHORT):
        return (
            f"{_asked(manager, pod)} The option full-pcpus-only gives whole cores of "
            f"{refusal.facts['cpus_per_core']} CPUs that hold no reserved CPU. {_free_cpus(manager)}."
        )
    return f"{_asked(manager, pod)} {_free_cpus(manager)}.{_free_memory(manager)}"


def empty_pool(manager: ContainerManager, pod: AdmissionPod) -> EmptyPool | None:
    """The resource that a pod's exclusive containers use up, where the managers look: pods of pod-level resources that
    are placed as a whole. They refuse such a pod whatever the node has."""
    if not places_whole(manager, pod) or pod.uid in manager.cpu.state.bubbles:
        return None
    return used_up(pod, manager.quirks, cpus=manager.cpu.static, memory=manager.memory.static)


def places_whole(manager: ContainerManager, pod: AdmissionPod) -> bool:
    """True where a pod's budget is given to it as a whole and divided: pod-level resources, pod scope, some policy."""
    topology = manager.topology
    return pod.managed and not pod.ignored and topology.merger is not None and topology.scope == "pod"


def _failed(manager: ContainerManager) -> str:
    """The resources whose hints failed."""
    unaligned = manager.context.unaligned
    return f" Not aligned: {'; '.join(unaligned)}." if unaligned else ""


def _asked(manager: ContainerManager, pod: AdmissionPod) -> str:
    if pod.managed and manager.topology.scope == "pod":
        return f"The pod asks for {pod.cpus} exclusive CPUs as a whole."
    parts = [f"{c.name} {c.exclusive_cpus}" for c in pod.containers if c.exclusive_cpus]
    if not parts:
        return "The pod asks for no exclusive CPUs."
    return f"The pod asks for exclusive CPUs: {', '.join(parts)}."


def _free_cpus(manager: ContainerManager) -> str:
    cpu = manager.cpu
    assignable = cpu.assignable
    nodes = [f"NUMA {node}: {(assignable & cpus).bit_count()}" for node, cpus in cpu.topology.numa_nodes.items()]
    return f"Free for exclusive use: {assignable.bit_count()} ({', '.join(nodes)})"


def _free_memory(manager: ContainerManager) -> str:
    if not manager.memory.static:
        return ""
    free = (
        f"NUMA {node} {name}: {table.free >> 20} MiB"
        for node, books in sorted(manager.memory.machine_state.items())
        for name, table in sorted((books.memory_map or {}).items(), reverse=True)
    )
    return f" Free memory: {', '.join(free)}."


def _policy_demand(manager: ContainerManager) -> str:
    merger = manager.topology.merger
    scope = "pod" if manager.topology.scope == "pod" else "container"
    if merger is not None and merger.single_numa_node:
        return f"single-numa-node wants everything of a {scope} on one NUMA node."
    return f"restricted wants each {scope} on the fewest NUMA nodes that could hold it on an empty machine."
