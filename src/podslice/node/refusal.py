"""Explain a refusal in one or two plain sentences.

Upstream answers every misfit with a fixed sentence. The facts behind it are known: the request, what each NUMA node
still has, what the policy demands. This module puts them into words; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.annotations import INVALID_KIND
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import SINGLE_NUMA_NODE
from podslice.config.reservation import max_pods
from podslice.node.cpu.picking.picker import SMT_FRACTION, SMT_SHORT, SMT_SIZES
from podslice.node.cpu.pod_level import POD_POOL_EMPTY
from podslice.node.topology.manager import NOT_ALIGNED
from podslice.node.view import NodeView
from podslice.scheduling.predicates import NODE_TOTAL, TOO_MANY_PODS
from podslice.values.errors import Refusal

POD_POOL_CODES = (POD_POOL_EMPTY, NOT_ALIGNED)
"""Codes of refusals that may come from an empty pod shared pool: a manager reports it, or returns no hints."""


def explain_refusal(node: NodeView, pod: AdmissionPod, refusal: Refusal, unaligned: Iterable[str]) -> str:
    """Return one or two sentences that go beside upstream's message; `node` is without the refused pod's traces,
    `unaligned` are the resources whose hints failed."""
    if refusal.code == TOO_MANY_PODS:
        most = max_pods(node.machine, node.config)
        return f"The node takes no more pods than {most} at a time (maxPods, podsPerCore)."
    if refusal.code == NODE_TOTAL:
        return "All pods of the node together would ask for more than it has after reservations."
    if refusal.kind is INVALID_KIND:
        return "The node's PodslicePolicy reads this annotation; correct it or leave it out."
    pool = node.empty_pool(pod) if refusal.code in POD_POOL_CODES else None
    if pool is not None:
        text = str(pool)
        return f"{text[:1].upper()}{text[1:]}; raise spec.resources or make one container share."
    if refusal.code == NOT_ALIGNED:
        free = f"{free_cpus_text(node)}.{_free_memory(node)}"
        return f"{_request_text(node, pod)} {free} {policy_demand_text(node)}{_unaligned_text(unaligned)}"
    if refusal.code == SMT_SIZES:
        return f"{_request_text(node, pod)} full-pcpus-only gives whole cores. {free_cpus_text(node)}."
    if refusal.code in (SMT_FRACTION, SMT_SHORT):
        return (
            f"{_request_text(node, pod)} The option full-pcpus-only gives whole cores of "
            f"{refusal.facts['cpus_per_core']} CPUs that hold no reserved CPU. {free_cpus_text(node)}."
        )
    return f"{_request_text(node, pod)} {free_cpus_text(node)}.{_free_memory(node)}"


def _unaligned_text(unaligned: Iterable[str]) -> str:
    text = "; ".join(unaligned)
    return f" Not aligned: {text}." if text else ""


def _request_text(node: NodeView, pod: AdmissionPod) -> str:
    if pod.managed and node.config.topology_manager_scope == "pod":
        return f"The pod asks for {pod.cpus} exclusive CPUs as a whole."
    parts = [f"{c.name} {c.exclusive_cpus}" for c in pod.containers if c.exclusive_cpus]
    if not parts:
        return "The pod asks for no exclusive CPUs."
    return f"The pod asks for exclusive CPUs: {', '.join(parts)}."


def free_cpus_text(node: NodeView) -> str:
    """Return how many CPUs can still be given away, and on which NUMA nodes, as a clause."""
    free = node.assignable
    by_node = [f"NUMA {numa}: {(free & cpus).bit_count()}" for numa, cpus in node.topology.numa_nodes.items()]
    return f"Free for exclusive use: {free.bit_count()} ({', '.join(by_node)})"


def _free_memory(node: NodeView) -> str:
    """Return a sentence on free memory by NUMA node, empty where memory is not counted by node."""
    if not node.binds_memory:
        return ""
    free = (
        f"NUMA {numa} {name}: {table.free >> 20} MiB"
        for numa, ledger in sorted(node.memory.items())
        for name, table in sorted((ledger.memory_map or {}).items(), reverse=True)
    )
    return f" Free memory: {', '.join(free)}."


def policy_demand_text(node: NodeView) -> str:
    """Return the alignment that a refusing Topology Manager policy demands, as a sentence."""
    return f"{alignment_demand_text(node.config)}."


def alignment_demand_text(config: KubeletConfig) -> str:
    """Return the same for any node with this configuration, as a clause."""
    scope = "pod" if config.topology_manager_scope == "pod" else "container"
    if config.topology_manager_policy == SINGLE_NUMA_NODE:
        return f"single-numa-node requires everything of a {scope} on one NUMA node"
    return f"restricted requires each {scope} on the fewest NUMA nodes that could hold it on an empty machine"
