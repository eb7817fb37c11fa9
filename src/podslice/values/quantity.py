"""Resource quantities exactly as Kubernetes parses, rounds, adds and prints them (pod-level-resources 1).

No library agrees with Kubernetes here: sub-nano values round up, some spellings are kept verbatim, and whether a
value converts to an integer depends on how it was written. A quantity is stored as an exact integer number of
billionths; the few behaviours that depend on the spelling are kept beside it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from podslice.values.errors import PodsliceError
from podslice.values.golang import INT64_MAX, INT64_MIN, wrap_int64

DECIMAL_SI = "DecimalSI"
BINARY_SI = "BinarySI"
DECIMAL_EXPONENT = "DecimalExponent"

_NANO = 10**9
_FORMAT_ERROR = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SUFFIX_ERROR = "unable to parse quantity's suffix"
_NUMERIC_ERROR = "unable to parse numeric part of quantity"
MAX_DIGITS = 1024
"""Longer amounts are refused, because big integers would take the time. 64 bits are 19 digits."""
_TOO_LONG = f"amounts of more than {MAX_DIGITS} digits are not read"
_POWERS: tuple[int, ...] = tuple(10**n for n in range(19))
_FITS = {scale: INT64_MAX * 10 ** (9 + scale) for scale in range(-9, 1)}
"""Largest number of billionths that a small quantity of each scale holds."""
_SMALLEST = INT64_MIN * _NANO
# Upstream scales up by these powers without a check for overflow; by all others it checks.
_UNCHECKED_SCALES = (1, 2, 3, 6, 9)
_HUGE = 10**60
_STEPS = (384, 96, 24, 3)
_GRAMMAR = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)\Z")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SMALL_BINARY_DIGITS = 15
_SMALL_DECIMAL_DIGITS = 18


_SHORT = 24
"""Longest text whose quantity is cached."""


class QuantityError(PodsliceError, ValueError):
    """Raised for text that is not a quantity (the message is upstream's), and for values that are not text."""


class Quantity:
    """An immutable quantity. Compares and hashes by numeric value.

    - `nano`: the value in billionths
    - `format`: DecimalSI, BinarySI or DecimalExponent
    - `scale`: the power of ten in which upstream's representation counts
    - `small`: whether that is upstream's 64-bit representation (pod-level-resources 1.1)
    - `text`: the spelling, where upstream keeps it

    `scale` and `small` only matter for conversions and overflow.
    """

    __slots__ = ("format", "nano", "scale", "small", "text")

    def __init__(
        self, nano: int, fmt: str = DECIMAL_SI, scale: int = 0, text: str | None = None, *, small: bool = True
    ) -> None:
        if not isinstance(nano, int):
            raise QuantityError(f"{str(nano)[:80]!r} is not a number of billionths; Quantity.parse reads text")
        self.nano = nano
        self.format = fmt
        self.scale = scale
        self.text = text
        self.small = small

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Read a quantity as Kubernetes does. Raises `QuantityError`. Short texts are cached, as the same few recur."""
        if not isinstance(text, str):
            raise QuantityError(f"{str(text)[:80]} is not text; Quantity.of takes whole numbers")
        return _parse_cached(text) if len(text) <= _SHORT else cls._parse(text)

    @classmethod
    def _parse(cls, text: str) -> Quantity:
        if not text:
            raise QuantityError(_FORMAT_ERROR)
        if len(text) > MAX_DIGITS:
            raise QuantityError(_TOO_LONG)
        match = _GRAMMAR.match(text)
        if match is None:
            raise QuantityError(_FORMAT_ERROR)
        sign, zeros, whole, fraction, suffix = match.groups()
        if not (whole or suffix) and fraction is None:
            return cls(0, DECIMAL_SI, 0, text if text == "0" else None)
        number = _Number(text, sign == "-", bool(zeros or whole or fraction), (whole or "0"), fraction or "")
        if suffix in _DECIMAL:
            return _from_decimal(number, _DECIMAL[suffix], DECIMAL_SI)
        if suffix in _BINARY:
            return _from_binary(number, _BINARY[suffix])
        exponent = _EXPONENT.match(suffix)
        if exponent is None or not INT64_MIN <= int(exponent[1]) <= INT64_MAX:
            raise QuantityError(_SUFFIX_ERROR)
        return _from_decimal(number, int(exponent[1]), DECIMAL_EXPONENT)

    @classmethod
    def of(cls, value: int, fmt: str = DECIMAL_SI) -> Quantity:
        """Return a whole number of units."""
        return cls(value * _NANO, fmt)

    @classmethod
    def milli(cls, value: int) -> Quantity:
        """Return a whole number of thousandths, e.g. millicores."""
        return cls(value * 10**6, DECIMAL_SI, -3)

    def value(self) -> int:
        """Return the value as an integer, rounded away from zero; beyond 64 bits it overflows as upstream does."""
        return self._round_to(0)

    def milli_value(self) -> int:
        """Return the value in thousandths, rounded away from zero; beyond 64 bits it overflows as upstream does."""
        return self._round_to(-3)

    def _round_to(self, exponent: int) -> int:
        """Return the value in units of `10**exponent`, rounded away from zero."""
        quotient, rest = divmod(abs(self.nano), _POWERS[exponent + 9])
        # The usual case, without upstream's paths for values that do not fit.
        if quotient < INT64_MAX and (self.small or self.nano >= 0):
            quotient += rest != 0
            return quotient if self.nano >= 0 else -quotient
        return _overflow(_unscale(self.nano, self.scale), self.scale - exponent, small=self.small)

    def as_int64(self) -> int | None:
        """Return the value as upstream's fast integer conversion does, None where that fails (pod-level-resources
        1.4)."""
        if not self.small or self.scale < 0:
            return None
        value = self.nano // _NANO
        return value if INT64_MIN <= value <= INT64_MAX else None

    def overflows(self, exponent: int = 0) -> bool:
        """Whether the amount, counted in `10**exponent`, exceeds 64 bits, so that `value` or `milli_value` returns
        another number."""
        return abs(self.nano) > INT64_MAX * _POWERS[exponent + 9]

    def is_zero(self) -> bool:
        """Whether the amount is 0."""
        return self.nano == 0

    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return (self.nano > 0) - (self.nano < 0)

    def add(self, other: Quantity) -> Quantity:
        """Return the sum; the format is that of the first non-zero operand."""
        return self._combine(self.nano + other.nano, other)

    def sub(self, other: Quantity) -> Quantity:
        """Return the difference; the format is that of the first non-zero operand."""
        # The smallest 64-bit integer has no positive counterpart: Go negates it to itself, so upstream adds it here.
        taken = -other.nano if other.nano == _SMALLEST and other.small else other.nano
        return self._combine(self.nano - taken, other)

    def _combine(self, nano: int, other: Quantity) -> Quantity:
        """Return a sum or difference of `nano` billionths, in the representation upstream would leave it in."""
        same = self.scale == other.scale <= 0 and self.small and other.small
        if same and self.nano and -_FITS[self.scale] <= nano <= _FITS[self.scale]:
            return Quantity(nano, self.format, self.scale)
        fmt = self.format if self.nano else other.format
        scale = min(self.scale, other.scale)
        if self.small and other.small:
            if not self.nano:
                return Quantity(nano, fmt, other.scale)
            if not other.nano:
                return Quantity(nano, fmt, self.scale)
            if INT64_MIN <= _unscale(nano, scale) <= INT64_MAX:
                return Quantity(nano, fmt, scale)
        return Quantity(nano, fmt, scale, small=False)

    def round_up_milli(self) -> Quantity:
        """Return the amount rounded away from zero to a whole thousandth; `self` when it is one already
        (pod-level-resources 3)."""
        quotient, rest = divmod(abs(self.nano), 10**6)
        if not rest:
            return self
        nano = (quotient + 1) * 10**6
        return Quantity(-nano if self.nano < 0 else nano, self.format, -3, small=self.small)

    def canonical(self) -> str:
        """Return the canonical text, ignoring how the quantity was written (pod-level-resources 1.3)."""
        if self.nano == 0:
            return "0"
        if self.nano == _SMALLEST and self.small:
            return str(INT64_MIN)  # its magnitude is no 64-bit integer, so upstream finds no power in it
        if self.format == BINARY_SI and abs(self.nano) >= 1024 * _NANO and self.nano % _NANO == 0:
            number, power = self.nano // _NANO, 0
            while number % 1024 == 0 and power < 6:
                number //= 1024
                power += 1
            return f"{number}{_BINARY_SUFFIX[power]}"
        mantissa, exponent = self.nano, -9
        # Large steps first: dividing a number of a thousand digits by 1000 over and over takes quadratic time.
        for step in _STEPS if abs(mantissa) > _HUGE else (3,):
            power = _ten(step)
            while mantissa % power == 0:
                mantissa //= power
                exponent += step
        if self.format == DECIMAL_EXPONENT:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_DECIMAL_SUFFIX.get(exponent, '')}"

    def decimal_text(self) -> str:
        """Return plain decimal notation with the number of decimals the representation carries."""
        if self.scale >= 0:
            return str(self.nano // _NANO)
        decimals = -self.scale
        number = str(abs(_unscale(self.nano, self.scale))).rjust(decimals + 1, "0")
        return f"{'-' if self.nano < 0 else ''}{number[:-decimals]}.{number[-decimals:]}"

    def __str__(self) -> str:
        return self.text if self.text is not None else self.canonical()

    def __repr__(self) -> str:
        return f"Quantity.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash((Quantity, self.nano))

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.nano, self.format, self.scale, self.text, self.small)


ZERO = Quantity(0)


def _rebuild(nano: int, fmt: str, scale: int, text: str | None, small: bool) -> Quantity:  # noqa: FBT001
    return Quantity(nano, fmt, scale, text, small=small)


class _Number(NamedTuple):
    text: str
    negative: bool
    has_digits: bool
    whole: str
    fraction: str


def _ten(power: int) -> int:
    """Return 10 to a non-negative power; typed as an int, which `**` is not."""
    return int(10**power)


def _unscale(nano: int, scale: int) -> int:
    """Return billionths as a whole number of `10**scale`."""
    return nano // _ten(9 + scale) if scale >= -9 else nano * _ten(-9 - scale)


def _overflow(unscaled: int, shift: int, *, small: bool) -> int:
    """Return upstream's integer conversion of `unscaled * 10**shift` where it does not fit, or is big and negative:
    some paths wrap, some give 0, and negative big values are truncated and then raised by one."""
    if shift >= 0:
        if not small:
            return wrap_int64(unscaled * _ten(shift))
        value = unscaled * _ten(shift)
        return wrap_int64(value) if shift in _UNCHECKED_SCALES or INT64_MIN <= value <= INT64_MAX else 0
    if unscaled < INT64_MAX:
        wrapped = wrap_int64(unscaled)
        quotient, rest = divmod(abs(wrapped), _ten(-shift))
        return (quotient if wrapped >= 0 else -quotient) + (rest != 0)
    return wrap_int64(-(-unscaled // _ten(-shift)))


def _from_decimal(number: _Number, exponent: int, fmt: str) -> Quantity:
    """Return a number with a decimal suffix or exponent."""
    digits = number.whole + number.fraction
    scale = exponent - len(number.fraction)
    if not digits.strip("0") and scale >= -9:
        return Quantity(0, fmt, min(scale, 0))
    # `1e999999999` is a short text whose value would fill the memory.
    if scale > MAX_DIGITS:
        raise QuantityError(_TOO_LONG)
    if len(digits) <= _SMALL_DECIMAL_DIGITS and scale >= -9:
        nano = int(digits) * (_POWERS[9 + scale] if scale <= 9 else 10 ** (9 + scale))
        # Upstream keeps these spellings, canonical or not: `0500m` prints as typed (pod-level-resources 1.3).
        keep = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        return Quantity(-nano if number.negative else nano, fmt, scale, number.text if keep else None)
    if not number.has_digits:
        raise QuantityError(_NUMERIC_ERROR)
    nano = _round_up_to_nano(int(digits), scale)
    if not nano:
        return Quantity(0, fmt, max(scale, -MAX_DIGITS), small=False)
    return Quantity(-nano if number.negative else nano, fmt, -9, small=False)


def _round_up_to_nano(unscaled: int, scale: int) -> int:
    """Return `unscaled * 10**scale` in billionths, rounded up."""
    shift = scale + 9
    if shift >= 0:
        return unscaled * _ten(shift)
    # All digits are below a billionth. Any non-zero rest rounds up, and the division by a huge power is avoided.
    if -shift > len(str(unscaled)):
        return 1 if unscaled else 0
    return -(-unscaled // _ten(-shift))


def _from_binary(number: _Number, power: int) -> Quantity:
    """Return a number with a binary suffix of `2**power`."""
    digits = number.whole
    if not number.fraction and len(digits) + power * 3 // 10 + 1 <= _SMALL_BINARY_DIGITS:
        unscaled = int(digits)
        nano = (unscaled << power) * _NANO
        keep = unscaled % 8 != 0
        return Quantity(-nano if number.negative else nano, BINARY_SI, 0, number.text if keep else None)
    if not number.has_digits:
        raise QuantityError(_NUMERIC_ERROR)
    nano = -(-((int(digits + number.fraction) << power) * _NANO) // 10 ** len(number.fraction))
    scale = -9
    # Upstream caps binary amounts at the largest 64-bit integer; decimal ones are not capped.
    if nano > INT64_MAX * _NANO:
        nano, scale = INT64_MAX * _NANO, 0
    fmt = DECIMAL_SI if 0 < nano < _NANO else BINARY_SI
    return Quantity(
        -nano if number.negative else nano, fmt, scale if nano else -min(len(number.fraction), 9), small=False
    )


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def bytes_text(amount: int) -> str:
    """Return an amount of bytes as a manifest would write it: `8Gi`."""
    return Quantity.of(amount, BINARY_SI).canonical()


def hugepage_resource(page_size_ki: int) -> str:
    """Return the resource name of a huge page size in KiB, e.g. `hugepages-2Mi`."""
    return f"hugepages-{Quantity.of(page_size_ki * 1024, BINARY_SI).canonical()}"


def cpus_text(milli: int) -> str:
    """Return millicores in words: `2 CPUs`, `1500m CPUs`."""
    return f"{milli // 1000} CPUs" if milli % 1000 == 0 else f"{milli}m CPUs"


# The same few amounts recur in all pods of a cluster or fleet.
@lru_cache(maxsize=4096)
def _parse_cached(text: str) -> Quantity:
    return Quantity._parse(text)
