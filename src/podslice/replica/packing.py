"""A node's state at rest: what it says as compressed bytes, in which pods are only their places.

UIDs cannot be compressed, so they are beside the rest, once (`uids.names_of`). A state names its pods again and again,
nearly always in the same order, so what stands for a UID is mostly "the one after the last one": the same bytes each
time, of which a compressor needs hardly any.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import msgspec

from podslice.reading.unpacking import unpack
from podslice.replica.uids import names_of, uids_in
from podslice.values.errors import InputError

_WORDS = b"""{"pods":[{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"4","memory":"8Gi"},"limits":\
{"cpu":"4","memory":"8Gi"}}}]},"metadata":{"name":"web-0","namespace":"default","uid":"\xff","generation":1,\
"creationTimestamp":"2026-01-01T00:00:00Z"}}],"statuses":{"\xfe\x01":{"c":{"id":"containerd://0123456789abcdef"}},\
"\xfe\x01":{"c":{"id":"\xfe\0_c_0"}}},"cpu":{"default":79228162514264337593543950335,"assignments":{"\xfe\x01":{"c":60},\
"\xfe\x01":{"c":3}},"written":{"\xfe\x01":{"c":60}},"containers":{"\xfe\x01":{"":"c"},"\xfe\x01":{"\xfe\0_c_0":"c"}}},\
"memory":{"machine_state":{"0":{"numberOfAssignments":9,"memoryMap":{"memory":{"total":206158430208,"systemReserved":\
1073741824,"allocatable":205084688384,"reserved":151397597184,"free":53687091200},"hugepages-1Gi":{"hugepages-2Mi":{\
"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0}},"cells":[0]},"1":{"numberOfAssignments":8,"memoryMap"\
:{"memory":{"total":206158430208,"systemReserved":1073741824,"allocatable":205084688384,"reserved":25769803776,"free":\
179314884608}},"cells":[1]}},"assignments":{"\xfe\x01":{"c":[{"numaAffinity":[0],"type":"memory","size":12884901888}]},\
"\xfe\x01":{"c":[{"numaAffinity":[1],"type":"memory","size":6442450944}]}},"containers":{"\xfe\x01":{"\xfe\0_c_0":"c"}}},\
"affinities":{"\xfe\x01":{"c":{"mask":1,"preferred":true}},"\xfe\x01":{"c":{"mask":2,"preferred":true}}},"containers":\
{"\xfe\x01":{"\xfe\0_c_0":"c"}}}"""
"""What most states say, so that one of them is packed into a third less. Packed states are never stored."""
_MOST_UNPACKED = 16 << 20
"""Bytes of a state; a journal's events have at most 4 MiB."""
_LEVEL = 3
"""A sixth less time than 6, for an eighth more bytes."""
_RAW = -15
"""A window of 32 KiB without a head and a sum: nothing travels."""

_UUID = re.compile(rb'("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})')
"""With the quotation mark before it: there are fewer of these than of digits."""
_FIRST, _LATER = b"\xff", b"\xfe"
"""No text has these bytes. Before a character they stand for a UID: when it is first named by its place among those of
the node's pods, later by how many names after the last one it was named first."""
_MARKED = re.compile(b"([\xfe\xff])([\\x00-\\x7f]|[\xc2-\xdf].|[\xe0-\xef]..)", re.DOTALL)
_MOST_PLACES = 0xD800


class PackedState(msgspec.Struct, frozen=True, gc=False):
    """A state as compressed bytes: what is kept of a node of which nothing is asked. In them the UIDs of its pods,
    which are beside it, are only places."""

    data: bytes
    uids: bytes = b""


def is_text(data: bytes) -> bool:
    """False for bytes that no text has, and that would be taken for places."""
    return _FIRST not in data and _LATER not in data


def packed(data: bytes, uids: Iterable[str]) -> PackedState:
    """A state's JSON, `is_text`, at rest; `uids` are those of its pods."""
    names = names_of(uids)
    places = {_quoted(uid): at for at, uid in enumerate(uids_in(names)[:_MOST_PLACES])}
    ranks: dict[bytes, int] = {}
    last, count = 0, len(places)
    later = [b'"' + _LATER + chr(step).encode() for step in range(count)]
    parts = _UUID.split(data)
    named = parts[1::2]
    for at, uid in enumerate(named):
        rank = ranks.get(uid)
        if rank is not None:
            named[at] = later[rank - last]  # counted from the end where it is less
            last = rank
        elif uid in places:
            named[at] = b'"' + _FIRST + chr(places[uid]).encode()
            last = ranks[uid] = len(ranks)
    parts[1::2] = named
    packing = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=_WORDS)
    return PackedState(packing.compress(b"".join(parts)) + packing.flush(), names)


def unpacked(state: PackedState) -> bytes:
    """The JSON again. Raises `InputError` for what is none."""
    try:
        data = unpack(state.data, _MOST_UNPACKED, wbits=_RAW, zdict=_WORDS)
    except InputError as error:
        raise error.at(path="state") from None
    names = uids_in(state.uids)
    ranked: list[bytes] = []
    last, count = 0, min(len(names), _MOST_PLACES)

    def name(found: re.Match[bytes]) -> bytes:
        nonlocal last
        number = ord(found[2].decode())
        if found[1] == _FIRST:
            last = len(ranked)
            ranked.append(names[number].encode("utf-8", "surrogatepass"))
        else:
            last = (last + number) % count
        return ranked[last]

    try:
        return _MARKED.sub(name, data)
    except (UnicodeDecodeError, IndexError, ZeroDivisionError):
        raise InputError("names a pod by a place that there is not", path="state") from None


def _quoted(uid: str) -> bytes:
    return b'"' + uid.encode("utf-8", "surrogatepass")
