"""Conversions between NRI messages and the agent's records."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import msgspec

from podslice.agent.records import (
    CPUS_ENV,
    EXCLUSIVE_ENV,
    ISOLATION_ENV,
    ContainerRecord,
    Limits,
    Pinning,
    quota_returns,
)
from podslice.agent.runtime.ttrpc import FAILED_PRECONDITION, RPCError
from podslice.dra.cgroups import ClaimedLimits
from podslice.node.devices.plugin import DeviceNode, RunOptions
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import parse_bits_or_empty

_CLAIMS = ("container", "pod")


def update_of(record: ContainerRecord, wanted: Pinning) -> nri.ContainerUpdate:
    """Return the update of one container. Its failure must not undo the others': the reconcile loop repairs it."""
    update = nri.ContainerUpdate(container_id=record.id, ignore_failure=True)
    wanted.write(update.linux.resources)
    if record.limits is not None and quota_returns(record.applied, wanted, record.limits):
        record.limits.write_quota(update.linux.resources)
    return update


def add_claimed(claimed: ClaimedLimits | None, shares: int, resources: nri.LinuxResources) -> None:
    """Add memory and shares of claims to a container. `shares` are those the kubelet asks for, 0 for unchanged."""
    if claimed is None:
        return
    if 0 < shares < claimed.shares:
        resources.cpu.shares.value = claimed.shares
    if claimed.memory:
        resources.memory.limit.value = claimed.memory


def same_effect(applied: Pinning, wanted: Pinning) -> bool:
    """Return whether `applied` already has everything that `wanted` sets, so that no update is needed."""
    return (
        wanted.cpus in (0, applied.cpus)
        and wanted.mems in (0, applied.mems)
        and (applied.quota_off or not wanted.quota_off)
    )


def applied_pinning(message: nri.Container) -> Pinning:
    """Return the pinning that the runtime reports for a container."""
    cpu = message.linux.resources.cpu
    return Pinning(
        cpus=parse_bits_or_empty(cpu.cpus), mems=parse_bits_or_empty(cpu.mems), quota_off=cpu.quota.value == -1
    )


def limits_of(message: nri.Container) -> Limits | None:
    """Return the limits the kubelet sets; None when the runtime reports no resources."""
    return Limits().updated(message.linux.resources) if message.linux.HasField("resources") else None


def variables_of(message: nri.Container) -> dict[str, str]:
    """Return the container's environment as a mapping."""
    return dict(pair.split("=", 1) for pair in message.env if "=" in pair)


def pinning_in_environment(variables: Mapping[str, str]) -> Pinning | None:
    """Return the CPUs that a container's environment variables name as its own or its pod's; None for a container on
    the shared pool."""
    isolation, cpus = variables.get(ISOLATION_ENV, ""), parse_bits_or_empty(variables.get(CPUS_ENV, ""))
    own = parse_bits_or_empty(variables.get(EXCLUSIVE_ENV, "")) if isolation == "mixed" else 0
    return Pinning(cpus=cpus, isolation=isolation, own=own) if cpus and (own or isolation in _CLAIMS) else None


def restored_pinning(message: nri.Container, variables: Mapping[str, str]) -> Pinning | None:
    """Return the pinning of a container that has own CPUs by its variables; None for a sharing one."""
    claim = pinning_in_environment(variables)
    if claim is None:
        return None
    # What the runtime applied counts: the variables are those of the creation, and a resize or move changed the set.
    applied = applied_pinning(message)
    return msgspec.structs.replace(applied, cpus=applied.cpus or claim.cpus, isolation=claim.isolation, own=claim.own)


def add_options(options: RunOptions, adjust: nri.ContainerAdjustment) -> None:
    """Add what device plugins request for the container. Raises `RPCError` for a missing device file."""
    adjust.env.extend(nri.KeyValue(key=key, value=value) for key, value in options.envs.items())
    adjust.annotations.update(options.annotations)
    for mount in options.mounts:
        adjust.mounts.append(
            nri.Mount(
                destination=mount.container_path,
                source=mount.host_path,
                type="bind",
                options=["rbind", "rprivate", "ro" if mount.read_only else "rw"],
            )
        )
    for device in options.devices:
        _add_device(device, adjust)
    adjust.CDI_devices.extend(nri.CDIDevice(name=name) for name in options.cdi_devices)


def _add_device(device: DeviceNode, adjust: nri.ContainerAdjustment) -> None:
    try:
        found = os.stat(device.host_path)
    except OSError as error:
        raise RPCError(FAILED_PRECONDITION, f"podslice: device {device.host_path}: {error.strerror}") from None
    kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
    major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
    adjust.linux.devices.append(nri.LinuxDevice(path=device.container_path, type=kind, major=major, minor=minor))
    rule = nri.LinuxDeviceCgroup(allow=True, type=kind, access=device.permissions or "rwm")
    rule.major.value, rule.minor.value = major, minor
    adjust.linux.resources.devices.append(rule)
