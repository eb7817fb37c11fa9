"""The answers about a cluster, as the service returns them and programs read them. Pure, and cheap to import."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from podslice.advise.explain.fixes.fix import Edit

PendingState: TypeAlias = Literal["nominated", "waiting", "refused", "shared", "unreadable"]
WayKind: TypeAlias = Literal["moves", "eviction", "request"]


class NodeTile(msgspec.Struct, frozen=True):
    """One node as a small map. `problem`: the reason why it takes no pods with exclusive resources, empty for none.
    `zones`: one text for each NUMA node with CPUs: its id, then runs of CPUs in the order of cores, each a number and a
    letter. `o` owned by containers, `c` promised to pods on their way, `f` free to be assigned (the shared pool runs on
    them), `r` reserved for the system, `s` shared on a node that assigns no CPUs. `kubernetes`: the release by which
    the node decides, such as 1.34, empty while nothing is known of it."""

    node: str
    problem: str
    cordoned: bool
    zones: tuple[str, ...]
    kubernetes: str = ""


class ClusterNodes(msgspec.Struct, frozen=True):
    """Nodes whose map has changed since the revision in the request, or with `whole` all nodes. `revision` is the one
    to send next time; `gone` are names of nodes that have left."""

    revision: str
    whole: bool
    items: tuple[NodeTile, ...]
    gone: tuple[str, ...]


class RefusingNodes(msgspec.Struct, frozen=True):
    """Nodes that do not take a pod, for one reason."""

    reason: str
    count: int
    nodes: tuple[str, ...]


class FittingNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node that takes the pod now: the CPUs that it would own there, as a CPU list, empty where it would only share;
    and their NUMA nodes. `kubernetes`: the release by which it decides, such as 1.34."""

    node: str
    cpus: str
    numa_nodes: tuple[int, ...]
    kubernetes: str = ""


class WayOut(msgspec.Struct, frozen=True):
    """A change after which the pod is admitted on `node`; it was tried with the node's own state and the pods on their
    way there. `moves`: containers of `pods` get other CPUs, as in a plan of `podslice defrag`; `eviction`: `pods`
    leave; `request`: the pod requests less, by `edits`. `cost` is that of `podslice explain`: the least first."""

    kind: WayKind
    node: str
    text: str
    cost: float
    pods: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()


class PodFit(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes where a pod could go at this moment. `exclusive`: it requests exclusive resources, so that nodes have a
    say; others go wherever the scheduler sends them. Of `nodes` tried, `fitting` take it; `best` are the first of those
    in the service's order, `fitting_nodes` all. `held`: the node that is kept for it already. `ways` are changes that
    would help where no node takes it; None where none were searched. `notes` name what was not considered."""

    pod: str
    exclusive: bool
    nodes: int
    fitting: int
    held: str
    best: tuple[FittingNode, ...]
    fitting_nodes: tuple[str, ...]
    refused: tuple[RefusingNodes, ...]
    ways: tuple[WayOut, ...] | None
    notes: tuple[str, ...]


class PodFitList(msgspec.Struct, frozen=True):
    """One answer for each pod, independent of the others."""

    items: tuple[PodFit, ...]
    warnings: tuple[str, ...] = ()


class PendingPod(msgspec.Struct, frozen=True):
    """A pod without a node. `state`: `nominated` (a node is kept for it: `node`), `waiting` (some node takes it, and it
    is in the scheduler's queue), `refused` (none does), `shared` (it requests nothing exclusive: other plugins or
    limits keep it), `unreadable`. `reason` counts nodes by cause. `since` is its creation, RFC 3339. `like` other pods
    in the list have equal needs. `way` is the cheapest way out, None where there is none or none was searched."""

    namespace: str
    name: str
    uid: str
    priority: int
    since: str
    state: PendingState
    node: str
    reason: str
    like: int
    way: WayOut | None


class PendingPodList(msgspec.Struct, frozen=True, rename="camel"):
    """The pending pods, the most important first, then the oldest; `total` also counts those that are not listed.
    `searched`: ways out were searched."""

    total: int
    searched: bool
    items: tuple[PendingPod, ...]


class SizeRoom(msgspec.Struct, frozen=True):
    """Room for pods of `cpus` CPUs on one NUMA node, counted by free CPUs: how many would find room, and how many of
    the free CPUs they could use."""

    cpus: int
    pods: int
    usable: int


class FragmentationPoint(msgspec.Struct, frozen=True):
    """One sample: Unix time, CPUs that can be owned, owned or promised, free, the sum over nodes of the free CPUs on
    their best NUMA node, and the usable CPUs of each size in `sizes`."""

    at: float
    cpus: int
    owned: int
    free: int
    largest: int
    usable: tuple[int, ...]


class ScatteredNode(msgspec.Struct, frozen=True):
    """A node whose free CPUs are scattered: free in all, and on its best NUMA node."""

    node: str
    free: int
    largest: int


class ClusterFragmentation(msgspec.Struct, frozen=True):
    """The fragmentation of free CPUs over the nodes that take pods, now and before. `percent`: the share of the free
    CPUs that are not on the best NUMA node of their node. `history` is bounded: the older, the farther apart; the last
    point is now. `scattered` are the worst nodes."""

    nodes: int
    percent: int
    sizes: tuple[SizeRoom, ...]
    history: tuple[FragmentationPoint, ...]
    scattered: tuple[ScatteredNode, ...]
