"""Find the state files of a directory, and convert or repair them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from podslice.host.state.statefile import read_state
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.content import Content, read_content
from podslice.node.checkpoints.identify import UnknownFileError
from podslice.node.checkpoints.names import (
    ACTUATED_STATE_FILE,
    ALLOCATED_STATE_FILE,
    CLAIM_STATE_FILE,
    CPU_STATE_FILE,
    DEVICE_DIRECTORY,
    DEVICE_STATE_FILE,
    GUARD_STATE_FILE,
    MANAGER_STATE_FILES,
    POLICY_STATE_FILE,
    STATUS_STATE_FILE,
    place_of,
)
from podslice.node.checkpoints.releases import FileKind, Release
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.state_files.consequence import NodeFacts
from podslice.state_files.convert import Rewritten, convert
from podslice.state_files.differences import differences
from podslice.state_files.guards import repair_guards
from podslice.state_files.promises import carry_promises, kubelet_promises, repair_promises
from podslice.state_files.repair import RunningPods, repair_cpu
from podslice.state_files.repair_memory import repair_memory
from podslice.state_files.verify import kind_of_name
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError

MENDED = (*MANAGER_STATE_FILES, place_of(DEVICE_STATE_FILE), POLICY_STATE_FILE, GUARD_STATE_FILE)
"""The managers' files and podslice's own, which are converted and repaired."""
READABLE = (*MENDED, ALLOCATED_STATE_FILE, ACTUATED_STATE_FILE, STATUS_STATE_FILE, CLAIM_STATE_FILE)
"""The records of granted resources and of claims beside them are shown and verified only."""
_MAY_HELP = "podslice state repair may help"

Change = tuple["StateFile", Rewritten]


class StateFile(NamedTuple):
    """A state file. `data` is empty for one that does not exist yet; `kind` follows from its name, else from its
    content, and is None where neither is known."""

    path: Path
    data: bytes
    kind: FileKind | None


def state_files(path: Path, names: tuple[str, ...]) -> list[StateFile]:
    """Return the state files of a directory that have one of `names`, or the one file. Raises `InputError`."""
    paths = [path]
    if path.is_dir():
        paths = [path / place for place in names if (path / place).is_file()]
        if not paths:
            raise InputError("holds no state file", source=str(path), remedy=f"expected {_expected(names)}")
    files = []
    for place in paths:
        # None is possible for a named file, and for one that is removed in this moment.
        data = read_state(place)
        if data is None:
            raise InputError("does not exist", source=str(place))
        files.append(StateFile(place, data, kind_of_name(place.name) or _kind(data)))
    return files


def _expected(names: tuple[str, ...]) -> str:
    return ", ".join(name for name in names if "/" not in name and name not in (POLICY_STATE_FILE, GUARD_STATE_FILE))


def other_entries(path: Path, files: list[StateFile]) -> list[str]:
    """Return the entries of a directory, and of its folder of device plugins, that are none of `files`; empty for a
    file. Raises `InputError`."""
    if not path.is_dir():
        return []
    read = {file.path for file in files}
    found = []
    try:
        for entry in path.iterdir():
            # A kubelet's folder holds the device file; what else is in it are sockets.
            inside = entry.name == DEVICE_DIRECTORY and entry.is_dir() and not entry.is_symlink()
            for one in entry.iterdir() if inside else (entry,):
                if one not in read and not (inside and one.is_socket()):
                    found.append(str(one.relative_to(path)))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None
    return found


def _kind(data: bytes) -> FileKind | None:
    """Return the kind of a file by its content; None where it cannot be read."""
    try:
        return read_content(data).kind
    except CheckpointError:
        return None


def _find_kind(files: list[StateFile], kind: FileKind) -> StateFile | None:
    return next((file for file in files if file.kind == kind), None)


def cpus_beside(file: StateFile, files: list[StateFile]) -> CPUCheckpoint | None:
    """Return the CPU Manager's checkpoint that belongs to a policy file: one of `files`, else the one in its directory.
    None for files of other kinds, and where there is no readable one."""
    if file.kind != "policy":
        return None
    cpu = _find_kind(files, "cpu")
    return _cpu_checkpoint(read_state(file.path.with_name(CPU_STATE_FILE)) if cpu is None else cpu.data)


def cpu_policy(files: list[StateFile]) -> str:
    """Return the policy that the CPU Manager's file names; empty where no file of it can be read."""
    cpu = _find_kind(files, "cpu")
    checkpoint = None if cpu is None else _cpu_checkpoint(cpu.data)
    return checkpoint.policy_name if checkpoint else ""


