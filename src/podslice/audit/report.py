"""What an audit found."""

from __future__ import annotations

import msgspec


class AuditFinding(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is not as the state says. `kind`: `cpus`, `mems`, `quota`, `missing` (an assignment nobody
    has), `intruder` (a container or process that may run on CPUs of another), `state` (a file that is damaged),
    `heldOutsidePolicy` (what the policy that was given would not have allowed; nobody takes it away)."""

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
    """The findings, and what was looked at. `outsiders` counts processes outside pods by their cgroup that may run on
    exclusive CPUs; that is how every node looks whose system services are not confined. `processes`: whether processes
    were looked at, which takes the node's own process ids. `promised`: who has more CPUs than were promised."""

    findings: tuple[AuditFinding, ...]
    pods: int
    containers: int
    exclusive: str
    shared: str
    outsiders: dict[str, int]
    processes: bool = True
    promised: tuple[PromisedCPUs, ...] = ()
