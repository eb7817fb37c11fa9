"""Checksums of state files, and what stands under them: a one-line dump of Go structs, or content as a string
(cpu-topology 8.4, 8.7).

The checksum is on the way of every admission, and a byte of FNV-1a costs Python 70 ns. But it mixes a byte into the
lowest bits of the hash only; for ASCII text these are seven, so what a piece of text does to a hash depends on them
alone (mod 2 ** 32):

    fnv(h, text) = (h - low(h)) * PRIME ** len(text) + fnv(low(h), text)

`Checksum` keeps a table of the 128 possible second terms for pieces that recur. A state changes in one pod at a time,
so nearly all of them do.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from podslice.values.go.gojson import GoInt, GoString, GoStruct, Members, parse, unmarshal

K = TypeVar("K", int, str)
V = TypeVar("V")

OFFSET = 2166136261
PRIME = 16777619
MASK = 0xFFFFFFFF


def fnv1a(text: str, start: int = OFFSET) -> int:
    """Return the 32-bit FNV-1a hash of the text's UTF-8 bytes, continuing from `start`."""
    data = text.encode("utf-8", errors="surrogatepass")
    prime, mask, value = PRIME, MASK, start
    rest = iter(data)
    if len(data) & 1:
        value = (value ^ next(rest)) * prime & mask
    for byte in rest:
        value = ((value ^ byte) * prime ^ next(rest)) * prime & mask
    return value


_LANES = 128
_ONES = sum(1 << 64 * lane for lane in range(_LANES))
_STARTS = sum(lane << 64 * lane for lane in range(_LANES))
_MASKS = _ONES * MASK
_TABLES_PER_CALL = 4
_TABLE_COST = 8
_SHORT = 3


class _Effect(NamedTuple):
    """Effect of a piece on a hash: the factor of its upper part, and the result for each value of the lowest seven
    bits."""

    factor: int
    results: memoryview


def _compute_effect(piece: str) -> _Effect:
    """Compute all 128 starts at once, each in 64 bits of one long integer: a lane never grows beyond 57 bits."""
    lanes = _STARTS
    for byte in piece.encode():
        lanes = ((lanes ^ (_ONES * byte)) * PRIME) & _MASKS
    table = memoryview(lanes.to_bytes(_LANES * 8, "little")).cast("Q")
    return _Effect(pow(PRIME, len(piece), MASK + 1), table)


class Checksum:
    """FNV-1a of texts that are made of recurring pieces; remembers up to `capacity` pieces, 1 KiB each.

    A table costs about `_TABLE_COST` times as much as hashing its piece, so a piece gets one at its `_TABLE_COST`-th
    use, and at most `_TABLES_PER_CALL` pieces get one in one call.
    """

    __slots__ = ("_budget", "_capacity", "_counts", "_effects")

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._budget = _TABLES_PER_CALL
        self._counts: dict[str, int] = {}
        self._effects: dict[str, _Effect] = {}

    def of(self, pieces: Iterable[str]) -> int:
        """Return FNV-1a of the joined pieces."""
        known = self._effects.get
        self._budget = _TABLES_PER_CALL
        value = OFFSET
        for piece in pieces:
            effect = known(piece)
            if effect is None and len(piece) > _SHORT and self.count_use(piece):
                effect = known(piece)
            if effect is None:
                value = fnv1a(piece, value)
            else:
                low = value & (_LANES - 1)
                value = ((value - low) * effect[0] + effect[1][low]) & MASK
        return value

    def count_use(self, piece: str) -> bool:
        """Count one use of a piece, and return whether it has a table."""
        if piece in self._effects:
            return True
        count = self._counts.pop(piece, 0) + 1
        # Only ASCII: a byte of seven bits changes the hash through its lowest seven bits alone.
        if count < _TABLE_COST or not self._budget or not piece.isascii():
            if len(self._counts) >= self._capacity:
                self._counts.clear()
            self._counts[piece] = count
            return False
        # Cleared as a whole, which is rare; pieces in use get their tables again soon.
        if len(self._effects) >= self._capacity:
            self._effects.clear()
        self._effects[piece] = _compute_effect(piece)
        self._budget -= 1
        return True


