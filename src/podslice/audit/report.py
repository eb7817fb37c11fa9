"""The types of an audit's findings."""

from __future__ import annotations

import msgspec


class AuditFinding(msgspec.Struct, frozen=True, rename="camel"):
    """A difference from the state. `kind`: `cpus`, `mems`, `quota`, `missing` (an assignment without a container),
    `intruder` (a container or process that may run on CPUs of another), `state` (a damaged file), `heldOutsidePolicy`
    (an assignment that the given policy would not have allowed; it stays)."""

    kind: str
    where: str
    wanted: str
    found: str
    message: str


class PromisedCPUs(msgspec.Struct, frozen=True):
    """A container, or with an empty name a pod as a whole, that has CPUs `beyond` those promised at its admission."""

    pod: str
    container: str
    promised: str
    beyond: str


class AuditReport(msgspec.Struct, frozen=True, rename="camel"):
    """The findings, and what was examined. `outsiders` counts processes outside pods by their cgroup that may run on
    exclusive CPUs; every node has them whose system services are not confined. `processes`: whether processes were
    examined, which takes the node's own process ids. `promised`: the containers with more CPUs than were promised."""

    findings: tuple[AuditFinding, ...]
    pods: int
    containers: int
    exclusive: str
    shared: str
    outsiders: dict[str, int]
    processes: bool = True
    promised: tuple[PromisedCPUs, ...] = ()
