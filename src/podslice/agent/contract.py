"""Values and protocols with which the owner of the state and the other parts of the agent meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol

import msgspec

from podslice.agent.records import ContainerRecord, Pinning, ReportedRefusal, SandboxRecord
from podslice.api.pod.spec import Pod
from podslice.machine.delta import MachineConsequence
from podslice.machine.devices import DeviceInventory
from podslice.node.node import Decision, Node
from podslice.service.identity import Identity
from podslice.service.listeners import Listeners
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits
from podslice.values.errors import PodsliceError


class PodFailure(msgspec.Struct, frozen=True):
    """A failure of one pod: the step, the error, and the source line that raised it."""

    step: str
    error: str
    place: str

    def __str__(self) -> str:
        return f"{self.error} at {self.place}"


class ResizeReport(msgspec.Struct, frozen=True):
    """The result of a resize of exclusive CPUs. `operation`: `grow`, `shrink`, `move` for both at once, `keep`;
    `result`: `applied`, `deferred`, `infeasible`, `failed`. `text` is the sets, or why not; `seconds` it took;
    `repeated`: people know already."""

    operation: str
    result: str
    text: str
    seconds: float = 0.0
    repeated: bool = False


class MoveReport(msgspec.Struct, frozen=True):
    """The result of a move of running containers. `result`: `done`, `failed` after it had begun, `notBegun`. `text` is
    the sets, and why not."""

    result: str
    text: str
    seconds: float


class NodeEvents:
    """The events of one node's agent. `agent.wiring` subscribes the parts, and thereby sets the order of the calls."""

    def __init__(self) -> None:
        self.state_opened = Listeners[Node]()
        """The state was opened for the pods that run: at the start, or when a failure of the disk is over."""
        self.runtime_connected = Listeners[[]]()
        """The runtime is connected, and the pods and containers that run are known."""
        self.admissions_changed = Listeners[[]]()
        """A pod was refused, or one that was refused may be admitted now."""
        self.room_freed = Listeners[[]]()
        """CPUs, memory or devices may be free now: a resize that waits may be carried out."""
        self.policy_changed = Listeners[[]]()
        """The node decides by another policy from now on."""
        self.updates_due = Listeners[[]]()
        """Running containers should have other CPUs or NUMA nodes than they were given."""
        self.pinning_changed = Listeners[ContainerRecord]()
        """The CPUs or NUMA nodes of this container, or those that it keeps after a notice, are others."""
        self.change_finished = Listeners[ContainerRecord]()
        """A resize or a move of this container is done: its file is brought up to date at once."""
        self.claims_changed = Listeners[Bits]()
        """A claim was prepared or given back; gets the shared pool as it was before."""


class PodFacts(Protocol):
    """Facts about pods and containers from outside the agent's own records."""

    def find(self, identity: Identity) -> Pod | None:
        """Return the pod's specification, None while no source has it. Raises `InputError` for one that is invalid."""

    def environment(self, container: nri.Container) -> Mapping[str, str]:
        """Return the variables that the container was given when it was created. Its own environment could come from
        the author of its pod, so the agent's file about it counts where there is one."""

    def pod_limit(self, identity: Identity) -> int | None:
        """Return the CPU limit in the pod's cgroup in millicores, None without limit or cgroup."""

    def awaited(self, uid: str) -> Identity | None:
        """Return the pod of this UID if it is to run here, with a sandbox or without one yet."""

    def runs_on(self, record: ContainerRecord) -> Pinning:
        """Return the CPUs and NUMA nodes in the container's cgroup, which the runtime's records may not have; empty
        where they cannot be read."""


class Reporter(Protocol):
    """Receiver of all that the agent reports: metrics, events and the log."""

    def decided(self, seconds: float) -> None:
        """Count an admission and its duration, whatever the decision."""

    def admitted(self, identity: Identity, decision: Decision, node: Node) -> None: ...
    def refused(self, identity: Identity, refusal: ReportedRefusal) -> None: ...
    def failed(self, identity: Identity, failure: PodFailure) -> None: ...
    def resized(self, identity: Identity, container: str, text: str) -> None: ...
    def resize_answered(self, identity: Identity, report: ResizeReport) -> None: ...
    def moved(self, identity: Identity, report: MoveReport) -> None: ...
    def machine_changed(self, identity: Identity | None, consequence: MachineConsequence) -> None:
        """Report a consequence of a changed machine, for a pod or, with None, for the node."""

    def stranger(self, identity: Identity, container: str, why: str) -> None: ...
    def trouble(self, what: str, message: str) -> None: ...


class RefusedError(PodsliceError):
    """The node does not take this pod or container; `refusal` says why."""

    def __init__(self, refusal: ReportedRefusal) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))


class RegisteringInventory(DeviceInventory, frozen=True):
    """Devices come from plugins that register later."""

    grows: ClassVar[bool] = True


class Listed:
    """The pods and containers of one synchronization, already validated."""

    def __init__(self, sandboxes: Iterable[SandboxRecord], containers: Iterable[nri.Container]) -> None:
        self.sandboxes = list(sandboxes)
        self.containers = list(containers)