def dump_map(members: Mapping[str, V] | None, dump: Callable[[V], str]) -> str:
    """Return `map[key:value …]` with keys in byte order; `<nil>` for an absent map."""
    if members is None:
        return "<nil>"
    return f"map[{' '.join(f'{key}:{dump(members[key])}' for key in sorted(members))}]"


def dump_list(items: Iterable[V] | None, dump: Callable[[V], str] = str) -> str:
    """Return `[item …]`; `<nil>` for an absent list."""
    return "<nil>" if items is None else f"[{' '.join(map(dump, items))}]"


# Members of maps, remembered between two writings: most pods and NUMA nodes did not change


class Member(NamedTuple):
    """A member of a map: the value it was made from, its JSON, and its part of the text under the checksum. That part
    begins with the blank before the member. It is cut into pieces, so that recurring text is a piece of its own."""

    source: Any
    json: str
    dump: str
    pieces: tuple[str, ...]


def member(source: Any, json: str, *pieces: str) -> Member:
    """Return a member made of these pieces."""
    return Member(source, json, "".join(pieces), pieces)


def renew(known: Mapping[K, Member], sources: Mapping[K, Any], make: Callable[[K, Any], Member]) -> dict[K, Member]:
    """Return the members for `sources` in the order of their keys; a member whose source is unchanged is taken from
    `known`."""
    members = {}
    for key in sorted(sources):
        source, old = sources[key], known.get(key)
        if old is None or (old.source is not source and old.source != source):
            old = make(key, source)
        members[key] = old
    return members


def json_of(members: Iterable[Member]) -> str:
    """Return the JSON object of the members; empty without members, as the files omit such an object."""
    text = ",".join([one.json for one in members])
    return f"{{{text}}}" if text else ""


def add_dump(text: list[str], members: Iterable[Member], checksum: Checksum, *, opening: str = "map[") -> None:
    """Append the dump of a map (or of what `opening` opens) to `text`, in pieces for `checksum`."""
    text.append(opening)
    first = len(text)
    for one in members:
        if len(one.pieces) > 1 and checksum.count_use(one.dump):
            text.append(one.dump)
        else:
            text += one.pieces
    if len(text) > first:
        # Every member begins with the blank that separates it from the one before; the first has none before it.
        text[first] = text[first][1:]
    text.append("]")


# Content that stands in a file as a string, under a checksum of that string

_ENVELOPE = GoStruct(
    "state.DataCheckpoint",
    {"data": GoString(), "checksum": GoInt("checksum.Checksum"), "dataChecksum": GoInt("checksum.Checksum")},
)


class DataCheckpoint(msgspec.Struct):
    """The envelope of a file as read. `data_checksum` is 0 in the transitional form, which uses `checksum`."""

    data: str
    checksum: int = 0
    data_checksum: int = 0

    @property
    def stored_checksum(self) -> int:
        """The checksum in the file that covers `data`."""
        return self.data_checksum or self.checksum


def is_data_file(data: bytes) -> bool:
    """Whether a CPU or memory state file carries its content as a string, or did until it was damaged. Raises
    `CheckpointError` for broken JSON."""
    value = parse(data)
    # The members beside the string are a whole file of an older version, but without what belongs to pods.
    return isinstance(value, Members) and any(key.lower() in ("data", "datachecksum") for key, _ in value)


def decode_data(data: bytes) -> DataCheckpoint:
    """Read the envelope without verifying the checksums. Raises `CheckpointError`."""
    fields = unmarshal(data, _ENVELOPE)
    return DataCheckpoint(*fields.values())


def data_checksum(data: str) -> int:
    """Return the `dataChecksum` that belongs to `data`."""
    return fnv1a(f"(string){data}")


def crc_checksum(data: str) -> int:
    """Return the checksum of a DRA Manager's file."""
    # The DRA Manager is the only one that uses CRC-32.
    return zlib.crc32(data.encode())
