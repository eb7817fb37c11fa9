"""Between the runtime's messages and the agent's books: what a container has, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.agent.records import CPUS_ENV, EXCLUSIVE_ENV, ISOLATION_ENV, ContainerRecord, Limits, Pinning
from podslice.core.values.cpuset import readable_bits
from podslice.wire.proto import nri_pb2 as nri

_CLAIMS = ("container", "pod")


def update_of(record: ContainerRecord, wanted: Pinning) -> nri.ContainerUpdate:
    """A failure to change one container must not undo the others': the reconcile loop finds it."""
    update = nri.ContainerUpdate(container_id=record.id, ignore_failure=True)
    wanted.write(update.linux.resources)
    return update


def same_effect(applied: Pinning, wanted: Pinning) -> bool:
    """True when the runtime need not be told: what is wanted is set already."""
    return (
        wanted.cpus in (0, applied.cpus)
        and wanted.mems in (0, applied.mems)
        and (applied.quota_off or not wanted.quota_off)
    )


def applied_of(message: nri.Container) -> Pinning:
    """What the runtime says a container has."""
    cpu = message.linux.resources.cpu
    return Pinning(cpus=readable_bits(cpu.cpus), mems=readable_bits(cpu.mems), quota_off=cpu.quota.value == -1)


def limits_of(message: nri.Container) -> Limits | None:
    """What the kubelet allows a container; None when the runtime says nothing about its resources."""
    return Limits().updated(message.linux.resources) if message.linux.HasField("resources") else None


def variables_of(message: nri.Container) -> dict[str, str]:
    """The container's environment."""
    return dict(pair.split("=", 1) for pair in message.env if "=" in pair)


def claimed_of(variables: Mapping[str, str]) -> Pinning | None:
    """CPUs a container was told are its own or its pod's; None for one that only shares."""
    isolation, cpus = variables.get(ISOLATION_ENV, ""), readable_bits(variables.get(CPUS_ENV, ""))
    own = readable_bits(variables.get(EXCLUSIVE_ENV, "")) if isolation == "mixed" else 0
    return Pinning(cpus=cpus, isolation=isolation, own=own) if cpus and (own or isolation in _CLAIMS) else None


def kept_of(message: nri.Container, variables: Mapping[str, str]) -> Pinning | None:
    """What a container has that was told it has CPUs; None for one that only shares."""
    claim = claimed_of(variables)
    if claim is None:
        return None
    applied = applied_of(message)
    return msgspec.structs.replace(applied, cpus=applied.cpus or claim.cpus, isolation=claim.isolation, own=claim.own)
