"""Resizes that the agent does not carry out.

A kubelet without CPU Manager changes the CPUs of any container in place. One that owns CPUs keeps those it was admitted
with. The quota that the kubelet asks for then holds, so that it is not left without any limit, and people are told.
Nothing here decides or changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from podslice.agent.records import ContainerRecord, Limits, Pinning, PodRecord
from podslice.node.cpu.state import OWNING
from podslice.values.quantity import cpus_text


def limit_milli_cpu(limits: Limits | None) -> int | None:
    """The CPU limit the kubelet asked for, in thousandths; None without one."""
    if limits is None or limits.quota is None or limits.period <= 0:
        return None
    return limits.quota * 1000 // limits.period


def is_resized(record: ContainerRecord, placement: Pinning) -> bool:
    """True when a container that owns CPUs should have another number of them than it was created with. Where that
    number is no longer known, the number it owns counts."""
    asked = limit_milli_cpu(record.limits)
    if asked is None or placement.isolation not in OWNING or not placement.quota_off:
        return False
    had = limit_milli_cpu(record.created)
    if record.created is None and placement.isolation == "container":
        had = (placement.cpus | placement.siblings).bit_count() * 1000
    return had is not None and asked != had


def findings(pod: PodRecord, containers: Iterator[ContainerRecord]) -> Iterator[str]:
    """What is not as the kubelet asked, as lines for people."""
    if pod.resize:
        yield pod.resize
    if pod.resized is not None:
        yield pod_resize_text(pod.resized)
    for record in containers:
        if record.resized:
            yield resize_text(record)


_REMEDY = "a resize of exclusive CPUs is not carried out, delete and create the pod"


def pod_resize_text(milli: int) -> str:
    """The same of a pod."""
    return f"the pod's CPU limit is now {cpus_text(milli)}, its CPUs are those of its admission: {_REMEDY}"


def resize_text(record: ContainerRecord) -> str:
    """One container's resize in a sentence."""
    return (
        f"container {record.name} is asked to have {cpus_text(limit_milli_cpu(record.limits) or 0)} and keeps"
        f" {record.applied.cpus.bit_count()}, with the limit asked for: {_REMEDY}"
    )
