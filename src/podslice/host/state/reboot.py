"""State files that another boot has left (docs/hotplug.md).

Nothing that ran before runs now. Files that fit the machine stay, those under other numbers are written anew, and where
they do not fit the node begins without any; the old ones stay beside them as `.before-reboot`.
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
    """What is to be written of this `boot` and its machine; nothing where it is None. `data` is the file that was
    found."""

    def __init__(self, boot: Boot | None, data: bytes | None) -> None:
        self.known = boot is not None
        self._boot = boot
        written = read_boot_record(data)
        same = written is not None and boot is not None and written.id == boot.id
        self._machine = written.machine if written is not None and same else MachineRecord({}, {})
        self._seen: Machine | None = None

    def record(self, machine: Machine, offline: Bits) -> BootRecord | None:
        """The record of a machine that may have changed since the last one."""
        if self._boot is None:
            return None
        if machine is not self._seen:
            self._machine, self._seen = self._machine.advance(machine, offline), machine
        return BootRecord(self._boot.id, self._machine)


def is_another_boot(written: BootRecord | None, boot: Boot | None) -> bool:
    """True for files of an earlier boot; where it is not known, they are of this one."""
    return written is not None and boot is not None and bool(written.id and boot.id) and written.id != boot.id


def migrate_files(
    files: Mapping[str, bytes], written: BootRecord, machine: Machine, hotplug: Hotplug, config: KubeletConfig
) -> Migration:
    """What becomes of the files of an earlier boot."""
    text = config.memory_manager_policy_options.get(DRIFT_TOLERANCE, hotplug.drift_tolerance)
    return migrate(files, written.machine, MachineRecord.of(machine), tolerance=parse_drift_tolerance(text))


def with_bound(
    policy: PodslicePolicy, config: KubeletConfig, boot: Boot | None
) -> tuple[PodslicePolicy, KubeletConfig]:
    """Policy and configuration in which a tolerance of `auto` is what it comes to on this machine."""
    image = None if boot is None else boot.kernel_image
    if policy.hotplug is not None:
        policy = replace(
            policy, hotplug=replace(policy.hotplug, drift_tolerance=_told(policy.hotplug.drift_tolerance, image))
        )
    options = config.memory_manager_policy_options
    if DRIFT_TOLERANCE in options:
        told = {**options, DRIFT_TOLERANCE: _told(options[DRIFT_TOLERANCE], image)}
        config = replace(config, memory_manager_policy_options=told)
    return policy, config


def _told(text: str, image: int | None) -> str:
    found = resolve(parse_drift_tolerance(text), image)
    return str(found.bytes) if found.kind == "bytes" else found.kind


def set_aside(path: Path, files: FileOperations) -> None:
    """Keep a file beside itself under another name, in place of one that was kept before. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        files.rename(path, path.with_name(path.name + SUFFIX))
        files.sync_directory(path.parent)


def in_order_of_creation(pods: Iterable[Pod]) -> list[Pod]:
    """Pods as they are admitted afresh."""
    return sorted(pods, key=lambda pod: pod.metadata.creation_timestamp)


def rebuilt(files: Mapping[str, bytes], node: Node, reason: str) -> Iterator[MachineConsequence]:
    """What it means that a node began anew: why, and whose CPUs are others."""
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
                told = f"container {name} has {has}, it had {text} before the reboot"
                yield MachineConsequence("rebuilt", told, uid, name, before, has)


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
