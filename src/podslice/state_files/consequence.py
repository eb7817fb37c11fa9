"""Predict what a kubelet of a release does with a state file when it starts, with its own messages.

The managers restore and check their own state when they start. This module does the same for a file of any age and a
kubelet of any release, without running one (cpu-topology 8.5, 8.6; memory-device 1.13.2, 1.14, 2.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from podslice.machine.memory_accounts import default_machine_state
from podslice.machine.model import CPUTopology, Machine
from podslice.node.checkpoints import allocation as checkpoint_allocation
from podslice.node.checkpoints import guard_state, policy_state, restore
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.names import (
    ALLOCATED_STATE_FILE,
    CLAIM_STATE_FILE,
    CPU_STATE_FILE,
    DEVICE_STATE_FILE,
    GUARD_STATE_FILE,
    MEMORY_STATE_FILE,
    POLICY_STATE_FILE,
    STATE_DIRECTORY,
    STATUS_STATE_FILE,
    place_of,
)
from podslice.node.checkpoints.pod_status import FIRST_WITHOUT
from podslice.node.checkpoints.releases import FileKind, Release, load_cpu, load_memory
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.cpuset import Bits
from podslice.values.errors import StartError, UpstreamDefectError
from podslice.values.go.gojson import CORRUPT, CheckpointError
from podslice.values.golang import quote

PATHS: dict[FileKind, str] = {
    "cpu": f"{STATE_DIRECTORY}/{CPU_STATE_FILE}",
    "memory": f"{STATE_DIRECTORY}/{MEMORY_STATE_FILE}",
    "device": f"{STATE_DIRECTORY}/{place_of(DEVICE_STATE_FILE)}",
    "allocation": f"{STATE_DIRECTORY}/{ALLOCATED_STATE_FILE}",
    "policy": f"{STATE_DIRECTORY}/{POLICY_STATE_FILE}",
    "guard": f"{STATE_DIRECTORY}/{GUARD_STATE_FILE}",
    "dra": f"{STATE_DIRECTORY}/{CLAIM_STATE_FILE}",
    "pod-status": f"{STATE_DIRECTORY}/{STATUS_STATE_FILE}",
}


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts about a node against which its files are checked.

    machine: None where it is not known; nothing is then checked against it.
    reserved: CPUs of the system, which are not in the default set when `strict`.
    containers: the runtime's container ids with (pod UID, container name), which V1 files need.
    policies, memory_reserved: from the kubelet's configuration, by kind of file, and in bytes by NUMA node and memory
    type; where it is not known, both are taken from the files.
    """

    machine: Machine | None = None
    reserved: Bits = 0
    strict: bool = False
    containers: Mapping[str, tuple[str, str]] = {}
    policies: Mapping[FileKind, str] = {}
    memory_reserved: Mapping[int, Mapping[str, int]] | None = None


def start_error(data: bytes, kind: FileKind, reader: Release, facts: NodeFacts, path: str = "") -> str:
    """Return the error with which a kubelet of that release would not start; empty when it would."""
    path = path or PATHS[kind]
    # A damaged device file costs a kubelet its assignments, not its start; the other two no kubelet reads.
    if kind in ("device", "policy", "guard"):
        return ""
    if kind == "allocation":
        return _allocation_error(data, path)
    if kind == "dra":
        return _claims_error(data)
    if kind == "pod-status":
        return _status_error(data, reader, path)
    try:
        if kind == "cpu":
            _check_cpu(data, reader, facts, path)
        else:
            _check_memory(data, reader, facts, path)
    except StartError as error:
        return error.message
    except UpstreamDefectError as defect:
        return f"it crashes, {defect}"
    return ""


class Consequence(NamedTuple):
    """Whether a kubelet that finds the file starts (None: what is given does not say), and a sentence that says how."""

    starts: bool | None
    text: str


def start_consequence(
    data: bytes, kind: FileKind, reader: Release, facts: NodeFacts, path: str = ""
) -> Consequence | None:
    """Return whether a kubelet starts with the file, and what it then knows or why it does not. None where that is not
    known: for records of granted resources and releases before 1.36, and for claims before 1.34."""
    if kind == "device":
        try:
            checkpoint_devices.load(data)
        except CheckpointError as error:
            return Consequence(True, f"a kubelet {reader} starts, logs {error} and knows no device assignments")
        return Consequence(True, f"a kubelet {reader} starts with these devices")
    if kind == "policy":
        return _policy_consequence(data, reader)
    if kind == "guard":
        return _guard_consequence(data, reader)
    if kind == "memory" and reader.minor < 21:
        return Consequence(True, f"a kubelet {reader} has no Memory Manager and ignores the file")
    if (kind == "allocation" and reader.minor < 36) or (kind == "dra" and reader.minor < _FIRST_WITH_CLAIMS):
        return None
    if kind == "pod-status" and reader.minor >= FIRST_WITHOUT:
        return Consequence(True, f"a kubelet {reader} does not read the file: it has {ALLOCATED_STATE_FILE} instead")
    if kind == "cpu" and not facts.containers and _needs_containers(data):
        text = "depends on the containers that it finds: --containers FILE gives them (crictl ps -a -o json)"
        return Consequence(None, f"whether a kubelet {reader} starts {text}")
    refusal = start_error(data, kind, reader, facts, path)
    gate = _GATES.get(kind, "")
    if refusal:
        return Consequence(False, f"a kubelet {reader}{gate} does not start: {refusal}")
    if kind in ("dra", "pod-status"):
        return Consequence(True, f"a kubelet {reader}{gate} starts with it")
    checked = "" if facts.machine is not None or kind == "allocation" else " (not checked against a machine)"
    return Consequence(True, f"a kubelet {reader} starts with this state{checked}")


