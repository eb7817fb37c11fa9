"""A node's state at rest: its JSON compressed, with pods' UIDs replaced by their places.

UIDs are random, so they do not compress; they are stored once, beside the rest (`uids.pack_uids`). A state names its
pods many times, nearly always in the same order. So the token for a UID is mostly "the one after the last": equal bytes
each time, which the compressor reduces to almost nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import msgspec

from podslice.reading.unpacking import unpack
from podslice.replica.uids import pack_uids, unpack_uids
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
"""A dictionary for zlib with the text of usual states: a packed state gets a third smaller. It may change freely,
because packed states never leave the process."""
_MOST_UNPACKED = 16 << 20
"""Most bytes of an unpacked state; an event of a journal has at most 4 MiB."""
_LEVEL = 3
"""Level of zlib: a sixth less time than level 6, for an eighth more bytes."""
_RAW = -15
"""zlib's code for a window of 32 KiB without header and checksum: the bytes stay in this process."""

_UUID = re.compile(rb'("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})')
"""A UUID after its quotation mark: searching for the mark first is faster, because digits are more frequent."""
_FIRST, _LATER = b"\xff", b"\xfe"
"""Marks that UTF-8 text never contains. `_FIRST` and a character: the first mention of a UID, as its place among the
node's UIDs. `_LATER` and a character: a further mention, as the distance to the last one in the order of first
mentions."""
_MARKED = re.compile(b"([\xfe\xff])([\\x00-\\x7f]|[\xc2-\xdf].|[\xe0-\xef]..)", re.DOTALL)
_MOST_PLACES = 0xD800


class PackedState(msgspec.Struct, frozen=True, gc=False):
    """A state as compressed bytes, kept of a node while nothing asks for its state. `uids` are its pods' UIDs
    (`pack_uids`), to which the tokens in `data` refer."""

    data: bytes
    uids: bytes = b""


def is_text(data: bytes) -> bool:
    """Whether the bytes contain no mark, so that `pack_state` may take them."""
    return _FIRST not in data and _LATER not in data


def pack_state(data: bytes, uids: Iterable[str]) -> PackedState:
    """Compress a state's JSON, which must be `is_text`; `uids` are those of its pods."""
    names = pack_uids(uids)
    # A place is written as one character, which must stay below the surrogates of UTF-16.
    places = {_quote(uid): at for at, uid in enumerate(unpack_uids(names)[:_MOST_PLACES])}
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


def unpack_state(state: PackedState) -> bytes:
    """Return the JSON of a packed state. Raises `InputError` for damaged bytes."""
    try:
        data = unpack(state.data, _MOST_UNPACKED, wbits=_RAW, zdict=_WORDS)
    except InputError as error:
        raise error.at(path="state") from None
    names = unpack_uids(state.uids)
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


def _quote(uid: str) -> bytes:
    return b'"' + uid.encode("utf-8", "surrogatepass")
