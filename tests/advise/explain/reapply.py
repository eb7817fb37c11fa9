"""Applying a printed fix from scratch, by means that the search for fixes does not use."""

from __future__ import annotations

from podslice import Node, Pod
from podslice.advise.explain.fixes.changes import ChangeMachine, ChangeRelease, EditPod, EmptyNode, Reconfigure, Remove
from podslice.advise.explain.fixes.fix import Fix
from podslice.node import readmission
from tests.advise.explain.random_nodes import Setup


def works(setup: Setup, pod: Pod, fix: Fix) -> bool:
    """Whether a new node with the fix applied admits the pod and keeps or takes back all pods that it should."""
    change = fix.change
    if isinstance(change, EditPod):
        return setup.node().admit(change.pod).admitted
    if isinstance(change, EmptyNode):
        return setup.empty().admit(pod).admitted
    if isinstance(change, Remove):
        node = setup.node()
        for uid in change.uids:
            node.remove(uid)
        back = [other for uid in change.uids for other in setup.running if other.metadata.uid == uid]
        return node.admit(pod).admitted and (not change.back or all(node.admit(other).admitted for other in back))
    if isinstance(change, ChangeRelease):
        return setup.in_release(change.release).admit(pod).admitted
    config = change.config if isinstance(change, Reconfigure) else setup.config
    machine = change.machine if isinstance(change, ChangeMachine) else setup.machine
    if change.drained:
        return setup.empty(config, machine, setup.running).admit(pod).admitted
    return _restarted(setup.node(), config, machine, pod)


def _restarted(node: Node, config: object, machine: object, pod: Pod) -> bool:
    kubelet = node.kubelet
    kubelet.save()
    kubelet.restart(config=config, machine=machine)  # type: ignore[arg-type]
    if any(admitted.refusal for admitted in readmission.readmit(kubelet)):
        return False
    kubelet.sources_ready()
    kubelet.collect()
    return node.admit(pod).admitted
