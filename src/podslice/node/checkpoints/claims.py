"""`dra_manager_state`: the claims that a kubelet has prepared, and for whom.

The content is a JSON string under a CRC-32. Kubelets with the alpha gate wrote a list under a checksum of Go structs,
which cannot be recomputed from the file. Both are read, none is written.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from podslice.values.go.godump import decode_data
from podslice.values.go.gojson import CheckpointError

CHECKPOINT_KIND = "DRACheckpoint"


class ClaimDevice(msgspec.Struct, frozen=True):
    """A device of a claim; pool and device are empty in old files."""

    driver: str
    pool: str
    device: str


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim that the kubelet has prepared; `pods` are UIDs."""

    namespace: str
    name: str
    uid: str
    pods: tuple[str, ...]
    devices: tuple[ClaimDevice, ...]


class ClaimCheckpoint(NamedTuple):
    """The claims of the file, in its order."""

    claims: tuple[PreparedClaim, ...]


class _Device(msgspec.Struct):
    pool: str = msgspec.field(default="", name="PoolName")
    device: str = msgspec.field(default="", name="DeviceName")


class _Driver(msgspec.Struct):
    devices: list[_Device] | None = msgspec.field(default=None, name="Devices")


class _Claim(msgspec.Struct):
    uid: str = msgspec.field(default="", name="ClaimUID")
    name: str = msgspec.field(default="", name="ClaimName")
    namespace: str = msgspec.field(default="", name="Namespace")
    pods: dict[str, msgspec.Raw] | None = msgspec.field(default=None, name="PodUIDs")
    drivers: dict[str, _Driver] | None = msgspec.field(default=None, name="DriverState")


class _OldClaim(msgspec.Struct):
    uid: str = msgspec.field(default="", name="ClaimUID")
    name: str = msgspec.field(default="", name="ClaimName")
    namespace: str = msgspec.field(default="", name="Namespace")
    driver: str = msgspec.field(default="", name="DriverName")
    pods: dict[str, msgspec.Raw] | None = msgspec.field(default=None, name="PodUIDs")


class _Content(msgspec.Struct):
    claims: list[_Claim] | None = msgspec.field(default=None, name="ClaimInfoStateList")
    kind: str = ""


class _OldContent(msgspec.Struct):
    entries: list[_OldClaim] | None = None


def decode(data: bytes) -> ClaimCheckpoint:
    """Read the form of v1.36.2. Raises `CheckpointError`."""
    try:
        content = msgspec.json.decode(decode_data(data).data, type=_Content)
    except msgspec.DecodeError as error:
        raise CheckpointError(str(error)) from None
    return ClaimCheckpoint(
        tuple(
            PreparedClaim(one.namespace, one.name, one.uid, tuple(one.pods or ()), tuple(_devices(one)))
            for one in content.claims or ()
        )
    )


def _devices(claim: _Claim) -> list[ClaimDevice]:
    return [
        ClaimDevice(driver, device.pool, device.device)
        for driver, state in sorted((claim.drivers or {}).items())
        for device in state.devices or ()
    ]


def decode_old(data: bytes) -> ClaimCheckpoint:
    """Read the form of kubelets with the alpha gate. Raises `CheckpointError`."""
    try:
        content = msgspec.json.decode(data, type=_OldContent)
    except msgspec.DecodeError as error:
        raise CheckpointError(str(error)) from None
    return ClaimCheckpoint(
        tuple(
            PreparedClaim(
                one.namespace, one.name, one.uid, tuple(one.pods or ()),
                (ClaimDevice(one.driver, "", ""),) if one.driver else (),
            )
            for one in content.entries or ()
        )
    )  # fmt: skip
