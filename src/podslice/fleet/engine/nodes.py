"""The nodes of a fleet: few classes, many nodes of each.

A class is a started kubelet: its rules, its state without pods, and the numbers of its Node object. Machines and
configurations are distinguished by class only, so that an answer of one node holds for all nodes of its class in the
same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.scheduling.taints import Taint

NO_LABELS: Mapping[str, str] = {}
NO_AMOUNTS: Mapping[str, int] = {}
NodeEventKind: TypeAlias = Literal["drain", "fail", "add", "restart"]


class FleetClass(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Nodes of one machine and configuration. `rules` and `state` are those of a `Node` that has started and has no
    pods.

    - `allocatable`: what the scheduler counts with, the amounts of the Node object: millicores, bytes, whole units;
      `pods` among them.
    - `gpus`: GPUs of one `gpu_model`, of which the scheduler accounts milli-GPUs.
    - `source`: where the machine is known from.
    - `kubelet_allocatable`: the same amounts by the node's own kubelet, from its configuration in this class.
    """

    name: str
    rules: NodeRules
    state: NodeState
    allocatable: Mapping[str, int]
    gpus: int = 0
    gpu_model: str = ""
    source: Literal["captured", "nrt", "assumed"] = "assumed"
    kubelet_allocatable: Mapping[str, int] = NO_AMOUNTS


class FleetNode(NamedTuple):
    """One node.

    - `kind`: position of its class.
    - `absent`: the node is added later, by an event.
    - `start`: its state where pods are on it from the beginning (`Workload.initial`); its devices are in the pools of
      the class' state.
    """

    name: str
    kind: int
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    absent: bool = False
    start: NodeState | None = None


class Fleet(msgspec.Struct, frozen=True, eq=False):
    """All nodes, in the order of their numbers."""

    classes: tuple[FleetClass, ...]
    nodes: tuple[FleetNode, ...]


class NodeEvent(NamedTuple):
    """A change of nodes at `at_ms` milliseconds:

    - `drain`: the nodes become unschedulable, their pods end and are created again by their owners;
    - `fail`: the same, and the nodes are absent;
    - `add`: absent nodes become present;
    - `restart`: their kubelets restart. With `kind` -1 all pods keep their resources; otherwise the nodes belong to
      class `kind` from now on and, without their state files, admit their pods again.
    """

    at_ms: int
    what: NodeEventKind
    nodes: tuple[int, ...]
    kind: int = -1
