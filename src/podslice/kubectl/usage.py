"""The exclusive CPUs of a node: used, free, and how fragmented the free ones are."""

from __future__ import annotations

from podslice.kubectl.documents import NodeUsage, NUMANodeUsage
from podslice.kubectl.live import RemoteNode


def usage_of(remote: RemoteNode) -> NodeUsage:
    """Return a node's row of `kubectl podslice top`."""
    if remote.node is None:
        return without_usage(remote.name, remote.problem)
    view = remote.node.view
    config = view.config
    policies = config.cpu_manager_policy, config.topology_manager_policy, config.topology_manager_scope
    if not view.pins_cpus:
        return NodeUsage(remote.name, *policies, None, None, None, (), None, None, "")
    exclusive = view.owned
    ownable = exclusive | view.assignable
    free = view.ownable_next
    numa = tuple(
        NUMANodeUsage(number, (cpus & ownable).bit_count(), (cpus & free).bit_count())
        for number, cpus in sorted(view.topology.numa_nodes.items())
    )
    # Fragmentation compares with the best case: all free CPUs on one NUMA node, as far as one is large enough.
    largest = max((one.free for one in numa), default=0)
    together = min(free.bit_count(), max((one.cpus for one in numa), default=0))
    return NodeUsage(
        remote.name,
        *policies,
        ownable.bit_count(),
        exclusive.bit_count(),
        free.bit_count(),
        numa,
        largest,
        round(100 * (together - largest) / together) if together else 0,
        "",
    )


def without_usage(node: str, problem: str) -> NodeUsage:
    """Return the row of a node that could not be looked at."""
    return NodeUsage(node, "", "", "", None, None, None, (), None, None, problem)
