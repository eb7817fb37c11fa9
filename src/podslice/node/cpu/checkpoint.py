"""`cpu_manager_state` in the versions a kubelet 1.36 knows (cpu-topology 8.2 to 8.5).

V2 is what a kubelet without PodLevelResourceManagers writes, V3 one with it; V1 (before 1.18) is only read. The newer
V4 is in `checkpoints.data`. Entries stay text here, because the checksum covers the text as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from podslice.node.cpu.state import CPUState
from podslice.values.cpuset import Bits, CPUSetError, format_bits, iter_bits, parse_bits
from podslice.values.go.godump import Checksum, Member, add_dump, dump_map, fnv1a, json_of, member, renew
from podslice.values.go.gojson import (
    CORRUPT,
    CheckpointError,
    GoInt,
    GoMap,
    GoString,
    GoStruct,
    GoText,
    GoType,
    dump_string,
    unmarshal,
    zero,
)
from podslice.values.go.gojson import dump_map as json_map

Entries = dict[str, dict[str, str] | None]


class CPUCheckpoint(msgspec.Struct):
    """One file as read: texts of CPU lists by pod and container, pod CPUs by pod. None maps are JSON nulls.

    `entries_v1` maps container ids to CPU lists and is set by version 1 only.
    """

    policy_name: str = ""
    default_cpuset: str = ""
    entries: Entries | None = msgspec.field(default_factory=dict)
    pod_entries: dict[str, Bits] | None = msgspec.field(default_factory=dict)
    entries_v1: dict[str, str] | None = msgspec.field(default_factory=dict)
    checksum: int = 0


# The text under the checksum

_V1_KIND = "map[string]string"
_KIND = "map[string]map[string]string"
_BEFORE_POLICY = "(*state.CPUManagerCheckpoint){PolicyName:(string)"
_BEFORE_DEFAULT = " DefaultCPUSet:(string)"
_BEFORE_ENTRIES = f" Entries:({_KIND})"
_PODS = " PodEntries:(state.PodCPUAssignments)"
_TAIL = " Checksum:(checksum.Checksum)0}"


def dump_text(checkpoint: CPUCheckpoint, version: str, name: str = "CPUManagerCheckpoint") -> str:
    """Return the exact text whose FNV-1a is the checksum of `version` (v1, v2, v3)."""
    if version == "v1":
        kind, entries = _V1_KIND, dump_map(checkpoint.entries_v1, str)
    else:
        kind, entries = _KIND, dump_map(checkpoint.entries, _dump_containers)
    pods = _PODS + dump_map(checkpoint.pod_entries, _dump_pod_cpus) if version == "v3" else ""
    head = f"(*state.{name}){{PolicyName:(string){checkpoint.policy_name}"
    return f"{head}{_BEFORE_DEFAULT}{checkpoint.default_cpuset} Entries:({kind}){entries}{pods}{_TAIL}"


def _dump_containers(containers: dict[str, str] | None) -> str:
    return dump_map(containers, str)


def _dump_pod_cpus(cpus: Bits) -> str:
    # The set of pod entries is dumped as a map, CPU by CPU; elsewhere CPU lists are text (cpu-topology 8.4).
    elements = " ".join(f"{cpu}:{{}}" for cpu in iter_bits(cpus))
    return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{elements}]}}}}"


# Writing


def encode(checkpoint: CPUCheckpoint, version: str) -> bytes:
    """Return the file a kubelet writes in `version` (v1, v2, v3), with its checksum."""
    checksum = fnv1a(dump_text(checkpoint, version))
    if version == "v1":
        entries = {key: dump_string(text) for key, text in (checkpoint.entries_v1 or {}).items()}
        listed = json_map(entries) if entries else ""
        members = _members(checkpoint.policy_name, checkpoint.default_cpuset, listed, "")
    else:
        members = json_members(checkpoint, pods=version == "v3")
    return f'{{{members},"checksum":{checksum}}}'.encode()


def _members(policy_name: str, default: str, entries: str, pod_entries: str) -> str:
    text = f'"policyName":{dump_string(policy_name)},"defaultCpuSet":{dump_string(default)}'
    # Go's `omitempty` leaves out empty maps, which have no text here.
    if entries:
        text += f',"entries":{entries}'
    return f'{text},"podEntries":{pod_entries}' if pod_entries else text


def _json_containers(containers: dict[str, str] | None) -> str:
    if containers is None:
        return "null"
    return json_map({name: dump_string(text) for name, text in containers.items()})


def json_pod_cpus(cpus: Bits) -> str:
    """Return the pod CPUs of one pod as a member of `podEntries`."""
    return f'{{"cpuSet":"{format_bits(cpus)}"}}' if cpus else "{}"


def json_members(checkpoint: CPUCheckpoint, *, pods: bool = True) -> str:
    """Return the JSON members policyName to entries or, with `pods`, to podEntries."""
    entries = {pod: _json_containers(containers) for pod, containers in (checkpoint.entries or {}).items()}
    pod_entries = {pod: json_pod_cpus(cpus) for pod, cpus in (checkpoint.pod_entries or {}).items()} if pods else {}
    return _members(
        checkpoint.policy_name,
        checkpoint.default_cpuset,
        json_map(entries) if entries else "",
        json_map(pod_entries) if pod_entries else "",
    )


class CPUStateEncoder:
    """Writes one node's state files (v2, v3); caches the texts of pods that did not change."""

    def __init__(self) -> None:
        self._checksum = Checksum()
        self._pods: dict[str, Member] = {}
        self._pod_entries: dict[str, Member] = {}

    def encode(self, state: CPUState, policy_name: str, version: str) -> bytes:
        """Return the file for a state, the same bytes as `encode`."""
        default = format_bits(state.default)
        self._pods = renew(self._pods, state.assignments, _pod_member)
        entries, pod_entries = self._pods.values(), self._pod_entries.values()
        text = [_BEFORE_POLICY, policy_name, _BEFORE_DEFAULT, default, _BEFORE_ENTRIES]
        add_dump(text, entries, self._checksum)
        if version == "v3":
            self._pod_entries = renew(self._pod_entries, state.pod_cpus, _pod_entry_member)
            pod_entries = self._pod_entries.values()
            text.append(_PODS)
            add_dump(text, pod_entries, self._checksum)
        text.append(_TAIL)
        members = _members(policy_name, default, json_of(entries), json_of(pod_entries))
        return f'{{{members},"checksum":{self._checksum.of(text)}}}'.encode()


