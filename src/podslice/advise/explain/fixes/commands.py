"""Commands that carry out a fix, and the other pods that it interrupts.

What no command does alone, such as editing the kubelet's configuration, is a comment line. `$NODE` stands for the
node's name where no pod tells it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from msgspec.structs import replace

from podslice.advise.explain.fixes.changes import (
    ChangeMachine,
    ChangePolicy,
    ChangeRelease,
    EditPod,
    EmptyNode,
    MoveContainers,
    Reconfigure,
    Remove,
)
from podslice.advise.explain.fixes.edits import POD, places, removed_names
from podslice.advise.explain.fixes.fix import AffectedPod, Edit, Effect, Fix
from podslice.api.pod.spec import ObjectMeta, Pod, ResourceRequirements
from podslice.config.kubelet import KubeletConfig
from podslice.evidence.said import status_said
from podslice.machine.model import Machine
from podslice.node.view import NodeView

_CONFIG_FILE = "/var/lib/kubelet/config.yaml"
_STATE_DIR = "/var/lib/kubelet"
_EFFECTS: dict[bool, Effect] = {False: "deleted", True: "restarted"}


def in_full(fix: Fix, pod: Pod, node: NodeView, stale: Sequence[str] = ()) -> Fix:
    """Return a fix for this pod with its commands and the pods that it affects. `stale` are the state files on which
    the kubelet would not start with the change."""
    return replace(fix, commands=commands(fix, pod, node, stale), affected=affected_pods(fix, node))


def renamed(fix: Fix, before: ObjectMeta, after: ObjectMeta) -> Fix:
    """Return a fix for a pod that differs from another one in its name only."""
    old, new = (f"kubectl delete pod -n {one.namespace or 'default'} {one.name}" for one in (before, after))
    return replace(fix, commands=tuple(new if line == old else line for line in fix.commands))


def affected_pods(fix: Fix, node: NodeView) -> tuple[AffectedPod, ...]:
    """Return the running pods that a fix deletes, restarts or moves."""
    change = fix.change
    if isinstance(change, Remove):
        uids, effect = change.uids, _EFFECTS[change.back]
    elif isinstance(change, MoveContainers):
        uids, effect = change.uids, "moved"
    elif getattr(change, "drained", False):
        uids, effect = tuple(node.pods), "restarted"
    else:
        return ()
    return tuple(_affected(node, uid, effect) for uid in uids)


def _affected(node: NodeView, uid: str, effect: Effect) -> AffectedPod:
    metadata = node.pods[uid].spec.metadata
    return AffectedPod(metadata.namespace or "default", metadata.name, uid, effect, node.owned_by(uid).bit_count())


def commands(fix: Fix, pod: Pod, node: NodeView, stale: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines that carry out a fix, as `in_full`."""
    change, name = fix.change, _node_name(pod, node)
    lines: list[str] = []
    if isinstance(change, EditPod):
        # A refused pod stays Failed, and the requests of a pod cannot be changed.
        return (*_delete_refused(pod), *_edit_pod(pod, change.pod, fix.edits))
    if isinstance(change, Remove):
        lines += _delete(node.pods[uid].spec for uid in change.uids)
    elif isinstance(change, EmptyNode):
        return (f"kubectl cordon {name}", *_delete_refused(pod), f"kubectl uncordon {name}  # once the pod has a node")
    elif isinstance(change, ChangePolicy):
        lines += [f"# in the PodslicePolicy: {_setting(edit)}" for edit in fix.edits]
    elif isinstance(change, MoveContainers):
        lines.append("# podslice defrag --resize plans these moves, and carries them out with --apply")
    else:
        lines += _restart(change, fix, node, name, stale)
    lines += _delete_refused(pod)
    if isinstance(change, Remove) and change.back:
        who = " and ".join(one.metadata.full_name for one in
                           (node.pods[uid].spec for uid in change.uids))  # fmt: skip
        lines.append(f"# once this pod runs, create {who} again if no controller does")
    return tuple(lines)


def _node_name(pod: Pod, node: NodeView) -> str:
    pods = (pod, *islice((one.spec for one in node.pods.values()), 1))
    return next((one.spec.node_name for one in pods if one.spec.node_name), "$NODE")


