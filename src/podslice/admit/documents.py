"""The document that `podslice admit` prints."""

from __future__ import annotations

import msgspec

from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import Provenance
from podslice.node.decision import Decision, ResizeDecision
from podslice.values.cpuset import CPUSet


class NodeCPUs(msgspec.Struct, frozen=True):
    """The node's sets of CPUs after the last pod: reserved for the system, the shared pool, and those that may still be
    owned."""

    reserved: CPUSet = msgspec.field(name="reservedCPUs")
    default: CPUSet = msgspec.field(name="defaultCPUSet")
    assignable: CPUSet = msgspec.field(name="assignableCPUs")


class Resized(msgspec.Struct, frozen=True):
    """The answer to one resize, and the CPUs of the pod's containers after it, without those in the shared pool."""

    decision: ResizeDecision
    cpus: dict[str, CPUSet]


class ClaimDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device that is allocated to a claim; of a device that serves many, `consumed` amounts by capacity."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    consumed: dict[str, str] = {}


class ClaimObstacle(msgspec.Struct, frozen=True):
    """The devices of a node as one request sees them: how many it needs (`wanted`, 0 for all there are), how many could
    serve it alone, and what rules out the others, by `POOL/DEVICE`."""

    claim: str
    request: str
    wanted: int
    able: int
    problems: dict[str, str] = {}


class ClaimFix(msgspec.Struct, frozen=True):
    """A change of one claim after which all of them can be allocated; it was tried."""

    claim: str
    path: str
    text: str


class ClaimRefusal(msgspec.Struct, frozen=True):
    """The reason why these nodes, which are alike, do not serve the claims. Devices in `obstacles` are those of the
    first; `why` is the reason where every request could be met alone."""

    nodes: tuple[str, ...]
    why: str = ""
    obstacles: tuple[ClaimObstacle, ...] = ()
    fixes: tuple[ClaimFix, ...] = ()


class ClaimCount(msgspec.Struct, frozen=True):
    """The amounts that a claim adds to its pod's requests, and the containers that use it."""

    claim: str
    containers: tuple[str, ...]
    resources: dict[str, str]


class ClaimAnswer(msgspec.Struct, frozen=True):
    """The answer of the scheduler's allocator for the claims of one pod, or for a claim that no pod names. `refusals`
    are all nodes that were tried; `counts` is empty without gate DRANodeAllocatableResources."""

    pod: str
    claims: tuple[str, ...]
    allocated: bool
    node: str = ""
    devices: tuple[ClaimDevice, ...] = ()
    message: str = ""
    refusals: tuple[ClaimRefusal, ...] = ()
    counts: tuple[ClaimCount, ...] = ()


class AdmissionReport(msgspec.Struct, frozen=True):
    """Verdicts in the order in which the pods were admitted and then resized, the node after them, and what they rest
    on. `contradictions` are pods whose status says otherwise."""

    machine: str
    profile: str
    pods: tuple[Decision, ...]
    node: NodeCPUs
    resizes: tuple[Resized, ...] = ()
    claims: tuple[ClaimAnswer, ...] = ()
    provenance: Provenance = Provenance()
    contradictions: tuple[Contradiction, ...] = ()
