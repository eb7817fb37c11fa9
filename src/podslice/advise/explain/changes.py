"""Changes to a pod, a kubelet or a node, and trying them for real: admission is run again with the change in place.

A change is plain data, so that what was printed can be applied again by anybody, also by the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.validation import validate
from podslice.core.errors import StartError, UpstreamDefectError
from podslice.core.kubelet import Kubelet
from podslice.core.machine.model import Machine
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.spec import Pod


class EditPod(msgspec.Struct, frozen=True, tag="editPod"):
    """Ask for this pod instead."""

    pod: Pod


class Reconfigure(msgspec.Struct, frozen=True, tag="reconfigure"):
    """Restart the kubelet with another configuration. `drained`: on an empty node, its pods admitted again first."""

    config: KubeletConfig
    drained: bool = False


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """These pods (UIDs) leave; with `back` they are admitted again after the pod."""

    uids: tuple[str, ...]
    back: bool = False


class EmptyNode(msgspec.Struct, frozen=True, tag="emptyNode"):
    """Another node of this type without pods."""


class ChangeMachine(msgspec.Struct, frozen=True, tag="changeMachine"):
    """The machine changes (huge pages) and the kubelet restarts; `drained` as in `Reconfigure`."""

    machine: Machine
    drained: bool = False


Change: TypeAlias = EditPod | Reconfigure | Remove | EmptyNode | ChangeMachine


def admits(kubelet: Kubelet, pod: Pod, change: Change) -> bool:
    """True when, with the change, the pod is admitted, nobody is preempted, and all pods that should stay do stay.

    `kubelet` is left as it is.
    """
    if isinstance(change, EditPod):
        return lands(kubelet.copy(), change.pod)
    if isinstance(change, Remove):
        return _without(kubelet, pod, change)
    if isinstance(change, EmptyNode):
        node = fresh(kubelet, kubelet.machine, kubelet.config, ())
    elif change.drained:
        machine, config = _changed(kubelet, change)
        node = fresh(kubelet, machine, config, [other.spec for other in kubelet.active.values()])
    else:
        node = restarted(kubelet, *_changed(kubelet, change))
    return node is not None and lands(node, pod)


def lands(kubelet: Kubelet, pod: Pod) -> bool:
    """Admit a pod for real and start its containers; True when that works and nobody is preempted."""
    pod = default_pod(pod, kubelet.manager.context.gates)
    kubelet.preempted = ()
    try:
        if kubelet.admit(pod) is not None or kubelet.preempted:
            return False
        started = kubelet.start_containers(pod.metadata.uid)
    except UpstreamDefectError:
        return False
    return not any(container.error for container in started.values())


def _without(kubelet: Kubelet, pod: Pod, change: Remove) -> bool:
    copy = kubelet.copy()
    leaving = [copy.active[uid].spec for uid in change.uids]
    for uid in change.uids:
        copy.remove_pod(uid)
    if not lands(copy, pod):
        return False
    return not change.back or all(lands(copy, other) for other in leaving)


def _changed(kubelet: Kubelet, change: Reconfigure | ChangeMachine) -> tuple[Machine, KubeletConfig]:
    if isinstance(change, Reconfigure):
        return kubelet.machine, change.config
    return change.machine, kubelet.config


def fresh(kubelet: Kubelet, machine: Machine, config: KubeletConfig, pods: Sequence[Pod]) -> Kubelet | None:
    """An empty node like this one with the pods on it; None if it does not start or does not take them all."""
    if validate(config):
        return None
    node = Kubelet(machine, config, kubelet.quirks, devices=kubelet.devices, predicates=kubelet.predicates)
    try:
        node.start()
    except StartError:
        return None
    return node if all(lands(node, pod) for pod in pods) else None


def restarted(kubelet: Kubelet, machine: Machine, config: KubeletConfig) -> Kubelet | None:
    """The node after a restart with this machine and configuration; None if it does not start or refuses a running
    pod."""
    if validate(config):
        return None
    copy = kubelet.copy()
    copy.save()
    try:
        copy.restart(machine=machine, config=config)
        refused = [admitted for admitted in copy.readmit() if admitted.refusal is not None]
    except (StartError, UpstreamDefectError):
        return None
    if refused:
        return None
    copy.sources_ready()
    copy.collect()
    return copy
