"""Why a pod was refused, in words a person can act on.

Upstream answers every misfit with a fixed sentence. The facts behind it are all there: what was asked, what each
NUMA node still has, what the policy demands. This module puts them into one or two sentences; it decides nothing.
"""

from __future__ import annotations

from podslice.core.allocate.cpu_static import SMT_ALIGNMENT
from podslice.core.allocate.pod_level import EMPTY_POD_SHARED_POOL
from podslice.core.managers.container import ContainerManager
from podslice.core.managers.topology import TOPOLOGY_AFFINITY
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.scheduling.predicates import Refusal


def explain_refusal(manager: ContainerManager, pod: AdmissionPod, refusal: Refusal) -> str:
    """One or two sentences beside upstream's message; call it after the refused pod's traces are gone."""
    if refusal.reason.startswith("OutOf"):
        return "All pods of the node together would ask for more than it has after reservations."
    if refusal.reason == TOPOLOGY_AFFINITY:
        return f"{_asked(manager, pod)} {_free_cpus(manager)}.{_free_memory(manager)} {_policy_demand(manager)}"
    if refusal.reason == SMT_ALIGNMENT:
        return (
            f"{_asked(manager, pod)} The option full-pcpus-only gives whole cores of "
            f"{manager.cpu.topology.cpus_per_core} CPUs that hold no reserved CPU. {_free_cpus(manager)}."
        )
    if refusal.reason == EMPTY_POD_SHARED_POOL:
        return (
            f"The pod's budget is {pod.cpus} CPUs and its exclusive containers take all of it; "
            "raise spec.resources or make one container share."
        )
    return f"{_asked(manager, pod)} {_free_cpus(manager)}.{_free_memory(manager)}"


def _asked(manager: ContainerManager, pod: AdmissionPod) -> str:
    if pod.managed and manager.topology.scope == "pod":
        return f"The pod asks for {pod.cpus} exclusive CPUs as a whole."
    parts = [f"{c.name} {c.exclusive_cpus}" for c in pod.containers if c.exclusive_cpus]
    if not parts:
        return "The pod asks for no exclusive CPUs."
    return f"The pod asks for exclusive CPUs: {', '.join(parts)}."


def _free_cpus(manager: ContainerManager) -> str:
    cpu = manager.cpu
    assignable = cpu.state.default & ~cpu.reserved
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