_FIRST_WITH_CLAIMS = 34
"""The first kubelet with claims on by default."""
_GATES: Mapping[FileKind, str] = {"pod-status": " with InPlacePodVerticalScaling on"}


def _needs_containers(data: bytes) -> bool:
    """Whether an intact CPU file has entries by container id."""
    try:
        content = read_content(data)
    except CheckpointError:
        return False
    checkpoint = content.checkpoint
    return content.intact and isinstance(checkpoint, CPUCheckpoint) and bool(checkpoint.entries_v1)


def _claims_error(data: bytes) -> str:
    """Return the error of a kubelet's start with a record of claims; empty for none."""
    before = "could not initialize checkpoint manager, please drain node and remove DRA state file, err: "
    try:
        content = read_content(data)
    except CheckpointError as error:
        return f"{before}{error}"
    if content.kind != "dra" or not content.intact:
        return f"{before}{CORRUPT}"
    return ""


def _status_error(data: bytes, reader: Release, path: str) -> str:
    """Return the error with which a kubelet before 1.33 ends; empty for none."""
    after = f"please drain this node and delete pod allocation checkpoint file {quote(path)} before restarting Kubelet"
    try:
        content = read_content(data)
    except CheckpointError as error:
        return f"could not restore state from checkpoint: {error}, {after}"
    # A checksum over values of the kubelet that wrote the file cannot be checked here.
    if content.has_unknown_checksum or content.intact:
        return ""
    return f"could not restore state from checkpoint: {CORRUPT}, {after}"


def _policy_consequence(data: bytes, reader: Release) -> Consequence:
    ignores = f"a kubelet {reader} ignores the file; podslice starts"
    try:
        policy_state.decode(data)
    except CheckpointError as error:
        return Consequence(True, f"{ignores} without its promises: {error}")
    return Consequence(True, f"{ignores} with its promises")


def _guard_consequence(data: bytes, reader: Release) -> Consequence:
    ignores = f"a kubelet {reader} ignores the file; podslice starts"
    try:
        guard_state.load(data)
    except CheckpointError as error:
        return Consequence(True, f"{ignores} and changes no file of the kernel: {error}")
    return Consequence(
        True, f"{ignores} and gives these files back when no guard needs them, unless the node was rebooted"
    )


def _allocation_error(data: bytes, path: str) -> str:
    """Return the error of a kubelet's start with a record of granted resources; empty for none."""
    try:
        checkpoint_allocation.load(data)
    except CheckpointError as error:
        return checkpoint_allocation.restore_failure(error, path)
    return ""


def _check_cpu(data: bytes, reader: Release, facts: NodeFacts, path: str) -> None:
    """Restore and validate the CPU Manager's file as a kubelet does. Raises its `StartError`."""
    try:
        checkpoint = load_cpu(data, reader, facts.containers)
        state = restore.adopt_cpu(checkpoint, facts.policies.get("cpu", checkpoint.policy_name))
        # A file of a policy that does not exist: a kubelet that runs any policy refuses it, as one with `static` does.
        if checkpoint.policy_name not in ("none", "static"):
            restore.adopt_cpu(checkpoint, "static")
    except CheckpointError as error:
        raise restore.unusable_cpu(error, path) from None
    if facts.machine is not None and checkpoint.policy_name == "static":
        topology = CPUTopology(facts.machine)
        restore.validate_cpu_state(
            state, topology, reserved=facts.reserved, strict=facts.strict, pod_level=reader.pod_level
        )


def _check_memory(data: bytes, reader: Release, facts: NodeFacts, path: str) -> None:
    """Restore and validate the Memory Manager's file as a kubelet does. Raises its `StartError`."""
    try:
        checkpoint = load_memory(data, reader)
        restore.adopt_memory(checkpoint, facts.policies.get("memory", checkpoint.policy_name))
        # As for the CPU Manager: any policy refuses the file of one that does not exist.
        if checkpoint.policy_name not in ("None", "Static"):
            restore.adopt_memory(checkpoint, "Static")
    except CheckpointError as error:
        raise restore.unusable_memory(error, path) from None
    if facts.machine is not None and checkpoint.policy_name == "Static":
        default = default_machine_state(facts.machine, facts.memory_reserved or reservations(checkpoint))
        restore.validate_memory_state(checkpoint, default, pod_level=reader.pod_level)


def reservations(checkpoint: MemoryCheckpoint) -> dict[int, dict[str, int]]:
    """Return the bytes that the file reserves for the system, by NUMA node and memory type."""
    return {
        node: {name: table.system_reserved for name, table in (state.memory_map or {}).items()}
        for node, state in (checkpoint.machine_state or {}).items()
    }
