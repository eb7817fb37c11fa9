"""A copy of a running kubelet to try things on: same decisions from then on, nothing shared that changes."""

from __future__ import annotations

import copy

from podslice.core.kubelet import Kubelet


def fork(kubelet: Kubelet) -> Kubelet:
    """An independent copy; what never changes (machine, topology, specifications) is shared with the original."""
    manager = kubelet.manager
    pods = list(kubelet.active.values())
    shared = [
        kubelet.machine,
        kubelet.config,
        kubelet.quirks,
        kubelet.devices,
        manager.cpu.topology,
        manager.context.gates,
        *pods,
        *(pod.spec for pod in pods),
        *kubelet.files.values(),
    ]
    return copy.deepcopy(kubelet, {id(thing): thing for thing in shared})
