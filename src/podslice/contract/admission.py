"""The answer of `podslice admit`."""

from __future__ import annotations

import msgspec

from podslice.core.decision import Decision
from podslice.core.values.cpuset import CPUSet


class NodeCPUs(msgspec.Struct, frozen=True):
    """The node's sets of CPUs after the last pod: reserved for the system, the shared pool, what may still be owned."""

    reserved: CPUSet = msgspec.field(name="reservedCPUs")
    default: CPUSet = msgspec.field(name="defaultCPUSet")
    assignable: CPUSet = msgspec.field(name="assignableCPUs")


class AdmissionReport(msgspec.Struct, frozen=True):
    """Verdicts in the order in which the pods were admitted, and the node after them."""

    machine: str
    profile: str
    pods: tuple[Decision, ...]
    node: NodeCPUs
