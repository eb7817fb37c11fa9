"""From upstream's few reasons to one stable code per cause."""

from __future__ import annotations

from collections.abc import Sequence

from podslice.advise.explain.candidates import Candidate, single_nodes
from podslice.advise.explain.codes import REFUSALS
from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.config.policy_options import SINGLE_NUMA_NODE
from podslice.node.cpu.plugin_calls import FILTERED
from podslice.node.plugins.contract import BROKEN
from podslice.node.topology.manager import ALLOCATION_FAILED, NOT_ALIGNED
from podslice.values.errors import Refusal
from podslice.values.reasons import UNEXPECTED_ADMISSION

_PLUGIN_CAUSES = (FILTERED.code, BROKEN.code)


_KINDS = {"cpu": ("cpu",), "memory": ("memory", "hugepages"), "device": ("devices",)}
"""Kinds of resources by provider."""


def refusal_code(refusal: Refusal, table: Sequence[Candidate], *, policy: str, merged: bool, failed: str = "") -> str:
    """Return the code of a refusal: its own, or what the `table` of candidates of the last step under `policy` of the
    Topology Manager adds to it. `merged`: the merge refused; `failed`: the provider that could not
    allocate."""
    if refusal.code in REFUSALS and refusal.code != ALLOCATION_FAILED:
        return refusal.code
    if refusal.facts.get("cause") in _PLUGIN_CAUSES:
        return str(refusal.facts["cause"])
    if refusal.code == NOT_ALIGNED or merged:
        return _affinity_code(table, policy)
    if refusal.reason == UNEXPECTED_ADMISSION:
        lacking = _lacking(table, failed)
        return f"{lacking}-short" if lacking else ALLOCATION_FAILED
    return "other"


def kind_of(resource: str) -> str:
    """Return `cpu`, `memory`, `hugepages` or `devices`."""
    if resource in ("cpu", "memory"):
        return resource
    return "hugepages" if resource.startswith(HUGEPAGES_PREFIX) else "devices"


def _lacking(table: Sequence[Candidate], failed: str = "") -> str:
    """Return the first resource of which even all NUMA nodes together have too little; of a `failed` provider, if any,
    rather than of another."""
    if not table:
        return ""
    short = [kind_of(cell.resource) for cell in table[-1].cells if cell.free < cell.need]
    return next((kind for kind in short if kind in _KINDS.get(failed, ())), short[0] if short else "")


def _affinity_code(table: Sequence[Candidate], policy: str) -> str:
    """Return the reason why a merge failed: too little, too big, too scattered, or sets that do not meet."""
    # The most final cause first: too big even when empty, then too little free, then only scattered.
    taken = single_nodes(table) if policy == SINGLE_NUMA_NODE else table
    if not taken or not taken[0].cells:
        return "other"
    for place, cell in enumerate(taken[0].cells):
        if all(row.cells[place].verdict == "small" for row in taken):
            return f"{kind_of(cell.resource)}-too-big"
    lacking = _lacking(table)
    if lacking:
        return f"{lacking}-short"
    verdicts = [{row.cells[place].verdict for row in taken} for place in range(len(taken[0].cells))]
    scattered = [place for place, found in enumerate(verdicts) if "fits" not in found]
    if not scattered:
        return "no-common-set"
    # A resource that fails only together with another is not the cause.
    cause = min(scattered, key=lambda place: "joint" in verdicts[place])
    return f"{kind_of(taken[0].cells[cause].resource)}-scattered"
