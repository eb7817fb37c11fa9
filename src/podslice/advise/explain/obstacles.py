"""Obstacles of a refused pod for pictures: its needs on each NUMA node, what is free there, and who has the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.advise.explain.codes import REFUSALS
from podslice.advise.explain.columns import Cell
from podslice.advise.explain.explain import Explanation
from podslice.advise.explain.story import cell_text
from podslice.advise.explain.trace import Trace
from podslice.node.view import NodeView
from podslice.render.picture import NUMABox, Picture, Want, label_of
from podslice.render.table import format_bytes
from podslice.values.cpuset import Bits

MOST_REFUSED = 4
"""Refused pods whose obstacles one picture shows."""
_MOST_HOLDERS = 4
_SINGLE = "single-numa-node"
_OWN = "earlier containers of this pod"


def with_obstacles(picture: Picture, view: NodeView, refused: Sequence[Explanation]) -> Picture:
    """Return a picture of a node with what is in the way of refused pods; `view` is the node that refused them."""
    shown = refused[:MOST_REFUSED]
    if not shown:
        return picture
    headings = [_heading(one) for one in shown]
    if len(refused) > len(shown):
        headings.append("Refused too: " + ", ".join(_name(one.trace) for one in refused[len(shown) :]))
    wants: dict[int, list[Want]] = {}
    for trace in (one.trace for one in shown):
        for node, found in _wants(picture, view, trace).items():
            named = f"{_name(trace)}: " if len(shown) > 1 else ""
            wants.setdefault(node, []).extend(Want(named + one.text, one.short) for one in found)
    return picture.refusing(tuple(headings), wants)


def _name(trace: Trace) -> str:
    return f"{trace.namespace}/{trace.name}"


def _heading(explanation: Explanation) -> str:
    trace = explanation.trace
    reason = f"{_name(trace)} is refused with {trace.reason}"
    return f"{reason}. {explanation.why[0]}" if explanation.why else f"{reason}: {REFUSALS[trace.code]}"


def _wants(picture: Picture, view: NodeView, trace: Trace) -> dict[int, list[Want]]:
    step = trace.steps[-1]
    rows = {row.nodes.bits: row for row in step.candidates}
    found: dict[int, list[Want]] = {}
    for node in _boxes(picture):
        row = rows.get(1 << node.id)
        cells = row.cells if row is not None else ()
        here = found.setdefault(node.id, [])
        for cell in cells:
            want = _want(cell, step.policy, admitted=step.admitted)
            here.append(want)
            if cell.free < cell.need:
                here += _taken(cell, dict(_amounts(picture, view, node, cell.resource)), own=_comes_later(trace))
    return found


def _comes_later(trace: Trace) -> bool:
    """Whether the refused container has containers of its pod before it, which have what they asked for by then."""
    container = trace.steps[-1].container
    return container is not None and container != next((one.name for one in trace.containers if one.name), container)


def _boxes(picture: Picture) -> Iterator[NUMABox]:
    """Yield the boxes of NUMA nodes, of a node that lies on several sockets the first one."""
    seen = set()
    for socket in picture.sockets:
        for node in socket.nodes:
            if node.id not in seen:
                seen.add(node.id)
                yield node


def _want(cell: Cell, policy: str, *, admitted: bool) -> Want:
    """Return what a pod finds of one resource on one NUMA node. Where no policy aligns, or another manager refused,
    no single node has to have enough."""
    free = _amount(cell.resource, cell.free)
    what = _needed(cell.resource, cell.need)
    if admitted:
        return Want(f"Needs {what}, {free} free here", False)
    if cell.verdict == "fits":
        return Want(f"Needs {what}, {free} free: enough", False)
    if cell.verdict == "small":
        return Want(f"Needs {what}, has only {_amount(cell.resource, cell.capacity)} in total", policy == _SINGLE)
    if cell.verdict == "short":
        missing = _amount(cell.resource, cell.need - cell.free)
        return Want(f"Needs {what}, {free} free: {missing} short", True)
    text = cell_text(cell)
    return Want(text[:1].upper() + text[1:], True)


def _needed(resource: str, amount: int) -> str:
    text = _amount(resource, amount)
    if resource == "cpu":
        return f"{text} CPU{'' if amount == 1 else 's'}"
    return f"{text} of {resource}" if _is_memory(resource) else f"{text} {resource}"


def _amount(resource: str, amount: int) -> str:
    """Return an amount as pictures show it: bytes in the largest unit, everything else as a number."""
    return format_bytes(amount) if _is_memory(resource) else str(amount)


def _is_memory(resource: str) -> bool:
    return resource == "memory" or resource.startswith("hugepages-")


def _taken(cell: Cell, amounts: dict[str, int], *, own: bool) -> Iterator[Want]:
    """Yield a line that names who has a resource of a NUMA node, those who have most first. `own`: the rest is taken by
    earlier containers of the pod."""
    rest = cell.capacity - cell.free - sum(amounts.values())
    if own and rest > 0:
        amounts = {**amounts, _OWN: rest}
    order = sorted(amounts, key=lambda name: (-amounts[name], name))
    texts = [f"{name} ({_amount(cell.resource, amounts[name])})" for name in order[:_MOST_HOLDERS]]
    more = [f"{len(order) - _MOST_HOLDERS} more"] if len(order) > _MOST_HOLDERS else []
    if texts:
        yield Want(f"Taken: {', '.join([*texts, *more])}", False)


def _amounts(picture: Picture, view: NodeView, node: NUMABox, resource: str) -> Iterator[tuple[str, int]]:
    if resource == "cpu":
        yield from _cpus(picture, view, node)
    elif _is_memory(resource):
        yield from _memory(view, node.id, resource)
    else:
        holders = [
            one.owner or ("unhealthy" if not one.healthy else "") for one in node.devices if one.resource == resource
        ]
        yield from ((name, holders.count(name)) for name in dict.fromkeys(holders) if name)


def _cpus(picture: Picture, view: NodeView, node: NUMABox) -> Iterator[tuple[str, int]]:
    if reserved := (node.cpus & picture.reserved).bit_count():
        yield "reserved", reserved
    # Where only whole cores are given away, no container gets the other CPUs of a core with a reserved one.
    if siblings := (node.cpus & view.withheld & ~view.reserved & view.shared).bit_count():
        yield "siblings of reserved CPUs", siblings
    owned: dict[int, Bits] = {}
    for owner in picture.owners:
        owned[owner.pod] = owned.get(owner.pod, picture.pods[owner.pod].pod_cpus) | owner.cpus
    for pod, cpus in owned.items():
        if here := (cpus & node.cpus).bit_count():
            yield picture.pods[pod].label, here


def _memory(view: NodeView, node: int, resource: str) -> Iterator[tuple[str, int]]:
    for pod in view.pods.values():
        blocks = view.booked(pod.uid, [container.name for container in pod.containers])
        held = sum(one.size for one in blocks if one.type == resource and node in (one.numa_affinity or ()))
        if held:
            yield label_of(pod), held
