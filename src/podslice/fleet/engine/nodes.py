"""The nodes of a fleet: few classes, many nodes of each.

A class is a started kubelet: what it decides by, its state without pods, and what its Node object says. Machines and
configurations are told apart by class only, so that what one node answered is known of all others of its class that
are in the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from podslice.fleet.engine.shapes import NodeTaint
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState

NO_LABELS: Mapping[str, str] = {}
NO_AMOUNTS: Mapping[str, int] = {}
NodeEventKind: TypeAlias = Literal["drain", "fail", "add", "restart"]


class FleetClass(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Nodes of one machine and configuration. `rules` and `state`: of a `Node` that has started and has no pods.

    `allocatable` is what the scheduler counts with, the Node object's numbers: milli CPUs, bytes, whole units, `pods`
    among them. `gpus` GPUs of one `gpu_model` are what the scheduler ledgers milli of. `source`: where the machine is
    known from. `kept`: the same numbers as its own kubelet would say them, by the configuration that it has here.
    """

    name: str
    rules: NodeRules
    state: NodeState
    allocatable: Mapping[str, int]
    gpus: int = 0
    gpu_model: str = ""
    source: Literal["captured", "nrt", "assumed"] = "assumed"
    kept: Mapping[str, int] = NO_AMOUNTS


class FleetNode(NamedTuple):
    """One node: `kind` is the position of its class. `absent`: it comes later, by an event. `start`: its state where
    pods are on it from the beginning (`Workload.there`); its devices are in the pools of the class' state."""

    name: str
    kind: int
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[NodeTaint, ...] = ()
    unschedulable: bool = False
    absent: bool = False
    start: NodeState | None = None


class Fleet(msgspec.Struct, frozen=True, eq=False):
    """All nodes, in the order of their numbers."""

    classes: tuple[FleetClass, ...]
    nodes: tuple[FleetNode, ...]


class NodeEvent(NamedTuple):
    """Something that happens to nodes at `at_ms`: `drain` (unschedulable, its pods end and come again through their
    owners), `fail` (the same, and the node is gone), `add` (an absent node comes), `restart` (its kubelet
    restarts; with -1 for `kind` all pods keep what they have, else it is of that class from now on and, without its
    state files, admits its pods again)."""

    at_ms: int
    what: NodeEventKind
    nodes: tuple[int, ...]
    kind: int = -1
