"""What a whole node has left for one more pod, as the general predicates count it."""

from __future__ import annotations

from podslice.core.kubelet import Kubelet
from podslice.core.pod.spec import Pod
from podslice.core.values.quantity import ZERO


def room_on_node(kubelet: Kubelet, pod: Pod, name: str) -> int:
    """Allocatable less what the other pods request, in bytes or pieces; negative where they request more."""
    allocatable = kubelet.node_resources().allocatable.get(name, ZERO).value()
    return allocatable - kubelet.others(pod.metadata.uid).used.get(name, 0)
