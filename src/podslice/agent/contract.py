"""What the owner of state says to the others, and what it is told at a synchronization."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from podslice.agent.books import SandboxRecord
from podslice.agent.identity import Identity
from podslice.core.errors import PodsliceError
from podslice.core.machine.devices import DeviceInventory
from podslice.core.node import Decision
from podslice.wire.proto import nri_pb2 as nri


class Reporter(Protocol):
    """Who is told what happens: metrics, events and the log."""

    def decided(self, seconds: float) -> None:
        """An admission took that long, whatever came out of it."""

    def admitted(self, identity: Identity, decision: Decision) -> None: ...
    def refused(self, identity: Identity, reason: str, message: str) -> None: ...
    def stranger(self, identity: Identity, container: str, why: str) -> None: ...
    def trouble(self, what: str, message: str) -> None: ...


class RefusedError(PodsliceError):
    """The node does not take this pod or container."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class RegisteringInventory(DeviceInventory, frozen=True):
    """Devices come from plugins that register later, so the device checkpoint is kept from the start."""

    def __bool__(self) -> bool:
        return True


class Listed:
    """A pod or container as a synchronization lists it, with the messages' checks already done."""

    def __init__(self, sandboxes: Iterable[SandboxRecord], containers: Iterable[nri.Container]) -> None:
        self.sandboxes = list(sandboxes)
        self.containers = list(containers)
