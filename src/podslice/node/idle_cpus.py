"""Sentences about the CPUs of a node that are neither used nor free."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.node.cpu.ended import IdleCPUs, describe_idle, idle_after_init
from podslice.node.view import NodeView


def idle_cpus(view: NodeView) -> Iterator[IdleCPUs]:
    """Yield the CPUs of init containers that no container after them takes over."""
    # The containers of a pod with pod-level resources share its CPUs, so none of them is idle.
    inits = {
        uid: frozenset(one.name for one in pod.containers if one.plain_init)
        for uid, pod in view.pods.items()
        if uid not in view.pod_cpus
    }
    return idle_after_init(view.owners, inits)


def idle_notes(view: NodeView) -> Iterator[str]:
    """Yield a sentence for each init container that ends before the others start, and keeps CPUs until its pod ends."""
    for idle in idle_cpus(view):
        metadata = view.pods[idle.pod].spec.metadata
        yield describe_idle(idle, f"{metadata.namespace or 'default'}/{metadata.name}")
