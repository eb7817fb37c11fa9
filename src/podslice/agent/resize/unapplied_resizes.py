"""Resizes that the agent does not carry out, and the sentences that report them.

A kubelet without CPU Manager changes the CPUs of any container in place. A container with exclusive CPUs keeps those of
its admission. The quota that the kubelet asks for then applies, so that the container is not left without any limit,
and the resize is reported. Nothing here decides or changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from podslice.agent.records import ContainerRecord, Limits, Pinning, PodRecord
from podslice.node.cpu.state import OWNING
from podslice.values.quantity import cpus_text


def limit_milli_cpu(limits: Limits | None) -> int | None:
    """Return the CPU limit of a quota, in thousandths of a CPU; None without one."""
    if limits is None or limits.quota is None or limits.period <= 0:
        return None
    return limits.quota * 1000 // limits.period


def is_resized(record: ContainerRecord, placement: Pinning) -> bool:
    """Return whether the kubelet asks for another CPU limit than the container with exclusive CPUs was created with.

    Where the limit at its creation is unknown, the number of its exclusive CPUs counts.
    """
    asked = limit_milli_cpu(record.limits)
    if asked is None or placement.isolation not in OWNING or not placement.quota_off:
        return False
    had = limit_milli_cpu(record.created)
    if record.created is None and placement.isolation == "container":
        had = (placement.cpus | placement.siblings).bit_count() * 1000
    return had is not None and asked != had


def unapplied_texts(pod: PodRecord, containers: Iterator[ContainerRecord]) -> Iterator[str]:
    """Return one sentence for each resize of the pod that waits, runs or is not carried out."""
    if pod.resize:
        yield pod.resize
    if pod.resized is not None:
        yield pod_resize_text(pod.resized)
    for record in containers:
        if record.resized:
            yield resize_text(record)


_REMEDY = "a resize of exclusive CPUs is not carried out, delete and create the pod"


def pod_resize_text(milli: int) -> str:
    """Return the sentence about a resize of the pod-level limit to `milli` thousandths of a CPU."""
    return f"the pod's CPU limit is now {cpus_text(milli)}, its CPUs are those of its admission: {_REMEDY}"


def resize_text(record: ContainerRecord) -> str:
    """Return the sentence about a container's resize that is not carried out."""
    return (
        f"container {record.name} is asked to have {cpus_text(limit_milli_cpu(record.limits) or 0)} and keeps"
        f" {record.applied.cpus.bit_count()}, with the limit asked for: {_REMEDY}"
    )