def _pod_member(uid: str, containers: dict[str, Bits]) -> Member:
    dump, json = [], []
    for name in sorted(containers):
        cpus = format_bits(containers[name])
        dump.append(f"{name}:{cpus}")
        json.append(f'{dump_string(name)}:"{cpus}"')
    text = f" {uid}:map[{' '.join(dump)}]"
    return Member(containers, f"{dump_string(uid)}:{{{','.join(json)}}}", text, (text,))


def _pod_entry_member(uid: str, cpus: Bits) -> Member:
    return member(cpus, f"{dump_string(uid)}:{json_pod_cpus(cpus)}", f" {uid}:", _dump_pod_cpus(cpus))


# Reading

_CHECKSUM = GoInt("checksum.Checksum")
_TEXTS = GoMap(_V1_KIND, GoString())


def _pod_cpus(text: str) -> Bits:
    """Parse a pod's CPU list with the error that upstream's unmarshalling adds."""
    try:
        return parse_bits(text)
    except CPUSetError as error:
        raise CPUSetError(f"failed to parse cpuset: {error}") from None


_POD_ENTRY = GoStruct("state.PodEntry", {"cpuSet": GoText("string", _pod_cpus, 0)})
_EMPTY = frozenset({"entries", "podEntries"})


def _format(name: str, entries: GoMap, **more: GoMap) -> GoStruct:
    fields: dict[str, GoType] = {
        "policyName": GoString(),
        "defaultCpuSet": GoString(),
        "entries": entries,
        **more,
        "checksum": _CHECKSUM,
    }
    return GoStruct(f"state.{name}", fields, _EMPTY)


FORMATS = {
    "v1": _format("CPUManagerCheckpointV1", _TEXTS),
    "v2": _format("CPUManagerCheckpointV2", GoMap(_KIND, _TEXTS)),
    "v2-newest": _format("CPUManagerCheckpoint", GoMap(_KIND, _TEXTS)),
    "v3": _format(
        "CPUManagerCheckpoint", GoMap(_KIND, _TEXTS), podEntries=GoMap("state.PodCPUAssignments", _POD_ENTRY)
    ),
}


def decode(data: bytes, version: str, partial: CPUCheckpoint | None = None) -> CPUCheckpoint:
    """Read a file as `version` (v1, v2, v3; v2-newest: V2 under the name it had before there was V3), without looking
    at the checksum.

    Raises `CheckpointError` with Go's text. What could be read before an error is left in `partial`.
    """
    checkpoint = partial if partial is not None else CPUCheckpoint()
    fields = zero(FORMATS[version])
    try:
        unmarshal(data, FORMATS[version], fields)
    # As in Go, fields before the error keep their values; an older version's reader goes on from them.
    finally:
        _fill(checkpoint, fields, version)
    return checkpoint


