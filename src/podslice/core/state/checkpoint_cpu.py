"""`cpu_manager_state`: the CPU Manager's state file in all its versions (spec cpu-topology 8).

V2 is what a kubelet without PodLevelResourceManagers writes, V3 one with it; V1 is only read. Each version is a
struct with its own checksum text. Entries stay text here, because the checksum covers the text as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podslice.core.state.godump import dump_map, fnv1a
from podslice.core.state.gojson import CORRUPT, CheckpointError, dump_string, load_object, typed
from podslice.core.state.gojson import dump_map as json_map
from podslice.core.state.model import CPUState
from podslice.core.values.cpuset import Bits, CPUSetError, format_bits, iter_bits, parse_bits

Entries = dict[str, dict[str, str] | None]


class CPUCheckpoint(msgspec.Struct):
    """One file as read: texts of CPU lists by pod and container, bubbles by pod. None maps are JSON nulls.

    `entries_v1` maps container ids to CPU lists and is set by version 1 only.
    """

    policy_name: str = ""
    default_cpuset: str = ""
    entries: Entries | None = msgspec.field(default_factory=dict)
    pod_entries: dict[str, Bits] | None = msgspec.field(default_factory=dict)
    entries_v1: dict[str, str] | None = msgspec.field(default_factory=dict)
    checksum: int = 0


def dump_text(checkpoint: CPUCheckpoint, version: str, name: str = "CPUManagerCheckpoint") -> str:
    """The exact text whose FNV-1a is the checksum of `version` (v1, v2, v3)."""
    if version == "v1":
        kind, entries = "map[string]string", dump_map(checkpoint.entries_v1, str)
    else:
        kind, entries = "map[string]map[string]string", dump_map(checkpoint.entries, lambda c: dump_map(c, str))
    pods = ""
    if version == "v3":
        pods = f" PodEntries:(state.PodCPUAssignments){dump_map(checkpoint.pod_entries, _dump_bubble)}"
    return (
        f"(*state.{name}){{PolicyName:(string){checkpoint.policy_name} "
        f"DefaultCPUSet:(string){checkpoint.default_cpuset} Entries:({kind}){entries}{pods} "
        "Checksum:(checksum.Checksum)0}"
    )


def _dump_bubble(cpus: Bits) -> str:
    elements = " ".join(f"{cpu}:{{}}" for cpu in iter_bits(cpus))
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}"


def encode(checkpoint: CPUCheckpoint, version: str) -> bytes:
    """The file a kubelet writes in `version` (v1, v2, v3), with its checksum."""
    if version == "v1":
        entries = {key: dump_string(text) for key, text in (checkpoint.entries_v1 or {}).items()}
    else:
        entries = {
            pod: json_map({name: dump_string(text) for name, text in (containers or {}).items()})
            for pod, containers in (checkpoint.entries or {}).items()
        }
    members = [
        f'"policyName":{dump_string(checkpoint.policy_name)}',
        f'"defaultCpuSet":{dump_string(checkpoint.default_cpuset)}',
    ]
    if entries:
        members.append(f'"entries":{json_map(entries)}')
    if version == "v3" and checkpoint.pod_entries:
        bubbles = {
            pod: f'{{"cpuSet":{dump_string(format_bits(cpus))}}}' if cpus else "{}"
            for pod, cpus in checkpoint.pod_entries.items()
        }
        members.append(f'"podEntries":{json_map(bubbles)}')
    members.append(f'"checksum":{fnv1a(dump_text(checkpoint, version))}')
    return f"{{{','.join(members)}}}".encode()


def encode_state(state: CPUState, policy_name: str, version: str) -> bytes:
    """The file for a live state."""
    return encode(from_state(state, policy_name), version)


def from_state(state: CPUState, policy_name: str) -> CPUCheckpoint:
    """A checkpoint of a live state."""
    return CPUCheckpoint(
        policy_name=policy_name,
        default_cpuset=format_bits(state.default),
        entries={
            pod: {name: format_bits(cpus) for name, cpus in containers.items()}
            for pod, containers in state.assignments.items()
        },
        pod_entries=dict(state.bubbles),
    )


_STRUCT = {"v1": "CPUManagerCheckpointV1", "v2": "CPUManagerCheckpointV2", "v3": "CPUManagerCheckpoint"}


def decode(data: bytes, version: str, partial: CPUCheckpoint | None = None) -> CPUCheckpoint:
    """Read a file as `version`, without looking at the checksum.

    Raises `CheckpointError` with Go's text. What could be read before an error is left in `partial`.
    """
    checkpoint = partial if partial is not None else CPUCheckpoint()
    members = load_object(data)
    struct = _STRUCT[version]
    error: CheckpointError | None = None
    for key, value in members.items():
        try:
            _decode_member(checkpoint, version, struct, key, value)
        except CheckpointError as problem:
            error = error or problem
    if error is not None:
        raise error
    return checkpoint


def _decode_member(checkpoint: CPUCheckpoint, version: str, struct: str, key: str, value: Any) -> None:
    if value is None and key not in ("entries", "podentries"):
        return
    if key == "policyname":
        checkpoint.policy_name = typed(value, str, struct, "policyName", "string")
    elif key == "defaultcpuset":
        checkpoint.default_cpuset = typed(value, str, struct, "defaultCpuSet", "string")
    elif key == "checksum":
        checkpoint.checksum = typed(value, int, struct, "checksum", "checksum.Checksum")
    elif key == "entries":
        if version == "v1":
            checkpoint.entries_v1 = _text_map(value, struct, "map[string]string")
        else:
            checkpoint.entries = _nested_map(value, struct)
    elif key == "podentries" and version == "v3":
        _decode_bubbles(checkpoint, value, struct)


def _text_map(value: Any, struct: str, go_type: str) -> dict[str, str] | None:
    if value is None:
        return None
    members = typed(value, dict, struct, "entries", go_type)
    return {key: typed("" if text is None else text, str, struct, "entries", "string") for key, text in members.items()}


def _nested_map(value: Any, struct: str) -> Entries | None:
    if value is None:
        return None
    members = typed(value, dict, struct, "entries", "map[string]map[string]string")
    return {
        pod: None
        if containers is None
        else _text_map(typed(containers, dict, struct, "entries", "map[string]string"), struct, "")
        for pod, containers in members.items()
    }


def _decode_bubbles(checkpoint: CPUCheckpoint, value: Any, struct: str) -> None:
    if value is None:
        checkpoint.pod_entries = None
        return
    bubbles: dict[str, Bits] = {}
    checkpoint.pod_entries = bubbles
    for pod, entry in typed(value, dict, struct, "podEntries", "state.PodCPUAssignments").items():
        fields = {} if entry is None else typed(entry, dict, struct, "podEntries", "state.PodEntry")
        text = {key.lower(): member for key, member in fields.items()}.get("cpuset")
        try:
            bubbles[pod] = parse_bits(typed(text, str, struct, "podEntries.cpuSet", "string")) if text else 0
        except CPUSetError as error:
            raise CheckpointError(str(error)) from None


def verify(checkpoint: CPUCheckpoint, version: str, *, pod_level: bool, trust_zero: bool = True) -> None:
    """Check the checksum as a kubelet with or without PodLevelResourceManagers does (spec 8.4).

    `trust_zero`: older formats take a checksum of 0 for intact, as upstream does. Raises `CheckpointError`.
    """
    if checkpoint.checksum == 0 and version != "v3" and trust_zero:
        return
    names = ["CPUManagerCheckpoint"]
    if version == "v2" and not pod_level:
        names.append("CPUManagerCheckpointV2")
    if all(fnv1a(dump_text(checkpoint, version, name)) != checkpoint.checksum for name in names):
        raise CheckpointError(CORRUPT)


def load(
    data: bytes, *, pod_level: bool, containers: Mapping[str, tuple[str, str]], trust_zero: bool = True
) -> CPUCheckpoint:
    """Read a file as a kubelet does: the gate's version first, then older ones, migrating (spec 8.5).

    Without `trust_zero`, V4 files are read by their own checksum, and nothing is taken without one. Raises
    `CheckpointError`; the error of the oldest version is the one reported.
    """
    newest = CPUCheckpoint()
    if not trust_zero and is_v4(data):
        checkpoint = decode_v4(data)
        checkpoint.pod_entries = checkpoint.pod_entries if pod_level else {}
        return checkpoint
    if pod_level:
        try:
            return _load_version(data, "v3", pod_level, trust_zero, newest)
        except CheckpointError:
            pass
    try:
        checkpoint = _load_version(data, "v2", pod_level, trust_zero, CPUCheckpoint())
    except CheckpointError:
        checkpoint = _migrate_v1(_load_version(data, "v1", pod_level, trust_zero, CPUCheckpoint()), containers)
    checkpoint.pod_entries = dict(newest.pod_entries or {}) if pod_level else {}
    return checkpoint


def _load_version(data: bytes, version: str, pod_level: bool, trust_zero: bool, into: CPUCheckpoint) -> CPUCheckpoint:
    checkpoint = decode(data, version, into)
    verify(checkpoint, version, pod_level=pod_level, trust_zero=trust_zero)
    return checkpoint


# Version 4 (Kubernetes 1.37): the V3 members for older kubelets, with checksum 0, and everything again as text


def is_v4(data: bytes) -> bool:
    """True for files that carry their content as a text member `data`."""
    try:
        return isinstance(load_object(data).get("data"), str)
    except CheckpointError:
        return False


def decode_v4(data: bytes) -> CPUCheckpoint:
    """Read a V4 file, or its transitional form with only `data` and `checksum`; only `data` counts (spec 8.7).

    Raises `CheckpointError`.
    """
    members = load_object(data)
    text = typed(members.get("data"), str, "CPUManagerCheckpointV4", "data", "string")
    stated = members.get("datachecksum", members.get("checksum"))
    if fnv1a(f"(string){text}") != stated:
        raise CheckpointError(CORRUPT)
    return decode(text.encode(), "v3")


def encode_v4(checkpoint: CPUCheckpoint) -> bytes:
    """The file of a 1.37 kubelet: an older one reads it as V2 and forgets the bubbles (spec 8.7)."""
    plain = encode(checkpoint, "v3").decode()
    members = plain[1 : plain.rindex(',"checksum":')]
    text = f"{{{members}}}"
    return f'{{{members},"checksum":0,"data":{dump_string(text)},"dataChecksum":{fnv1a(f"(string){text}")}}}'.encode()


def _migrate_v1(checkpoint: CPUCheckpoint, containers: Mapping[str, tuple[str, str]]) -> CPUCheckpoint:
    entries: Entries = {}
    for container_id, cpus in (checkpoint.entries_v1 or {}).items():
        reference = containers.get(container_id)
        if reference is None:
            raise CheckpointError(
                f"failed to migrate checkpoint from v1 to v2: containerID '{container_id}' "
                "not found in initial containers list"
            )
        pod, name = reference
        named = entries.setdefault(pod, {})
        assert named is not None
        named[name] = cpus
    checkpoint.entries = entries
    return checkpoint
