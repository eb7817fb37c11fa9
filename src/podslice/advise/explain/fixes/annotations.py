"""Fixes in a pod's annotations: wrong ones left out, and another CPU class."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.explain.fixes.fix import COSTS, Edit, Fix
from podslice.api.pod.spec import Pod
from podslice.config.annotations import CPU_CLASS, may_annotate, requested_classes
from podslice.node.view import NodeView


def without_annotations(pod: Pod, wrong: set[str], works: Callable[[Pod], bool]) -> Iterator[Fix]:
    """Yield the pod without its wrong annotations; no other change helps it."""
    written = pod.metadata.annotations or {}
    metadata = replace(pod.metadata, annotations={k: v for k, v in written.items() if k not in wrong})
    other = replace(pod, metadata=metadata)
    if works(other):
        edits = tuple(Edit(f"metadata.annotations[{key}]", written[key], "") for key in sorted(wrong))
        words = f"Leave out the annotation{'s' * (len(wrong) > 1)} {' and '.join(sorted(wrong))}"
        yield Fix("drop-annotation", words, COSTS["drop-annotation"], EditPod(other), edits)


def other_classes(node: NodeView, pod: Pod, works: Callable[[Pod], bool]) -> Iterator[Fix]:
    """Yield a fix with the first class, in the policy's order, under which the pod is admitted."""
    classes = node.cpu_classes
    if classes is None or not node.policy.cpu_classes or not may_annotate(node.policy, pod):
        return
    admission = node.admission(pod)
    owners = [one.name for one in admission.containers if one.exclusive_cpus]
    if not owners:
        return
    before = (pod.metadata.annotations or {}).get(CPU_CLASS, "")
    written = requested_classes(node.policy, pod)
    for name in classes.ownable:
        choices = {"": name} if admission.managed or not written or len(admission.containers) == 1 else {
            **written, **dict.fromkeys(owners, name)}  # fmt: skip
        text = ",".join(f"{who}={choice}" if who else choice for who, choice in choices.items())
        if text == before:
            continue
        annotations = {**(pod.metadata.annotations or {}), CPU_CLASS: text}
        other = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        if works(other):
            edit = Edit(f"metadata.annotations[{CPU_CLASS}]", before, text)
            words = f"Request CPUs of class {name} (annotation {CPU_CLASS}: {text})"
            yield Fix("other-class", words, COSTS["other-class"], EditPod(other), (edit,))
            return
