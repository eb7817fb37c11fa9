"""What the owner of state says to the others, and what it is told at a synchronization."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

import msgspec

from podslice.agent.records import ReportedRefusal, SandboxRecord
from podslice.machine.delta import MachineConsequence
from podslice.machine.devices import DeviceInventory
from podslice.node.node import Decision, Node
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri
from podslice.values.errors import PodsliceError


class PodFailure(msgspec.Struct, frozen=True):
    """What went wrong for a pod: in which step, which error, and where in the program."""

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


class Reporter(Protocol):
    """Who is told what happens: metrics, events and the log."""

    def decided(self, seconds: float) -> None:
        """An admission took that long, whatever came out of it."""

    def admitted(self, identity: Identity, decision: Decision, node: Node) -> None: ...
    def refused(self, identity: Identity, refusal: ReportedRefusal) -> None: ...
    def failed(self, identity: Identity, failure: PodFailure) -> None: ...
    def resized(self, identity: Identity, container: str, text: str) -> None: ...
    def resize_answered(self, identity: Identity, report: ResizeReport) -> None: ...
    def moved(self, identity: Identity, report: MoveReport) -> None: ...
    def machine_changed(self, identity: Identity | None, consequence: MachineConsequence) -> None:
        """What follows for a pod, or without one for the node, from a machine that changed."""

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
