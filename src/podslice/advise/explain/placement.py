"""Sentences about the NUMA nodes on which an admitted pod has its CPUs, memory and devices, and the rule that chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.advise.explain.causes.words import series, where
from podslice.advise.explain.trace import MergeStep
from podslice.config.policy_options import BEST_EFFORT, NONE
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, format_bits, union

_CPUS, _MEMORY = "CPUs", "memory"
_MOST_TIED = 4


def placement_sentences(view: NodeView, uid: str, steps: Sequence[MergeStep]) -> Iterator[str]:
    """Yield sentences for each container of a pod on the node: the NUMA nodes of what it has, whether they differ, and
    the rule or tie-break that chose. `steps` are the merges of its admission. Shared CPUs and devices without a NUMA
    node lie nowhere in particular."""
    pod = view.pods.get(uid)
    for container in () if pod is None else pod.containers:
        nodes = _nodes(view, uid, container.name)
        if not nodes:
            continue
        yield _where_it_is(container.name, nodes)
        step = next((one for one in steps if one.container in (None, container.name)), None)
        reason = _reason(view, nodes, step)
        if reason:
            yield reason


def _where_it_is(container: str, nodes: dict[str, Bits]) -> str:
    if len(set(nodes.values())) > 1:
        parts = ", ".join(f"{what} on NUMA {format_bits(mask)}" for what, mask in nodes.items())
        return f"Not all that container {container} has is on the same NUMA nodes: {parts}."
    place = where(CPUSet.from_bits(next(iter(nodes.values()))))
    return f"Container {container} has its {series(tuple(nodes))} on {place}."


def _nodes(view: NodeView, uid: str, container: str) -> dict[str, Bits]:
    """Return the NUMA nodes of each kind of resource that a container holds."""
    found: dict[str, Bits] = {}
    if owned := view.assignment(uid, container):
        found[_CPUS] = view.topology.numa_nodes_of(owned)
    blocks = view.blocks_of(uid, container)
    if memory := bits_of(node for block in blocks for node in block.numa_affinity or ()):
        found[_MEMORY] = memory
    places = {(own.resource, one.id): one.numa or () for own in view.devices.resources for one in own.devices}
    for resource, ids in view.devices_of(uid, container).items():
        if mask := bits_of(node for name in ids for node in places.get((resource, name), ())):
            found[resource] = mask
    return found


# Reasons


def _reason(view: NodeView, nodes: dict[str, Bits], step: MergeStep | None) -> str:
    """Return why the NUMA nodes are these; empty where there is nothing to say."""
    spread = union(nodes.values())
    differ = len(set(nodes.values())) > 1
    if step is None or step.policy == NONE:
        if differ or spread & (spread - 1):
            return "topologyManagerPolicy none aligns nothing: every manager takes what is free where it looks first."
        return ""
    if step.nodes is None:
        return ""
    parts = [*_choice(step, nodes), *_departures(view, step, nodes)]
    return f"{'; '.join(parts)}." if parts else ""


def _choice(step: MergeStep, nodes: dict[str, Bits]) -> Iterator[str]:
    """Yield the rule or the tie-break by which the merge chose its NUMA nodes."""
    assert step.nodes is not None
    chosen = where(step.nodes)
    if len(step.tied) > 1:
        shown = [str(one) for one in step.tied[:_MOST_TIED]]
        more = f" and {len(step.tied) - _MOST_TIED} more" if len(step.tied) > _MOST_TIED else ""
        named = f"NUMA nodes {series(shown)}" if len(step.nodes) == 1 else f"The sets of NUMA nodes {series(shown)}"
        yield f"{named}{more} are equal for {step.policy}, and the lowest number wins"
        devices = [what for what, mask in nodes.items() if what not in (_CPUS, _MEMORY) and mask & ~step.nodes.bits]
        if devices:
            yield f"how many {series(devices)} each has is not counted"
    elif not step.preferred:
        yield f"No set of NUMA nodes suits every resource, and {step.policy} takes {chosen} as the nearest"
    elif len(step.nodes) > 1:
        yield f"Fewer than {len(step.nodes)} NUMA nodes could not hold it, whatever else runs here"


def _departures(view: NodeView, step: MergeStep, nodes: dict[str, Bits]) -> Iterator[str]:
    """Yield why resources are not on all NUMA nodes of the merge, or on others."""
    assert step.nodes is not None
    mask = step.nodes.bits
    row = next((one for one in step.candidates if one.nodes == step.nodes), None)
    cells = {} if row is None else {cell.resource: cell for cell in row.cells}
    cpus = nodes.get(_CPUS, mask)
    if cpus != mask and not cpus & ~mask:
        if view.cpu_options.distribute_cpus_across_numa:
            yield (
                f"distribute-cpus-across-numa takes CPUs from the fewest NUMA nodes that have enough, "
                f"not from all of {step.nodes}"
            )
        else:
            yield "CPUs are taken from as few NUMA nodes as have enough"
    for what, place in nodes.items():
        cell = cells.get("cpu" if what == _CPUS else what)
        if place & ~mask and cell is not None and step.policy == BEST_EFFORT and cell.free < cell.need:
            unit = "CPUs" if what == _CPUS else what
            amount = f"too little free {unit}" if what == _MEMORY else f"only {cell.free} free {unit}"
            yield f"{where(step.nodes)} has {amount}, so the rest comes from elsewhere"
