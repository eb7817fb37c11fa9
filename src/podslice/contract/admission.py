"""The answer of `podslice admit`."""

from __future__ import annotations

import msgspec

from podslice.core.decision import Decision, ResizeDecision
from podslice.core.values.cpuset import CPUSet


class NodeCPUs(msgspec.Struct, frozen=True):
    """The node's sets of CPUs after the last pod: reserved for the system, the shared pool, what may still be owned."""

    reserved: CPUSet = msgspec.field(name="reservedCPUs")
    default: CPUSet = msgspec.field(name="defaultCPUSet")
    assignable: CPUSet = msgspec.field(name="assignableCPUs")


class Resized(msgspec.Struct, frozen=True):
    """The answer to one resize, and the CPUs of the pod's containers after it, without those in the shared pool."""

    decision: ResizeDecision
    cpus: dict[str, CPUSet]


class AdmissionReport(msgspec.Struct, frozen=True):
    """Verdicts in the order in which the pods were admitted and then resized, and the node after them."""

    machine: str
    profile: str
    pods: tuple[Decision, ...]
    node: NodeCPUs
    resizes: tuple[Resized, ...] = ()
