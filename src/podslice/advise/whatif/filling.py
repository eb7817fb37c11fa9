"""Fill a node with more of the same pods: how many fit, and how many CPUs are left that none of them can use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from podslice.advise.whatif.placement import wanted_cpus
from podslice.api.pod.spec import Pod
from podslice.node.decision import Decision
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.scheduling.predicates import admission_requests
from podslice.values.errors import UpstreamDefectError

replace = msgspec.structs.replace
MOST_FILLING = 4096
"""Bound for pods that own so few CPUs, or so little of a full node, that filling it would take very long."""


class Capacity(msgspec.Struct, frozen=True):
    """How many more of the compared pods fit beside those that run: `pods` copies, in `rounds` of all of them.
    `refused` is the copy that does not fit any more, with the kubelet's `reason` and `message`, and `why` are the
    computed causes. `whole` False: there may be more, but so many were not tried."""

    pods: int
    rounds: int
    refused: str = ""
    reason: str = ""
    message: str = ""
    why: tuple[str, ...] = ()
    whole: bool = True


def admit_or_name(node: Node, pod: Pod) -> Decision | str:
    """Admit a pod; return the name of the upstream defect in place of a decision where a kubelet crashes or hangs."""
    try:
        return node.admit(pod)
    except UpstreamDefectError as defect:
        return defect.name


def copy_pod(pod: Pod, name: str) -> Pod:
    """Return a pod with the same specification under another name and UID."""
    return replace(pod, metadata=replace(pod.metadata, name=name, uid=name))


def count_stranded(node: Node, pods: Sequence[Pod]) -> int:
    """Fill the node with copies of those of the pods that could own CPUs, small ones first, until none fits; return how
    many CPUs are left, 0 where no pod could own any.

    CPUs that pods request and share are of use. Without a static policy nothing is owned, and those that no pod
    requests count.
    """
    view = node.view
    shapes = list(_shapes(view, pods))
    number = 0
    for shape in shapes:
        while number < MOST_FILLING:
            # The limit is for all shapes together.
            number += 1
            answer = admit_or_name(node, copy_pod(shape, f"filling-{number}"))
            if isinstance(answer, str) or not answer.admitted:
                break
    view = node.view
    if not shapes:
        return 0
    left = [_unrequested(view)] if view.predicates else []
    return min([*left, view.assignable.bit_count()] if view.pins_cpus else left or [0])


def _shapes(view: NodeView, pods: Sequence[Pod]) -> Iterator[Pod]:
    """Yield one pod of each specification that could own CPUs, the smallest first."""
    sizes = [wanted_cpus(view, pod) for pod in pods]
    kept: list[tuple[int, Pod]] = []
    for size, pod in sorted(zip(sizes, pods, strict=True), key=lambda pair: pair[0]):
        # An equal pod that was refused once is refused again, since nothing leaves.
        if size and not any(one == size and _are_alike(known, pod) for one, known in kept):
            kept.append((size, pod))
            yield pod


def _are_alike(one: Pod, other: Pod) -> bool:
    same = one.spec == other.spec and one.metadata.annotations == other.metadata.annotations
    return same and one.status == other.status


def _unrequested(view: NodeView) -> int:
    """Return the allocatable CPUs that no pod requests."""
    requested = sum(admission_requests(pod.spec, view.gates).get("cpu", 0) for pod in view.pods.values())
    return max(0, view.allocatable["cpu"].milli_value() - requested) // 1000
