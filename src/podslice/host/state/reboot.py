"""Handle state files of an earlier boot (docs/hotplug.md).

Nothing that ran before runs now. Files that fit the machine stay, those under other CPU numbers are rewritten, and
where they do not fit the node starts without any; the old ones stay beside them as `.before-reboot`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.config.kubelet import DRIFT_TOLERANCE, KubeletConfig
from podslice.config.policy import Hotplug, PodslicePolicy
from podslice.host.boot import Boot
from podslice.host.state.statefile import FileOperations
from podslice.machine.delta import MachineConsequence
from podslice.machine.drift import parse_drift_tolerance, resolve
from podslice.machine.identity import MachineRecord
from podslice.machine.model import Machine
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.names import CPU_STATE_FILE
from podslice.node.checkpoints.policy_state import BootRecord, read_boot_record
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.node import Node
from podslice.state_files.migrate import Migration, migrate
from podslice.values.cpuset import Bits, CPUSet, parse_bits_or_empty
from podslice.values.go.gojson import CheckpointError

SUFFIX = ".before-reboot"


class BootKeeper:
    """The record of the running `boot` and its machine; there is none where `boot` is None. `data` is the policy's
    state file as it was found."""

    def __init__(self, boot: Boot | None, data: bytes | None) -> None:
        self.known = boot is not None
        self._boot = boot
        written = read_boot_record(data)
        # A machine recorded in another boot counts its CPUs by numbers that may be other CPUs' now.
        same = written is not None and boot is not None and written.id == boot.id
        self._machine = written.machine if written is not None and same else MachineRecord({}, {})
        self._seen: Machine | None = None

    def record(self, machine: Machine, offline: Bits) -> BootRecord | None:
        """Return the record to write for the machine, which may have changed since the last call; None without a
        boot."""
        if self._boot is None:
            return None
        if machine is not self._seen:
            self._machine, self._seen = self._machine.advance(machine, offline), machine
        return BootRecord(self._boot.id, self._machine)


def is_another_boot(written: BootRecord | None, boot: Boot | None) -> bool:
    """Whether files are of an earlier boot; where that is not known, they count as of this one."""
    return written is not None and boot is not None and bool(written.id and boot.id) and written.id != boot.id


def migrate_files(
    files: Mapping[str, bytes], written: BootRecord, machine: Machine, hotplug: Hotplug, config: KubeletConfig
) -> Migration:
    """Adapt the files of an earlier boot to the machine as it is now."""
    text = config.memory_manager_policy_options.get(DRIFT_TOLERANCE, hotplug.drift_tolerance)
    return migrate(files, written.machine, MachineRecord.of(machine), tolerance=parse_drift_tolerance(text))


def resolve_tolerances(
    policy: PodslicePolicy, config: KubeletConfig, boot: Boot | None
) -> tuple[PodslicePolicy, KubeletConfig]:
    """Return policy and configuration with each drift tolerance of `auto` replaced by its amount on this machine."""
    image = None if boot is None else boot.kernel_image
    if policy.hotplug is not None:
        policy = replace(
            policy,
            hotplug=replace(policy.hotplug, drift_tolerance=_resolve_tolerance(policy.hotplug.drift_tolerance, image)),
        )
    options = config.memory_manager_policy_options
    if DRIFT_TOLERANCE in options:
        options = {**options, DRIFT_TOLERANCE: _resolve_tolerance(options[DRIFT_TOLERANCE], image)}
        config = replace(config, memory_manager_policy_options=options)
    return policy, config


def _resolve_tolerance(text: str, image: int | None) -> str:
    found = resolve(parse_drift_tolerance(text), image)
    return str(found.bytes) if found.kind == "bytes" else found.kind


def keep_renamed(path: Path, files: FileOperations) -> None:
    """Rename a file to its name with `SUFFIX`, over one that is there. Raises `OSError`."""
    # A start that was killed may have renamed it already.
    with contextlib.suppress(FileNotFoundError):
        files.rename(path, path.with_name(path.name + SUFFIX))
        files.sync_directory(path.parent)


def sort_by_creation(pods: Iterable[Pod]) -> list[Pod]:
    """Return pods in the order in which they are admitted again."""
    return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)


def describe_rebuild(files: Mapping[str, bytes], node: Node, reason: str) -> Iterator[MachineConsequence]:
    """Yield the consequences for a node that started without files: the reason, and each container with other CPUs."""
    yield MachineConsequence("rebuilt", f"the machine changed over a reboot, all pods are admitted afresh: {reason}")
    view = node.view
    for uid, named in _owners(files).items():
        pod = view.pods.get(uid)
        for name, text in named.items():
            container = None if pod is None else next((one for one in pod.containers if one.name == name), None)
            if pod is None or container is None:
                continue
            has = CPUSet.from_bits(view.affinity(uid, name))
            if str(has) != text:
                before = CPUSet.from_bits(parse_bits_or_empty(text))
                message = f"container {name} has {has}, it had {text} before the reboot"
                yield MachineConsequence("rebuilt", message, uid, name, before, has)


def _owners(files: Mapping[str, bytes]) -> Mapping[str, Mapping[str, str]]:
    try:
        checkpoint = read_content(files[CPU_STATE_FILE]).checkpoint
    except (KeyError, CheckpointError):
        return {}
    return (
        {uid: named or {} for uid, named in (checkpoint.entries or {}).items()}
        if isinstance(checkpoint, CPUCheckpoint)
        else {}
    )
