"""The search for fixes of a refused pod: which classes are searched, and how what is found is ranked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from podslice.advise.explain.fixes.alternatives import Alternatives, SearchEndedError
from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.advise.explain.fixes.changes import ChangeMachine, EditPod, Reconfigure, Remove
from podslice.advise.explain.fixes.commands import in_full
from podslice.advise.explain.fixes.edits import is_valid
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.explain.fixes.losses import losses
from podslice.advise.explain.fixes.node_fixes import configurations, hugepages, releases, repacking
from podslice.advise.explain.fixes.other_pods import empty_node, pod_moves
from podslice.advise.explain.fixes.pod_fixes import PodFixes
from podslice.advise.explain.fixes.reservations import reservations
from podslice.api.pod.spec import Pod

MOST_TRIES = 20_000
"""Bound of the trials for one pod. An ordinary pod takes some hundreds."""
ENDED = "The search ended after its last trial: there may be other changes that make it fit."


class Found(NamedTuple):
    """Fixes, the best first, and the reason why there may be more; empty where everything was searched."""

    fixes: list[Fix]
    unsearched: str = ""


def search_fixes(nodes: Alternatives, pod: Pod, *, most_tries: int = MOST_TRIES) -> Found:
    """Search every class of fixes (docs/explain.md) for a refused pod with its defaults.

    First come fixes that give up no guarantee: those in the pod's own request, in the node's configuration, and those
    that interrupt other pods. A pod that the API server refuses gets only edits as fixes. Where the trials for one pod
    are used up, what was found so far is returned. Raises `GivenUpError`.
    """
    nodes.begin(most_tries)
    needs = nodes.needs(pod)
    found: list[Fix] = []
    unsearched = ""
    try:
        for fix in _search(nodes, pod, needs):
            edited = nodes.needs(fix.change.pod) if isinstance(fix.change, EditPod) else None
            found.append(replace(fix, losses=losses(fix.change, needs, nodes.view, edited)))
    except SearchEndedError:
        unsearched = ENDED
    return Found([_in_full(nodes, pod, fix) for fix in _distinct(found)], unsearched)


def _search(nodes: Alternatives, pod: Pod, needs: PodNeeds) -> Iterator[Fix]:
    edits = PodFixes(nodes, pod)
    yield from edits.each()
    if is_valid(pod, nodes.view.gates) and not edits.wrong_annotations:
        yield from _outside(nodes, needs)


def _outside(nodes: Alternatives, needs: PodNeeds) -> Iterator[Fix]:
    """Yield fixes that leave the pod as it is."""
    yield from pod_moves(nodes, needs)
    yield from empty_node(nodes, needs)
    repacked = list(repacking(nodes, needs))
    yield from repacked
    # Draining alone helps: a change that also drains gives up more for the same result.
    may_drain = not repacked
    lack = nodes.lack(needs)
    # No placement helps where the node has too little in all: only what it keeps for the system does.
    if not lack.lacks_requests:
        yield from configurations(nodes, needs, may_drain=may_drain)
    if not lack.lacks_cpus and (may_drain or lack.has_place):
        yield from hugepages(nodes, needs, may_drain=may_drain)
    yield from reservations(nodes, needs, may_drain=may_drain)
    if may_drain and not lack.lacks_requests:
        yield from releases(nodes, needs)


def _distinct(found: Iterable[Fix]) -> Iterator[Fix]:
    """Yield the fixes in order, each change once. A change that only adds to one that does alone is left out."""
    taken: list[tuple[bool, frozenset[object]]] = []
    for fix in sorted(found, key=lambda one: (bool(one.losses), one.cost, len(one.edits), one.text)):
        parts = _parts(fix)
        if not any(fewer <= parts for _, fewer in taken):
            taken.append((bool(fix.losses), parts))
            yield fix


def _parts(fix: Fix) -> frozenset[object]:
    """Return the single changes that a fix consists of."""
    change = fix.change
    if isinstance(change, Remove):
        # Whether a pod comes back later makes no other change of its deletion.
        return frozenset(("delete", uid) for uid in change.uids)
    drained = ["drain"] if getattr(change, "drained", False) else []
    if isinstance(change, EditPod | Reconfigure):
        return frozenset([*fix.edits, *drained])
    return frozenset([(fix.code, fix.text), *drained])


def _in_full(nodes: Alternatives, pod: Pod, fix: Fix) -> Fix:
    view, change = nodes.view, fix.change
    stale: tuple[str, ...] = ()
    # A kubelet that restarts with its pods was tried on the state files as they are.
    if isinstance(change, Reconfigure | ChangeMachine) and change.drained and fix.code != "repack":
        config = change.config if isinstance(change, Reconfigure) else view.config
        machine = change.machine if isinstance(change, ChangeMachine) else view.machine
        stale = nodes.stale_files(config, machine)
    return in_full(fix, pod, view, stale)
