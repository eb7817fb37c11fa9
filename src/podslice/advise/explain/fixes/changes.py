"""Changes to a pod, a kubelet or a node, and trials of them: admission is run again with the change in place.

A change is plain data, so that a printed change can be applied again, also by the tests.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from podslice.advise.trial.trial import Moved, Trial
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import PodslicePolicy
from podslice.machine.model import Machine
from podslice.node.view import NodeView
from podslice.values.errors import InputError
from podslice.values.releases.table import parse_release


class EditPod(msgspec.Struct, frozen=True, tag="editPod"):
    """Admit this pod instead."""

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
    """Use another node of this type, without pods."""


class ChangeMachine(msgspec.Struct, frozen=True, tag="changeMachine"):
    """Change the machine (huge pages) and restart the kubelet; `drained` as in `Reconfigure`."""

    machine: Machine
    drained: bool = False


class ChangeRelease(msgspec.Struct, frozen=True, tag="changeRelease"):
    """Run a kubelet of another release (such as 1.34) on the drained node; its pods are admitted again first."""

    release: str
    drained: bool = True


class ChangePolicy(msgspec.Struct, frozen=True, tag="changePolicy"):
    """Give the node another PodslicePolicy; running pods keep what they have."""

    policy: PodslicePolicy


class MoveContainers(msgspec.Struct, frozen=True, tag="moveContainers"):
    """Move running containers within the node, one pod after the other."""

    moves: tuple[Moved, ...]

    @property
    def uids(self) -> tuple[str, ...]:
        """The pods whose containers move."""
        return tuple(dict.fromkeys(one.uid for one in self.moves))


Change: TypeAlias = (
    EditPod | Reconfigure | Remove | EmptyNode | ChangeMachine | ChangeRelease | ChangePolicy | MoveContainers
)


def admits(node: Trial, pod: Pod, change: Change) -> bool:
    """Whether, with the change, the pod is admitted, no pod is preempted, and all pods that should stay do stay. `node`
    is left as it is."""
    view = node.view
    if isinstance(change, EditPod):
        return node.copy().try_run(change.pod)
    if isinstance(change, Remove):
        return _admits_without(node.copy(), pod, change)
    if isinstance(change, MoveContainers):
        return _with_moves(node, change).try_run(pod)
    if isinstance(change, EmptyNode):
        other = node.fresh(view.machine, view.config)
    elif isinstance(change, ChangePolicy):
        other = node.restart(view.machine, view.config, change.policy)
    elif isinstance(change, ChangeRelease):
        pods = [running.spec for running in view.pods.values()]
        other = node.fresh(view.machine, view.config, pods, parse_release(change.release))
    elif change.drained:
        other = node.fresh(*_settings_after(view, change), [running.spec for running in view.pods.values()])
    else:
        other = node.restart(*_settings_after(view, change))
    return other is not None and other.try_run(pod)


def grants(node: Trial, pod: Pod, change: Change) -> bool:
    """Whether, with the change, a resize of a pod of the node is granted. `node` is left as it is."""
    view = node.view
    other: Trial | None = None
    if isinstance(change, EditPod):
        other, pod = node.copy(), change.pod
    elif isinstance(change, Remove):
        other = node.copy()
        other.remove(*change.uids)
    elif isinstance(change, MoveContainers):
        other = _with_moves(node, change)
    elif isinstance(change, ChangePolicy):
        other = node.restart(view.machine, view.config, change.policy)
    elif isinstance(change, Reconfigure):
        other = node.restart(view.machine, change.config)
    try:
        # `Unchanged` does not count: an edit that asks for what the pod has is not a fix.
        return other is not None and other.resize(pod).outcome == "Allocated"
    except InputError:
        return False


def _with_moves(node: Trial, change: MoveContainers) -> Trial:
    other = node.copy()
    for one in change.moves:
        other.move(one)
    return other


def _admits_without(node: Trial, pod: Pod, change: Remove) -> bool:
    leaving = [node.view.pods[uid].spec for uid in change.uids]
    node.remove(*change.uids)
    return node.try_run(pod) and (not change.back or all(node.try_run(other) for other in leaving))


def _settings_after(view: NodeView, change: Reconfigure | ChangeMachine) -> tuple[Machine, KubeletConfig]:
    if isinstance(change, Reconfigure):
        return view.machine, change.config
    return change.machine, view.config
