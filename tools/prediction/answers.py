"""What a kubelet answers about the pods it has: the PodResources API, and its file of devices."""

from __future__ import annotations

from podslice.node.checkpoints.names import DEVICE_STATE_FILE, place_of
from tools.prediction import compare
from tools.prediction.kubelet import RealKubelet
from tools.prediction.model import Model
from tools.prediction.node import soon
from tools.prediction.notes import Notes

PATIENCE = 60.0
"""Seconds in which a kubelet catches up, on a busy machine too."""
_NOBODY = "nobody"


def compare_pod_resources(notes: Notes, kubelet: RealKubelet, model: Model) -> None:
    """Of all pods at once, of each by its name, of one that is not there, and of what all can have."""
    listed = [compare.listing(pod) for pod in model.listed()]
    soon(lambda: bool(compare.listed(kubelet) == listed), PATIENCE)
    notes.same("PodResources List", compare.listed(kubelet), listed)
    allocatable = compare.allocatable(model.allocatable())
    soon(lambda: bool(compare.allocatable_of(kubelet) == allocatable), PATIENCE)
    notes.same("GetAllocatableResources", compare.allocatable_of(kubelet), allocatable)
    nobody = {"code": "UNKNOWN", "details": f"pod {_NOBODY} in namespace default not found"}
    for name, expected in [(pod["name"], pod) for pod in listed] + [(_NOBODY, nobody)]:
        notes.same(f"PodResources Get of {name}", compare.got(kubelet, name), expected)
    notes.counts["PodResources answers"] += 3 + len(listed)


def compare_device_file(notes: Notes, kubelet: RealKubelet, model: Model) -> None:
    """`kubelet_internal_checkpoint`, once the kubelet has written it."""

    def pair() -> tuple[object, object]:
        real = kubelet.file(place_of(DEVICE_STATE_FILE))
        return compare.device_state(real), compare.device_state(model.device_file())

    soon(lambda: len({repr(own) for own in pair()}) == 1, PATIENCE)
    notes.counts["device checkpoints"] += 1
    notes.same(DEVICE_STATE_FILE, *pair())