def _delete(pods: Iterable[Pod]) -> Iterator[str]:
    named = sorted((one.metadata.namespace or "default", one.metadata.name) for one in pods)
    for namespace, group in groupby(named, key=lambda pair: pair[0]):
        yield f"kubectl delete pod -n {namespace} {' '.join(name for _, name in group)}"


def _delete_refused(pod: Pod) -> Iterator[str]:
    """Yield the removal of the pod itself where its status says that it was refused: nothing tries it again."""
    if status_said(pod) is not None:
        yield from _delete([pod])


# The pod's manifest


def _edit_pod(before: Pod, after: Pod, edits: Sequence[Edit]) -> Iterator[str]:
    was = dict(places(before))
    steps, by_hand = [], list(edits)
    for place, resources in places(after):
        old = was.get(place, ResourceRequirements())
        if place == POD or resources == old or removed_names(old, resources):
            continue
        parts = [f"--{kind}={amounts}" for kind in ("requests", "limits") if (amounts := _set(old, resources, kind))]
        steps.append(f"kubectl set resources --local -f {{}} -c {shlex.quote(place)} {' '.join(parts)} -o yaml")
        by_hand = [edit for edit in by_hand if f"[{place}]." not in edit.path]
    if steps and not by_hand:
        files = ("manifest.yaml", *["-"] * len(steps))
        pipe = " | ".join(step.format(file) for step, file in zip(steps, files, strict=False))
        yield f"{pipe} | kubectl apply -f -"
        return
    for edit in edits:
        yield f"# in the manifest: {_setting(edit)}"
    yield "kubectl apply -f manifest.yaml"


def _set(old: ResourceRequirements, new: ResourceRequirements, kind: str) -> str:
    was, now = getattr(old, kind) or {}, getattr(new, kind) or {}
    return ",".join(f"{name}={amount.canonical()}" for name, amount in now.items() if was.get(name) != amount)


def _setting(edit: Edit) -> str:
    return f"{edit.path}: {edit.after}" if edit.after else f"remove {edit.path} (now {edit.before})"


# The node


def _restart(
    change: Reconfigure | ChangeMachine | ChangeRelease, fix: Fix, node: NodeView, name: str, stale: Sequence[str]
) -> Iterator[str]:
    drain = change.drained and bool(node.pods)
    if drain:
        yield f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data"
    if isinstance(change, ChangeRelease):
        yield f"# on {name}: install a kubelet of Kubernetes {change.release}"
    if isinstance(change, ChangeMachine):
        yield from _allocate_pages(node.machine, change.machine)
    if isinstance(change, Reconfigure):
        for edit in fix.edits:
            yield f"# on {name}, in {_CONFIG_FILE}: {_config_setting(edit, change.config)}"
    # A drained node whose configuration stays is only filled again.
    if not (isinstance(change, Reconfigure) and change.config == node.config):
        if stale:
            files = " ".join(f"{_STATE_DIR}/{file}" for file in stale)
            yield f"sudo systemctl stop kubelet && sudo rm {files} && sudo systemctl start kubelet"
        else:
            yield "sudo systemctl restart kubelet"
    if drain:
        yield f"kubectl uncordon {name}"


def _config_setting(edit: Edit, config: KubeletConfig) -> str:
    if edit.path != "reservedMemory" or not edit.after:
        return _setting(edit)
    parts = (
        f"{{numaNode: {one.numa_node}, limits: {{{', '.join(f'{k}: {v}' for k, v in one.limits.items())}}}}}"
        for one in config.reserved_memory
    )
    return f"reservedMemory: [{', '.join(parts)}]"


def _allocate_pages(before: Machine, after: Machine) -> Iterator[str]:
    for old, new in zip(before.nodes, after.nodes, strict=True):
        was = {pool.page_size_ki: pool.num_pages for pool in old.hugepages}
        for pool in new.hugepages:
            if was.get(pool.page_size_ki, 0) != pool.num_pages:
                folder = f"/sys/devices/system/node/node{new.id}/hugepages/hugepages-{pool.page_size_ki}kB"
                yield f"echo {pool.num_pages} | sudo tee {folder}/nr_hugepages"
