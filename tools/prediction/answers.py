"""Compare a kubelet's answers about its pods: the PodResources API, and its device checkpoint."""

from __future__ import annotations

from podslice.node.checkpoints.names import DEVICE_STATE_FILE, place_of
from tools.prediction import compare
from tools.prediction.kubelet import RealKubelet
from tools.prediction.model import Model
from tools.prediction.node import soon
from tools.prediction.notes import Notes

PATIENCE = 60.0
"""Seconds within which a kubelet catches up, even on a busy machine."""
_NO_POD = "nobody"


def compare_pod_resources(notes: Notes, kubelet: RealKubelet, model: Model) -> None:
    """Compare List, Get of each pod and of one that does not exist, and GetAllocatableResources."""
    listed = [compare.normalise_pod(pod) for pod in model.list_pods()]
    soon(lambda: bool(compare.read_listed_pods(kubelet) == listed), PATIENCE)
    notes.same("PodResources List", compare.read_listed_pods(kubelet), listed)
    allocatable = compare.allocatable(model.allocatable())
    soon(lambda: bool(compare.allocatable_of(kubelet) == allocatable), PATIENCE)
    notes.same("GetAllocatableResources", compare.allocatable_of(kubelet), allocatable)
    not_found = {"code": "UNKNOWN", "details": f"pod {_NO_POD} in namespace default not found"}
    for name, expected in [(pod["name"], pod) for pod in listed] + [(_NO_POD, not_found)]:
        notes.same(f"PodResources Get of {name}", compare.read_pod(kubelet, name), expected)
    notes.counts["PodResources answers"] += 3 + len(listed)


def compare_device_file(notes: Notes, kubelet: RealKubelet, model: Model) -> None:
    """Compare `kubelet_internal_checkpoint`, once the kubelet has written it."""

    def pair() -> tuple[object, object]:
        real = kubelet.file(place_of(DEVICE_STATE_FILE))
        return compare.device_state(real), compare.device_state(model.device_file())

    soon(lambda: len({repr(own) for own in pair()}) == 1, PATIENCE)
    notes.counts["device checkpoints"] += 1
    notes.same(DEVICE_STATE_FILE, *pair())
