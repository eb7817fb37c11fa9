"""Searches that a kubelet does not come to the end of: listing sets of NUMA nodes, and merging what it listed.

Upstream lists every set of the NUMA nodes of a resource, and merges every combination of the lists' sets. Both numbers
double with each NUMA node (cpu-topology 11.17). Meanwhile the pod is Pending, and so is every pod after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from podslice.config.policy_options import BEST_EFFORT, RESTRICTED
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.values.errors import UpstreamDefectError

DEFECT = "searches_take_any_time"
MOST_LISTED = 28
"""NUMA nodes whose sets upstream lists within minutes: 2**28."""
MOST_MERGED = 36
"""Combinations that upstream merges within hours, as a power of two: at least a tenth of a microsecond each."""
_NO_HINTS = "topologyManagerPolicy none, under which no hints are made"


def may_be_endless(policy: str, listed: Mapping[str, int], answers: Sequence[ProviderHints]) -> bool:
    """Return whether `refuse_endless` has anything to refuse. Every admission asks, so this only counts NUMA nodes."""
    if listed and max(listed.values()) > MOST_LISTED:
        return True
    # single-numa-node drops all sets but single NUMA nodes before it merges.
    if policy != BEST_EFFORT and policy != RESTRICTED:
        return False
    most = 0
    for answer in answers:
        if answer:
            for hints in answer.values():
                if isinstance(hints, HintSet):
                    most += hints.open_nodes.bit_count()
    return most > MOST_MERGED


def refuse_endless(listed: Mapping[str, int], answers: Iterable[tuple[str, ProviderHints]]) -> None:
    """Raise `UpstreamDefectError` where a kubelet does not come to the end of listing or merging hints.

    `listed`: the number of NUMA nodes whose sets were listed, by resource. `answers`: the hints of each provider by its
    name, `device`, `cpu` or `memory`.
    """
    endless = {resource: nodes for resource, nodes in listed.items() if nodes > MOST_LISTED}
    sizes = {
        (provider, resource): _exponent(hints)
        for provider, answer in answers
        for resource, hints in (answer or {}).items()
    }
    if endless:
        what = " and ".join(f"hints for {one} list 2^{nodes} sets" for one, nodes in endless.items())
        raise UpstreamDefectError(DEFECT, f"{what} of NUMA nodes", hangs=True, remedy=_remedy(sizes, endless))
    combinations = sum(sizes.values())
    if combinations > MOST_MERGED:
        names = ", ".join(resource for (_, resource), size in sizes.items() if size)
        detail = f"the hints for {names} are merged in at least 2^{combinations} combinations"
        raise UpstreamDefectError(
            DEFECT, detail, hangs=True, remedy=f"topologyManagerPolicy single-numa-node, or {_remedy(sizes, {})}"
        )


def _exponent(hints: object) -> int:
    """Return an n such that there are at least 2**n hints: a set that suffices does so with any further nodes."""
    if not isinstance(hints, HintSet) or not hints.open_nodes:
        return 0
    return max(0, hints.open_nodes.bit_count() - hints.narrowest.nodes)


def _remedy(sizes: Mapping[tuple[str, str], int], endless: Mapping[str, int]) -> str:
    """Return what would end the search, in words."""
    devices = [resource for (provider, resource), size in sizes.items() if provider == "device" and size]
    others = {resource: size for (provider, resource), size in sizes.items() if provider != "device"}
    left = (MOST_MERGED - sum(others.values())) // len(devices) if devices else 0
    most = min(MOST_LISTED, left)
    if not devices or most < 1 or any(resource not in devices for resource in endless):
        return _NO_HINTS
    return f"a device plugin that names at most {most} NUMA nodes for {' and '.join(devices)}, or {_NO_HINTS}"
