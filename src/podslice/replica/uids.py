"""UIDs in as few bytes as they have: of one, and of all pods of a node in one piece.

An API server's UID is a UUID, 36 characters for 16 bytes. Others, such as those of static pods, stay text. Sets of a
node's pods are asked seldom and kept for many nodes: as one value they take a sixth of a set of strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_UUID = 16
_LATEST = 512
_COUNT = 4
"""Bytes before the UUIDs that say how many there are; behind them come other UIDs, each in line breaks."""


def packed_uid(uid: str) -> bytes:
    """Different UIDs without line breaks, different bytes; those of a UUID are 16, all others more."""
    if len(uid) == 36 and uid[8] == uid[13] == uid[18] == uid[23] == "-":
        digits = uid.replace("-", "")
        try:
            data = bytes.fromhex(digits)
        except ValueError:
            data = b""
        if len(data) == _UUID and data.hex() == digits:
            return data
    return uid.encode("utf-8", "surrogatepass").ljust(_UUID + 1, b"\n")


def unpacked_uid(data: bytes) -> str:
    """The UID again."""
    if len(data) == _UUID:
        digits = data.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return data.rstrip(b"\n").decode("utf-8", "surrogatepass")


def names_of(uids: Iterable[str]) -> bytes:
    """All of them; empty for none."""
    uuids: list[bytes] = []
    texts: list[bytes] = []
    for one in map(packed_uid, uids):
        if len(one) == _UUID:
            uuids.append(one)
        else:
            texts.append(one.rstrip(b"\n"))
    if not (uuids or texts):
        return b""
    behind = b"\n".join((b"", *texts, b"")) if texts else b""
    uuids.sort()
    return _known(len(uuids).to_bytes(_COUNT, "big") + b"".join(uuids) + behind)


@lru_cache(_LATEST)
def _known(names: bytes) -> bytes:
    """Those on a node and those of them that own something are often the same: then there is one value."""
    return names


def is_named(uid: str, names: bytes) -> bool:
    """True when it is one of them. A UID with line breaks in it is none."""
    if not names:
        return False
    data, end = packed_uid(uid), _end(names)
    if len(data) != _UUID:
        return "\n" not in uid and b"\n" + data.rstrip(b"\n") + b"\n" in names[end:]
    at = names.find(data, _COUNT, end)
    while at >= 0 and (at - _COUNT) % _UUID:
        at = names.find(data, at + 1, end)
    return at >= 0


def _end(names: bytes) -> int:
    """Where the UUIDs end."""
    return _COUNT + _UUID * int.from_bytes(names[:_COUNT], "big")


def uids_in(names: bytes) -> list[str]:
    """The UIDs."""
    if not names:
        return []
    end = _end(names)
    uuids = [unpacked_uid(names[at : at + _UUID]) for at in range(_COUNT, end, _UUID)]
    return uuids + [one.decode("utf-8", "surrogatepass") for one in names[end:].split(b"\n") if one]
