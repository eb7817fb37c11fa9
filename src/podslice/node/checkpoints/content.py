"""Content of a state file of any version, for questions and conversions.

`identify` names the one format under which a file is intact; that format is the one to read. A file that is intact
under none is read as far as possible, for `verify` and `repair`, and `intact` is False.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from podslice.api.pod.spec import PodAllocation
from podslice.node.checkpoints import allocation as checkpoint_allocation
from podslice.node.checkpoints import claims as checkpoint_claims
from podslice.node.checkpoints import data as checkpoint_data
from podslice.node.checkpoints import guard_state, pod_status, policy_state
from podslice.node.checkpoints.claims import CHECKPOINT_KIND, ClaimCheckpoint
from podslice.node.checkpoints.guard_state import GuardContent
from podslice.node.checkpoints.identify import IdentifiedFile, identify
from podslice.node.checkpoints.pod_status import StatusCheckpoint
from podslice.node.checkpoints.policy_state import PolicyContent
from podslice.node.checkpoints.releases import FileKind
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices import checkpoint as checkpoint_devices
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.values.go.godump import decode_data
from podslice.values.go.gojson import CheckpointError, Members, dump_string, dump_value, parse


class AllocationCheckpoint(NamedTuple):
    """The records of granted resources, by pod UID."""

    pods: Mapping[str, PodAllocation]


Checkpoint: TypeAlias = (
    CPUCheckpoint
    | MemoryCheckpoint
    | DeviceCheckpoint
    | AllocationCheckpoint
    | PolicyContent
    | GuardContent
    | ClaimCheckpoint
    | StatusCheckpoint
)
_KINDS: Mapping[type, FileKind] = {
    CPUCheckpoint: "cpu",
    MemoryCheckpoint: "memory",
    DeviceCheckpoint: "device",
    AllocationCheckpoint: "allocation",
    PolicyContent: "policy",
    GuardContent: "guard",
    ClaimCheckpoint: "dra",
    StatusCheckpoint: "pod-status",
}


class Content(msgspec.Struct, frozen=True):
    """One file. `unknown` are members of its string that this release does not know, as JSON text (`,"key":value…`).
    `by_container_id`: a CPU file V1, whose entries are in `entries_v1` of its checkpoint."""

    identity: IdentifiedFile
    version: str
    checkpoint: Checkpoint
    unknown: str = ""

    @property
    def kind(self) -> FileKind:
        """The manager or agent that the file belongs to."""
        return _KINDS[type(self.checkpoint)]

    @property
    def intact(self) -> bool:
        """Whether the checksum covers the content."""
        # The DRA Manager is the only one that uses CRC-32.
        return self.identity.version is not None and (self.identity.version == "crc32") == (self.kind == "dra")

    @property
    def has_unknown_checksum(self) -> bool:
        """Whether the checksum covers a form that cannot be made again from the file, and so cannot be checked."""
        return self.identity.kind in ("dra", "pod-status")

    @property
    def is_unchecked(self) -> bool:
        """Whether the checksum is 0, which older formats accept whatever the content is."""
        return not self.intact and self.identity.stated == 0 and self.identity.kind in ("cpu", "memory")

    @property
    def by_container_id(self) -> bool:
        """Whether owners are ids of the runtime, not pods and names."""
        return self.kind == "cpu" and self.version == "v1"


def read_content(data: bytes) -> Content:
    """Read a state file, intact or not. Raises `CheckpointError` when nothing can be read."""
    identity = identify(data)
    if identity.kind == "data":
        return _read_data(data, identity)
    if identity.kind == "guard":
        return Content(identity, "v1", guard_state.decode(data))
    if identity.kind == "dra":
        return Content(identity, "v1", checkpoint_claims.decode_old(data))
    if identity.kind == "pod-status":
        return Content(identity, "v1", pod_status.decode_old(data))
    version = (identity.version or "").removesuffix("raw")
    if identity.kind == "cpu":
        if not version:
            version = next((v for v in ("v3", "v1") if v in identity.computed), "v3")
            version = "v2" if version == "v3" and not _has_pod_entries(data) else version
        # V2 files are read as V3, which has the same members and pod entries besides.
        return Content(identity, version, checkpoint_cpu.decode(data, "v1" if version == "v1" else "v3"))
    if identity.kind == "memory":
        version = version or ("v2" if _has_pod_entries(data) else "v1")
        # V1 files are read as V2, which has the same members and pod entries besides.
        return Content(identity, version, checkpoint_memory.decode(data, "v2"))
    version = version if version == "v1" and "v2" not in identity.computed else "v2"
    return Content(identity, version, checkpoint_devices.decode(data, version))


def _read_data(data: bytes, identity: IdentifiedFile) -> Content:
    """Read a file whose content is a text in member `data`. Raises `CheckpointError`."""
    members = _members_inside(data)
    if "claiminfostatelist" in members or members.get("kind") == CHECKPOINT_KIND:
        return Content(identity, "v2", checkpoint_claims.decode(data))
    if "allocationentries" in members or "resizestatusentries" in members:
        return Content(identity, "v2", pod_status.decode(data))
    if identity.version != "crc32" and _is_allocation(data):
        return Content(identity, "data", AllocationCheckpoint(checkpoint_allocation.decode(data)))
    if identity.version != "crc32" and (unknown := _unknown_of_policy(data)) is not None:
        return Content(identity, "data", policy_state.read(data), unknown)
    inner = identify(decode_data(data).data.encode())
    if inner.kind == "memory":
        memory, unknown = checkpoint_data.MEMORY_V3.decode(data)
        return Content(identity, "v3", memory, unknown)
    if inner.kind == "cpu" and identity.version != "crc32":
        cpu, unknown = checkpoint_data.CPU_V4.decode(data)
        return Content(identity, "v4", cpu, unknown)
    raise CheckpointError("the content is that of no manager that podslice knows")


def _members_inside(data: bytes) -> dict[str, Any]:
    """Return the members of the object in the member `data`, by lower-case name."""
    value = parse(decode_data(data).data.encode())
    return {key.lower(): member for key, member in value} if isinstance(value, Members) else {}


def _is_allocation(data: bytes) -> bool:
    """Whether the content has nothing beside `entries`, as records of granted resources; the managers' files name a
    policy."""
    value = parse(decode_data(data).data.encode())
    return isinstance(value, Members) and all(key.lower() == "entries" for key, _ in value)


def _unknown_of_policy(data: bytes) -> str | None:
    """Return the members of podslice's own file that this release does not know; None for other files. Only that file
    has a member `version`."""
    value = parse(decode_data(data).data.encode())
    if not isinstance(value, Members) or not any(key == "version" for key, _ in value):
        return None
    unknown = [f",{dump_string(key)}:{dump_value(one)}" for key, one in value if key not in policy_state.MEMBERS]
    return "".join(unknown)


def _has_pod_entries(data: bytes) -> bool:
    value = parse(data)
    return isinstance(value, Members) and any(key.lower() == "podentries" for key, _ in value)