def _cpu_checkpoint(data: bytes | None) -> CPUCheckpoint | None:
    """Decode the CPU Manager's file; None where it does not exist, cannot be read or is of another kind."""
    try:
        checkpoint = None if data is None else read_content(data).checkpoint
    except CheckpointError:
        return None
    return checkpoint if isinstance(checkpoint, CPUCheckpoint) else None


# Convert


def convert_files(files: list[StateFile], target: Release, containers: Mapping[str, tuple[str, str]]) -> list[Change]:
    """Convert files for another kubelet. Promises move to the file where that kubelet looks for them. Raises
    `InputError`."""
    policy, changes = _find_kind(files, "policy"), list[Change]()
    promises = None
    if policy is not None:
        _check(policy)
        promises = policy.data
    for file in files:
        if file.kind == "policy":
            continue
        if file.kind == "guard":
            decode_file(file)
            # No kubelet reads the guards' file: it is checked, and stays as it is.
            changes.append((file, Rewritten(file.data, target.writes("guard"), [])))
            continue
        content, lost = decode_file(file), list[str]()
        if content.kind == "cpu" and content.intact:
            named, _ = kubelet_promises(content.unknown)
            content, promises = carry_promises(content, promises, target)
            # A single file has no policy file beside it to which its promises could move.
            if len(files) == 1 and named and not kubelet_promises(content.unknown)[0]:
                lost = [f"pod {uid}: which CPUs were promised to it; converting the folder keeps that" for uid in named]
        with _name_in_errors(file):
            change = convert(content, target, containers)
        changes.append((file, change._replace(remarks=[*change.remarks, *lost])))
    if promises is not None and (policy is not None or len(files) > 1):
        policy = policy or StateFile(files[0].path.with_name(POLICY_STATE_FILE), b"", "policy")
        changes.append((policy, Rewritten(promises, target.writes("policy"), [])))
    return changes


def _check(policy: StateFile) -> None:
    """Raise `InputError` for a policy file that is damaged."""
    try:
        policy_state.decode(policy.data)
    except CheckpointError as error:
        raise InputError(str(error), source=str(policy.path), remedy=_MAY_HELP) from None


def decode_file(file: StateFile) -> Content:
    """Decode a file. Raises `InputError`."""
    try:
        return read_content(file.data)
    except UnknownFileError as error:
        raise InputError(str(error), source=str(file.path), remedy=f"expected {_expected(READABLE)}") from None
    except CheckpointError as error:
        remedy = _MAY_HELP if file.kind in ("cpu", "memory", "policy", "guard") else ""
        raise InputError(str(error), source=str(file.path), remedy=remedy) from None


# Repair


def repair_files(
    files: list[StateFile], target: Release, facts: NodeFacts, running: RunningPods | None
) -> list[Change]:
    """Repair the files whose kinds can be repaired. Raises `InputError`."""
    changes = list[Change]()
    for file in files:
        _check_kind(file)
        if file.kind in ("cpu", "memory"):
            make = repair_cpu if file.kind == "cpu" else repair_memory
            with _name_in_errors(file):
                change = make(file.data, target, facts, running)
            # A repair that changes the file says so, even where it drops nothing.
            remarks = [*change.remarks, *differences(file.data, change.data)]
            changes.append((file, change._replace(remarks=remarks)))
        elif file.kind == "guard":
            changes.append((file, repair_guards(file.data)))
    # Last: promises are checked against the CPUs that containers have after the repair of the CPU Manager's file.
    policy = _find_kind(files, "policy")
    if policy is not None:
        mended = next((change.data for file, change in changes if file.kind == "cpu"), None)
        cpus = cpus_beside(policy, files) if mended is None else _cpu_checkpoint(mended)
        with _name_in_errors(policy):
            changes.append((policy, repair_promises(policy.data, cpus)))
    return changes


def _check_kind(file: StateFile) -> None:
    """Refuse an intact file under the name of another kind: its repair would drop everything. Raises `InputError`."""
    try:
        content = read_content(file.data)
    except CheckpointError as error:
        if file.kind is None and isinstance(error, UnknownFileError):
            raise InputError(str(error), source=str(file.path), remedy=f"expected {_expected(MENDED)}") from None
        if file.kind is None:
            raise InputError(
                "is not recognisable", source=str(file.path), remedy="name it as the kubelet does"
            ) from None
        return
    if content.intact and content.kind != file.kind:
        raise InputError(f"the content is a {content.kind} state file", source=str(file.path), remedy="rename it")


@contextmanager
def _name_in_errors(file: StateFile) -> Iterator[None]:
    """Add the file to `InputError`s that are raised inside."""
    try:
        yield
    except InputError as error:
        raise error.at(source=str(file.path)) from None
