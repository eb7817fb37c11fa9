"""What a whole node has left for one more pod, as the general predicates count it."""

from __future__ import annotations

from podslice.core.kubelet import Kubelet
from podslice.core.pod.spec import Pod
from podslice.core.scheduling.fit import filter_requests
from podslice.core.values.quantity import ZERO


def room_on_node(kubelet: Kubelet, pod: Pod, name: str) -> int:
    """Allocatable less what the other pods request, in bytes or pieces; negative where they request more."""
    gates = kubelet.manager.context.gates
    others = (other.spec for uid, other in kubelet.active.items() if uid != pod.metadata.uid)
    allocatable = kubelet.node_resources().allocatable.get(name, ZERO).value()
    return allocatable - sum(filter_requests(other, gates).get(name, 0) for other in others)
