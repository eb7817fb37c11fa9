"""Replay a node of a simulation to its state at the end, from the pods that came and left.

A cell keeps what happened to pods, not the states of nodes. A node's decisions depend on nothing but its own history,
so replaying it gives the same CPUs; where it does not, the result is marked.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from podslice.fleet.engine.nodes import FleetClass
from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.codec import CellOutcome
from podslice.node.node import Node
from podslice.values.errors import InputError


class NodeAtEnd(NamedTuple):
    """The node, the number of pods that came to it, and whether the replay has the CPUs that the cell recorded
    (`exact`)."""

    node: Node
    kind: FleetClass
    came: int
    exact: bool


def replay_node(study: Study, cell: FleetCell, outcome: CellOutcome, name: str) -> NodeAtEnd:
    """Return a node of a cell as it was at the end. Raises `InputError` for an unknown node."""
    if name not in outcome.nodes:
        raise InputError(f"no node is called {name}", path="--node", remedy=f"such as {outcome.nodes[0]}")
    number = outcome.nodes.index(name)
    fleet = study.fleet(cell)
    workload = study.workload(cell, fleet)
    kind = fleet.classes[fleet.nodes[number].kind]
    node = Node.of(kind.rules, fleet.nodes[number].start or kind.state)
    pods = outcome.result.pods
    mine = [pod for pod in range(len(outcome.shape)) if pods.node[pod] == number and pods.bound[pod] >= 0]
    events = sorted(
        # Ends sort before bindings of the same moment, as in the engine's clock.
        [(pods.bound[pod], 1, pod) for pod in mine]
        + [(pods.ended[pod], 0, pod) for pod in mine if pods.ended[pod] >= 0]
    )
    exact = True
    for _, begins, pod in events:
        uid = workload.initial.get(pod) or f"pod-{pod}"
        if not begins:
            node.remove(uid)
            continue
        if pod in workload.initial:
            continue
        shape = workload.shapes[outcome.shape[pod]]
        metadata = replace(shape.pod.metadata, name=uid, uid=uid, namespace="default")
        decision = node.admit(replace(shape.pod, metadata=metadata))
        exact &= decision.admitted
        if pods.cpus and decision.admitted and outcome.result.pods.cpus[pod]:
            exact &= _cpus_of(node, uid) == outcome.result.pods.cpus[pod]
    return NodeAtEnd(node, kind, len(mine), exact)


def _cpus_of(node: Node, uid: str) -> int:
    """Return the mask of all CPUs that a pod owns."""
    state = node.state.cpu
    found = state.pod_cpus.get(uid, 0)
    for cpus in state.assignments.get(uid, {}).values():
        found |= cpus
    return found
