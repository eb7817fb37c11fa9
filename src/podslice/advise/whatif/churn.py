"""Keep a full node busy: pods leave, others of the same mix come, and some of them find no place, or a bad one.

A policy that refuses nothing on an empty node may refuse much once free CPUs lie scattered. The sequence is the same
for every configuration: fill the node, then twice remove every second pod and admit the mix in the opposite order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from podslice.advise.whatif.filling import admit_or_name, copy_pod
from podslice.advise.whatif.placement import Ruler, requested_cpus
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.node.decision import Decision
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.scheduling.predicates import admission_requests, amounts

_ROUNDS = 2
_MOST_FILLING, _MOST_TRIES = 32, 24
_FEW = 20
"""Spread pods that are fewer than one in so many tried ones are chance, and cost nothing."""


class Room:
    """The sums of a node: what is allocatable and not requested yet. A scheduler sends no pod that exceeds them."""

    def __init__(self, view: NodeView) -> None:
        self._gates, self._free = view.gates, amounts(view.allocatable)
        self._held = dict[str, Mapping[str, int]]()
        for uid, pod in view.pods.items():
            self.take(uid, self.requests(pod.spec))

    def requests(self, pod: Pod) -> Mapping[str, int]:
        """Return what a pod requests of the sums."""
        found = admission_requests(default_pod(pod, self._gates), self._gates)
        return {name: amount for name, amount in found.items() if name in self._free}

    def has(self, requests: Mapping[str, int]) -> bool:
        """Whether the sums suffice."""
        return all(amount <= self._free[name] for name, amount in requests.items())

    def take(self, uid: str, requests: Mapping[str, int]) -> None:
        """Count a pod."""
        self._held[uid] = requests
        for name, amount in requests.items():
            self._free[name] -= amount

    def give(self, uid: str) -> None:
        """Count a pod no longer."""
        for name, amount in self._held.pop(uid, {}).items():
            self._free[name] += amount


class Churn(msgspec.Struct, frozen=True, rename="camel"):
    """What happened on a full node as pods came and went: of the pods that were `tried`, how many were `refused`
    although the node had enough in sum, and on more NUMA nodes than they need (`across`); the CPUs of these, and the
    CPUs that admitted ones would own under a static CPU Manager and do not."""

    tried: int = 0
    refused: int = 0
    across: int = 0
    refused_cpus: int = 0
    across_cpus: int = 0
    floating_cpus: int = 0


def churn(node: Node, pods: Sequence[Pod], ruler: Ruler) -> Churn:
    """Let pods of the mix come and go on the node, and count."""
    if not pods:
        return Churn()
    view = node.view
    sizes = [requested_cpus(view, pod) for pod in pods]
    room = Room(view)
    asked = [room.requests(pod) for pod in pods]
    for number in range(_MOST_FILLING):
        place = number % len(pods)
        early = copy_pod(pods[place], f"early-{number}")
        if room.has(asked[place]) and _is_admitted(admit_or_name(node, early)):
            room.take(early.metadata.uid, asked[place])
    tried = refused = across = refused_cpus = across_cpus = floating = 0
    shapes = [msgspec.json.encode(pod.spec, enc_hook=str) for pod in pods]
    for turn in range(_ROUNDS):
        hopeless = set[bytes]()
        for uid in node.pods[turn % 2 :: 2]:
            node.remove(uid)
            room.give(uid)
        for number in range(_MOST_TRIES):
            place = -1 - number % len(pods)
            # What was refused once is refused until a pod leaves.
            if shapes[place] in hopeless or not room.has(asked[place]):
                continue
            tried += 1
            late = copy_pod(pods[place], f"late-{tried}")
            answer = admit_or_name(node, late)
            if isinstance(answer, str) or not answer.admitted:
                refused, refused_cpus = refused + 1, refused_cpus + sizes[place]
                hopeless.add(shapes[place])
                continue
            room.take(late.metadata.uid, asked[place])
            found = ruler.measure(pods[place], answer)
            floating += found.floating_cpus
            if found.needless_nodes:
                across, across_cpus = across + 1, across_cpus + sizes[place]
    across_cpus = across_cpus if across * _FEW > tried else 0
    return Churn(tried, refused, across, refused_cpus, across_cpus, floating)


def _is_admitted(answer: Decision | str) -> bool:
    return not isinstance(answer, str) and answer.admitted
