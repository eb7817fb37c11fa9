"""Count how many more of the same pods a node takes, and compute what keeps the next one out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podslice.advise.explain.explain import explain
from podslice.advise.whatif.compare import Outcome, Scenario, start_node
from podslice.advise.whatif.filling import MOST_FILLING, Capacity, admit_or_name, copy_pod
from podslice.api.pod.spec import Pod
from podslice.node.node import Node

replace = msgspec.structs.replace


def add_capacity(outcome: Outcome, scenario: Scenario, pods: Sequence[Pod], *, profile: str = "podslice") -> Outcome:
    """Return the outcome with how many of the pods fit beside those that run."""
    node, _, problem = start_node(scenario, profile)
    if node is None or problem:
        return outcome
    return replace(outcome, capacity=count_fitting(node, pods))


def count_fitting(node: Node, pods: Sequence[Pod]) -> Capacity:
    """Admit copies of the pods to the node, round after round in the order given, until one is refused; the node keeps
    those that it takes."""
    number = 0
    while pods and number < MOST_FILLING:
        shape = pods[number % len(pods)]
        copy = copy_pod(shape, f"{shape.metadata.name}-{number // len(pods) + 1}")
        before = node.copy()
        answer = admit_or_name(node, copy)
        if isinstance(answer, str):
            return Capacity(
                number, number // len(pods), copy.metadata.full_name, answer, "the kubelet crashes or hangs here"
            )
        if not answer.admitted:
            why = explain(before, copy, fixes=False).why
            return Capacity(
                number,
                number // len(pods),
                copy.metadata.full_name,
                answer.reason,
                answer.message,
                why or (answer.why,),
            )
        number += 1
    return Capacity(number, number // max(1, len(pods)), whole=False)
