"""CPU sets in the Linux CPU-list format (cpu-topology 1.1).

Inside the core a set of CPUs is a plain `int` with bit *i* set for CPU *i* (alias `Bits`): union, intersection and
counting are single machine-speed operations at every size. `CPUSet` wraps one for the public API. The same integers
serve as NUMA node masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from podslice.values.errors import PodsliceError
from podslice.values.golang import GoSyntaxError, atoi, quote

Bits: TypeAlias = int
"""A set of small non-negative integers: bit *i* is set when *i* is a member."""

MAX_CPU_ID = (1 << 20) - 1
"""Largest CPU id a `CPUSet` holds; Linux supports at most 8192 CPUs."""


_FEW, _LONG, _SPARSE = 64, 4096, 16
"""More than `_FEW` ranges, or `_LONG` bits with more than `_SPARSE` members, are handled as text: changing a big
integer bit by bit takes quadratic time."""
_RUN = re.compile("1+")
_FEW_DIGITS = 9


class CPUSetError(PodsliceError, ValueError):
    """Raised for text that is not a CPU list (prints as upstream's error) and for values that are no CPU ids. `problem`
    says the same in our words."""

    def __init__(self, message: str, problem: str = "") -> None:
        self.problem = problem or message
        super().__init__(message)


def _abbreviate(piece: str) -> str:
    return repr(piece if len(piece) <= 80 else f"{piece[:80]}…")


def parse_ranges(text: str) -> list[tuple[int, int]]:
    """Return the inclusive ranges of a CPU list, in the order written. Raises `CPUSetError`."""
    if not text:
        return []
    ranges = []
    for piece in text.split(","):
        first, dash, second = piece.partition("-")
        try:
            low = _parse_number(first)
            high = _parse_number(second) if dash else low
        except GoSyntaxError as error:
            raise CPUSetError(str(error), f"{_abbreviate(piece)} is not a CPU, nor a range of CPUs") from None
        if low > high:
            raise CPUSetError(
                f"invalid range {quote(piece)} ({low} > {high})", f"{_abbreviate(piece)} ends before it begins"
            )
        ranges.append((low, high))
    return ranges


def _parse_number(text: str) -> int:
    """Parse a number as Go does. Nearly always it is a few digits, which need no `atoi`."""
    return int(text) if len(text) <= _FEW_DIGITS and text.isascii() and text.isdigit() else atoi(text)


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges sorted, with overlapping and adjacent ones joined."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def format_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Return the canonical text of merged ranges."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def parse_bits(text: str) -> Bits:
    """Return the CPUs of a CPU list as bits. Raises `CPUSetError`, also for ids above `MAX_CPU_ID`."""
    ranges = parse_ranges(text)
    for _, high in ranges:
        if high > MAX_CPU_ID:
            raise CPUSetError(f"CPU id {high} in {quote(text)} is larger than {MAX_CPU_ID}, the largest supported")
    if len(ranges) > _FEW:
        return _bits_of_many(merge_ranges(ranges))
    bits = 0
    for low, high in ranges:
        # The difference of two powers of two sets all bits of a range at once.
        bits |= (1 << high + 1) - (1 << low)
    return bits


def parse_bits_or_empty(text: str) -> Bits:
    """Return the CPUs of a CPU list as bits, or no CPUs for text that is not a CPU list."""
    try:
        return parse_bits(text)
    except CPUSetError:
        return 0


def _bits_of_many(ranges: list[tuple[int, int]]) -> Bits:
    """Return merged ranges as bits, in time linear in the largest id; setting bits one by one would be quadratic."""
    digits = bytearray(b"0" * (ranges[-1][1] + 1))
    for low, high in ranges:
        digits[low : high + 1] = b"1" * (high + 1 - low)
    return int(digits[::-1], 2)


def ranges_of(bits: Bits) -> list[tuple[int, int]]:
    """Return the maximal runs of consecutive members."""
    if bits.bit_length() > _LONG:
        return [(run.start(), run.end() - 1) for run in _RUN.finditer(f"{bits:b}"[::-1])]
    ranges = []
    offset = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        offset += gap
        run = (~bits & (bits + 1)).bit_length() - 1
        ranges.append((offset, offset + run - 1))
        bits >>= run
        offset += run
    return ranges


def format_bits(bits: Bits) -> str:
    """Return the canonical CPU list of `bits`."""
    if bits.bit_length() > _LONG:
        return format_ranges(ranges_of(bits))
    pieces = []
    offset = 0
    while bits:
        gap = (bits & -bits).bit_length() - 1
        bits >>= gap
        offset += gap
        run = (~bits & (bits + 1)).bit_length() - 1
        pieces.append(str(offset) if run == 1 else f"{offset}-{offset + run - 1}")
        bits >>= run
        offset += run
    return ",".join(pieces)


def bits_of(ids: Iterable[int]) -> Bits:
    """Return bits with every id of `ids` set."""
    bits = 0
    for i in ids:
        bits |= 1 << i
    return bits


def union(sets: Iterable[Bits]) -> Bits:
    """Return the members of any of the sets."""
    bits = 0
    for one in sets:
        bits |= one
    return bits


def lowest_bits(bits: Bits, count: int) -> Bits:
    """Return the `count` lowest members, or all of them where there are fewer."""
    if bits.bit_count() <= count:
        return bits
    rest = bits
    for _ in range(count):
        rest &= rest - 1
    return bits ^ rest


def iter_bits(bits: Bits) -> Iterator[int]:
    """Yield the members in ascending order."""
    if bits.bit_length() > _LONG and bits.bit_count() > _SPARSE:
        digits = f"{bits:b}"[::-1]
        place = digits.find("1")
        while place >= 0:
            yield place
            place = digits.find("1", place + 1)
        return
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def ids_of(bits: Bits) -> list[int]:
    """Return the members in ascending order. A single member, the rule for NUMA masks, takes no loop."""
    if bits & (bits - 1):
        return list(iter_bits(bits))
    return [bits.bit_length() - 1] if bits else []


def _bits_of_ids(ids: Iterable[int]) -> Bits:
    """Return ids given by a caller of the library as bits. Raises `CPUSetError`."""
    # A text is an iterable too: its digits would pass for CPU ids.
    if isinstance(ids, str):
        raise CPUSetError(f"{_abbreviate(ids)} is text; CPUSet.parse reads it")
    try:
        # An iterator can be read once only, and is checked before it is used.
        known = tuple(ids)
        if max(known, default=0) <= MAX_CPU_ID:
            return bits_of(known)
    except (TypeError, ValueError):
        pass
    raise CPUSetError(
        f"{_abbreviate(str(ids))} is not a collection of CPU ids, which are numbers from 0 to {MAX_CPU_ID}"
    )


class CPUSet:
    """An immutable set of CPU ids. Prints as Linux CPU-list text (`0-3,8`); compares and hashes by content. Raises
    `CPUSetError` for values that are no CPU ids."""

    __slots__ = ("bits",)
    bits: Bits

    def __init__(self, ids: Iterable[int] = ()) -> None:
        # The class refuses assignments, its own included.
        object.__setattr__(self, "bits", _bits_of_ids(ids))

    @classmethod
    def from_bits(cls, bits: Bits) -> CPUSet:
        """Return the set whose members are the bits set in `bits`."""
        new = object.__new__(cls)
        object.__setattr__(new, "bits", bits)
        return new

    @classmethod
    def parse(cls, text: str) -> CPUSet:
        """Return the set of CPU-list text (`0-3,8`). Raises `CPUSetError`."""
        return cls.from_bits(parse_bits(text))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("CPUSet is immutable")

    def __str__(self) -> str:
        return format_bits(self.bits)

    def __repr__(self) -> str:
        return f"CPUSet.parse({str(self)!r})"

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __iter__(self) -> Iterator[int]:
        return iter_bits(self.bits)

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and self.bits >> cpu & 1 == 1

    def __eq__(self, other: object) -> bool:
        return self.bits == other.bits if isinstance(other, CPUSet) else NotImplemented

    def __hash__(self) -> int:
        return hash((CPUSet, self.bits))

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet.from_bits(self.bits | other.bits)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet.from_bits(self.bits & other.bits)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet.from_bits(self.bits & ~other.bits)

    def __le__(self, other: CPUSet) -> bool:
        return self.bits & ~other.bits == 0

    def __reduce__(self) -> tuple[object, tuple[Bits]]:
        return CPUSet.from_bits, (self.bits,)
