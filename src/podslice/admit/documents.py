"""The answer of `podslice admit`."""

from __future__ import annotations

import msgspec

from podslice.node.decision import Decision, ResizeDecision
from podslice.values.cpuset import CPUSet


class NodeCPUs(msgspec.Struct, frozen=True):
    """The node's sets of CPUs after the last pod: reserved for the system, the shared pool, what may still be owned."""

    reserved: CPUSet = msgspec.field(name="reservedCPUs")
    default: CPUSet = msgspec.field(name="defaultCPUSet")
    assignable: CPUSet = msgspec.field(name="assignableCPUs")


class Resized(msgspec.Struct, frozen=True):
    """The answer to one resize, and the CPUs of the pod's containers after it, without those in the shared pool."""

    decision: ResizeDecision
    cpus: dict[str, CPUSet]


class ClaimDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device that a claim gets; of one that serves many, `consumed` amounts by capacity."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    consumed: dict[str, str] = {}


class ClaimObstacle(msgspec.Struct, frozen=True):
    """How one request sees the devices of a node: how many it wants (0 for all there are), how many could serve it
    alone, and what keeps the others from it, by `POOL/DEVICE`."""

    claim: str
    request: str
    wanted: int
    able: int
    problems: dict[str, str] = {}


class ClaimFix(msgspec.Struct, frozen=True):
    """A change of one claim with which all of them can be had; it was tried."""

    claim: str
    path: str
    text: str


class ClaimRefusal(msgspec.Struct, frozen=True):
    """Why these nodes, which are alike, do not serve the claims. Devices in `obstacles` are those of the first; `why`
    says what is wrong where every request could be met alone."""

    nodes: tuple[str, ...]
    why: str = ""
    obstacles: tuple[ClaimObstacle, ...] = ()
    fixes: tuple[ClaimFix, ...] = ()


class ClaimCount(msgspec.Struct, frozen=True):
    """What a claim counts for with its pod's requests, and the containers that use it."""

    claim: str
    containers: tuple[str, ...]
    resources: dict[str, str]


class ClaimAnswer(msgspec.Struct, frozen=True):
    """What the scheduler's allocator answers for the claims of one pod, or for a claim that no pod names. `refusals`
    are all nodes that were asked; `counts` is empty without gate DRANodeAllocatableResources."""

    pod: str
    claims: tuple[str, ...]
    allocated: bool
    node: str = ""
    devices: tuple[ClaimDevice, ...] = ()
    message: str = ""
    refusals: tuple[ClaimRefusal, ...] = ()
    counts: tuple[ClaimCount, ...] = ()


class AdmissionReport(msgspec.Struct, frozen=True):
    """Verdicts in the order in which the pods were admitted and then resized, and the node after them."""

    machine: str
    profile: str
    pods: tuple[Decision, ...]
    node: NodeCPUs
    resizes: tuple[Resized, ...] = ()
    claims: tuple[ClaimAnswer, ...] = ()
