"""A survey of all nodes for one pod, by the exact model, in slices.

Each node is judged at the moment when it is reached. Nothing is held, and nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from podslice.api.pod.spec import Pod
from podslice.cluster.extender.eligible import exclusion_reason
from podslice.cluster.page.slices import Slices
from podslice.cluster.placements import Placements
from podslice.cluster_view.answers import FittingNode, PodFit, RefusingNodes
from podslice.replica.signature import Signature
from podslice.service.clusterobjects import PlacementTerms
from podslice.values.cpuset import format_bits

MOST_BEST = 10
NOT_LOOKED_AT = "affinity, topology spread, volumes, claims and host ports of the pod are not looked at"
NOTHING_OWN = "the pod wants nothing for itself, so no node's topology keeps it out"


class AskedPod(NamedTuple):
    """A pod to survey, with its placement terms. `name` is NAMESPACE/NAME."""

    name: str
    pod: Pod
    terms: PlacementTerms


class Survey(NamedTuple):
    """The result: nodes that take the pod, and the others by reason, the most frequent first. `allowed` are the nodes
    that labels, taints and cordons admit it to."""

    asked: AskedPod
    signature: Signature
    allowed: tuple[str, ...]
    fitting: tuple[str, ...]
    refused: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def text(self) -> str:
        """Numbers of nodes by reason, as in an event of the scheduler."""
        total = len(self.fitting) + sum(len(names) for _, names in self.refused)
        reasons = ", ".join(f"{len(names)} {reason}" for reason, names in self.refused)
        return f"{len(self.fitting)}/{total} nodes take it{': ' if reasons else ''}{reasons}"


async def survey(placing: Placements, asked: AskedPod, slices: Slices) -> Survey:
    """Judge all nodes. Raises `PodsliceError` for a pod that cannot be read."""
    model = placing.model
    signature = model.classes.signature(asked.pod)
    kept_out: dict[str, list[str]] = {}
    let_in: list[str] = []
    # Copied, because nodes come and go while other work has the loop.
    for name, node in list(placing.places.nodes.items()):
        reason = exclusion_reason(node, asked.terms)
        (kept_out.setdefault(reason, []) if reason else let_in).append(name)
        await slices.turn()
    if not model.wants_exclusive(asked.pod):
        return Survey(asked, signature, tuple(let_in), tuple(let_in), _by_count(kept_out))
    fitting: list[str] = []
    for name, cause in model.verdicts.ask_each(signature, let_in):
        (kept_out.setdefault(cause, []) if cause else fitting).append(name)
        await slices.turn()
    return Survey(asked, signature, tuple(let_in), tuple(fitting), _by_count(kept_out))


def _by_count(refused: dict[str, list[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    order = sorted(refused.items(), key=lambda one: (-len(one[1]), one[0]))
    return tuple((reason, tuple(names)) for reason, names in order)


def fit_document(placing: Placements, found: Survey, held: str = "") -> PodFit:
    """Return the survey as a document, without ways out."""
    exclusive = placing.model.wants_exclusive(found.asked.pod)
    notes = [] if found.asked.terms.simple else [NOT_LOOKED_AT]
    if not exclusive:
        notes.append(NOTHING_OWN)
    elif held:
        notes.append(f"room is kept for it on {held}")
    if exclusive and (releases := releases_text(placing)):
        notes.append(releases)
    return PodFit(
        found.asked.name,
        exclusive,
        len(placing.places.nodes),
        len(found.fitting),
        held,
        tuple(_best(placing, found)) if exclusive else (),
        found.fitting,
        tuple(RefusingNodes(reason, len(names), names) for reason, names in found.refused),
        None,
        tuple(notes),
    )


def releases_text(placing: Placements) -> str:
    """Return how many nodes decide by which release; empty where all decide by one."""
    found: Counter[int] = Counter()
    for kind in placing.model.classes.kinds.values():
        found[kind.rules.release.minor] += kind.nodes
    said = ", ".join(f"1.{minor} ({count})" for minor, count in sorted(found.items()) if count)
    return f"each node decides by its own release: Kubernetes {said}" if "," in said else ""


def _best(placing: Placements, found: Survey) -> Iterator[FittingNode]:
    verdicts, classes = placing.model.verdicts, placing.model.classes
    for name in verdicts.ranked(found.signature, found.fitting, MOST_BEST):
        node = verdicts.nodes[name]
        holding = classes.admit(node.kind, node.state, found.signature).holding
        if holding is not None:
            topology = node.kind.rules.cpu.topology
            zones = tuple(zone for zone, cpus in topology.numa_nodes.items() if cpus & holding.cpus)
            yield FittingNode(name, format_bits(holding.cpus), zones, str(node.kind.rules.release))
