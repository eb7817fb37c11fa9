"""Tolerance for changes of a machine's memory over a reboot (KEP-6232).

The kernel is loaded at another address after each start, and frees a little more or less of what it used while
starting, so every NUMA node's MemTotal differs a little from boot to boot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

FREED_DIFFERENTLY = 64 << 20
"""Bytes that all NUMA nodes together may have more or less than before."""
_LEGACY_SHARE = 100


class DriftTolerance(NamedTuple):
    """`auto` needs the span of the kernel's image, `bytes` is an explicit amount."""

    kind: Literal["auto", "off", "legacy", "bytes"]
    bytes: int = 0


LEGACY = DriftTolerance("legacy")
OFF = DriftTolerance("off")
AUTO = DriftTolerance("auto")
_WORDS: dict[str, DriftTolerance] = {one.kind: one for one in (AUTO, OFF, LEGACY)}


def parse_drift_tolerance(text: str) -> DriftTolerance:
    """Parse a tolerance of a configuration. Raises `InputError`."""
    known = _WORDS.get(text)
    if known is not None:
        return known
    try:
        amount = Quantity.parse(text)
    except QuantityError as error:
        raise InputError(f"{text!r}: {error}", remedy="auto, off, legacy or an amount such as 128Mi") from None
    if amount.sign() < 0:
        raise InputError(f"{text!r} is negative", remedy="auto, off, legacy or an amount such as 128Mi")
    return DriftTolerance("bytes", amount.value())


def resolve(tolerance: DriftTolerance, kernel_image: int | None) -> DriftTolerance:
    """Return the tolerance with `auto` replaced by an amount, from the span of the kernel's image in bytes; where that
    cannot be read nothing may differ."""
    if tolerance.kind != "auto":
        return tolerance
    return OFF if kernel_image is None else DriftTolerance("bytes", kernel_image + FREED_DIFFERENTLY)


def kernel_span(iomem: str) -> int | None:
    """Return the bytes from the start of `Kernel code` to the end of `Kernel bss` in /proc/iomem; None where they are
    not given: without CAP_SYS_ADMIN all addresses are 0."""
    found: dict[str, tuple[int, int]] = {}
    for line in iomem.splitlines():
        place, _, name = line.strip().partition(" : ")
        low, dash, high = place.partition("-")
        if dash and name in ("Kernel code", "Kernel bss"):
            try:
                found[name] = int(low, 16), int(high, 16)
            except ValueError:
                return None
    if len(found) < 2:
        return None
    # Code is the first and bss the last part of the kernel's image.
    span = found["Kernel bss"][1] - found["Kernel code"][0] + 1
    return span if span > 1 else None


def is_drift(before: Mapping[int, int], after: Mapping[int, int], tolerance: DriftTolerance) -> bool:
    """Whether the bytes of the same NUMA nodes differ by no more than a reboot explains."""
    if before.keys() != after.keys():
        return False
    moved = {node: after[node] - before[node] for node in before}
    if tolerance.kind == "legacy":
        return all(
            abs(change) <= max(before[node] // _LEGACY_SHARE, FREED_DIFFERENTLY) for node, change in moved.items()
        )
    if tolerance.kind != "bytes":
        return not any(moved.values())
    total = sum(abs(change) for change in moved.values())
    # Memory may move between nodes with the kernel's image, but hardly any may come or go altogether.
    return total <= tolerance.bytes and abs(sum(moved.values())) <= FREED_DIFFERENTLY