def _fill(checkpoint: CPUCheckpoint, fields: dict[str, Any], version: str) -> None:
    """Fill a checkpoint from decoded members, which `version` names."""
    checkpoint.policy_name = fields["policyName"]
    checkpoint.default_cpuset = fields["defaultCpuSet"]
    checkpoint.checksum = fields["checksum"]
    if version == "v1":
        checkpoint.entries_v1 = fields["entries"]
    else:
        checkpoint.entries = fields["entries"]
    pod_entries = fields.get("podEntries", {})
    checkpoint.pod_entries = (
        None if pod_entries is None else {pod: entry["cpuSet"] for pod, entry in pod_entries.items()}
    )


def verify(checkpoint: CPUCheckpoint, version: str, *, pod_level: bool, trust_zero: bool = True) -> None:
    """Check the checksum as a kubelet with or without PodLevelResourceManagers does (cpu-topology 8.4); `trust_zero`
    lets a checksum of 0 pass in versions before V3, as upstream does.

    Raises `CheckpointError`.
    """
    if checkpoint.checksum == 0 and version != "v3" and trust_zero:
        return
    names = ["CPUManagerCheckpoint"]
    if version == "v2" and not pod_level:
        # The checksum covers the name of the Go type, which a kubelet without the gate accepts in two spellings.
        names.append("CPUManagerCheckpointV2")
    if all(fnv1a(dump_text(checkpoint, version, name)) != checkpoint.checksum for name in names):
        raise CheckpointError(CORRUPT)


def load_oldest_first(data: bytes, containers: Mapping[str, tuple[str, str]], *, trust_zero: bool) -> CPUCheckpoint:
    """Read a file as kubelets up to 1.35 do: as V1, then as V2.

    `containers` and `trust_zero` as in `load`. Raises `CheckpointError`; the error of V2 is the one reported.
    """
    try:
        checkpoint = decode(data, "v1")
        verify(checkpoint, "v1", pod_level=True, trust_zero=trust_zero)
    except CheckpointError:
        checkpoint = decode(data, "v2-newest")
        verify(checkpoint, "v2", pod_level=True, trust_zero=trust_zero)
        return checkpoint
    return migrate_v1(checkpoint, containers, problem="error migrating v1 checkpoint state to v2 checkpoint state")


def load(
    data: bytes, *, pod_level: bool, containers: Mapping[str, tuple[str, str]], trust_zero: bool = True
) -> CPUCheckpoint:
    """Read a file as a kubelet 1.36 does: the gate's version first, then older ones, migrating (cpu-topology 8.5).

    `containers` maps the runtime's container ids to (pod UID, name), for V1; `trust_zero` as in `verify`. Raises
    `CheckpointError`; the error of the oldest version is the one reported.
    """
    newest = CPUCheckpoint()

    def read(version: str, into: CPUCheckpoint) -> CPUCheckpoint:
        checkpoint = decode(data, version, into)
        verify(checkpoint, version, pod_level=pod_level, trust_zero=trust_zero)
        return checkpoint

    if pod_level:
        try:
            return read("v3", newest)
        except CheckpointError:
            pass
    try:
        checkpoint = read("v2", CPUCheckpoint())
    except CheckpointError:
        checkpoint = migrate_v1(read("v1", CPUCheckpoint()), containers)
    # Upstream decodes the versions into one object: pod entries read as V3 survive the fall back to V2
    # (cpu-topology 8.5).
    checkpoint.pod_entries = dict(newest.pod_entries or {}) if pod_level else {}
    return checkpoint


def migrate_v1(
    checkpoint: CPUCheckpoint,
    containers: Mapping[str, tuple[str, str]],
    *,
    problem: str = "failed to migrate checkpoint from v1 to v2",
) -> CPUCheckpoint:
    """Turn entries by container id into entries by pod and container. Raises `CheckpointError`, which says `problem`,
    for an unknown id."""
    entries: dict[str, dict[str, str]] = {}
    for container_id, cpus in (checkpoint.entries_v1 or {}).items():
        reference = containers.get(container_id)
        if reference is None:
            raise CheckpointError(f"{problem}: containerID '{container_id}' not found in initial containers list")
        pod, name = reference
        entries.setdefault(pod, {})[name] = cpus
    checkpoint.entries = dict(entries)
    return checkpoint
