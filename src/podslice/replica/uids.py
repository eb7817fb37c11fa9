"""UIDs as compact bytes: one UID, or those of all pods of a node in one value.

A UID of the API server is a UUID: 36 characters for 16 bytes. Other UIDs, such as those of static pods, stay text. The
set of a node's UIDs is read seldom and kept for many nodes; as one bytes value it takes a sixth of a set of strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_UUID = 16
_LATEST = 512
_COUNT = 4
"""Bytes of the number of UUIDs, which comes first. After the UUIDs come other UIDs, each between line breaks."""


def pack_uid(uid: str) -> bytes:
    """Return 16 bytes for a UUID and more for any other UID; different for different UIDs without line breaks."""
    if len(uid) == 36 and uid[8] == uid[13] == uid[18] == uid[23] == "-":
        digits = uid.replace("-", "")
        try:
            data = bytes.fromhex(digits)
        except ValueError:
            data = b""
        if len(data) == _UUID and data.hex() == digits:
            return data
    # At least 17 bytes, so that the length tells it from a UUID; the padding is a byte that no such UID has.
    return uid.encode("utf-8", "surrogatepass").ljust(_UUID + 1, b"\n")


def unpack_uid(data: bytes) -> str:
    """Return the UID of `pack_uid`."""
    if len(data) == _UUID:
        digits = data.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return data.rstrip(b"\n").decode("utf-8", "surrogatepass")


def pack_uids(uids: Iterable[str]) -> bytes:
    """Return UIDs as one value; empty for none."""
    uuids: list[bytes] = []
    texts: list[bytes] = []
    for one in map(pack_uid, uids):
        if len(one) == _UUID:
            uuids.append(one)
        else:
            texts.append(one.rstrip(b"\n"))
    if not (uuids or texts):
        return b""
    behind = b"\n".join((b"", *texts, b"")) if texts else b""
    # In one order, so that equal sets are equal values and `_share` finds them.
    uuids.sort()
    return _share(len(uuids).to_bytes(_COUNT, "big") + b"".join(uuids) + behind)


@lru_cache(_LATEST)
def _share(names: bytes) -> bytes:
    """Return an equal value that is there already: the UIDs on a node and those that own something are often equal."""
    return names


def is_among(uid: str, names: bytes) -> bool:
    """Whether a UID is in the value of `pack_uids`. One with line breaks never is."""
    if not names:
        return False
    data, end = pack_uid(uid), _end_of_uuids(names)
    if len(data) != _UUID:
        return "\n" not in uid and b"\n" + data.rstrip(b"\n") + b"\n" in names[end:]
    # A match across the border of two UUIDs is none: search on until it starts at a multiple of 16.
    at = names.find(data, _COUNT, end)
    while at >= 0 and (at - _COUNT) % _UUID:
        at = names.find(data, at + 1, end)
    return at >= 0


def _end_of_uuids(names: bytes) -> int:
    """Return the offset after the UUIDs."""
    return _COUNT + _UUID * int.from_bytes(names[:_COUNT], "big")


def unpack_uids(names: bytes) -> list[str]:
    """Return the UIDs of `pack_uids`; UUIDs are in their own order."""
    if not names:
        return []
    end = _end_of_uuids(names)
    uuids = [unpack_uid(names[at : at + _UUID]) for at in range(_COUNT, end, _UUID)]
    return uuids + [one.decode("utf-8", "surrogatepass") for one in names[end:].split(b"\n") if one]
