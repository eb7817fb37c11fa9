"""Sizes in the machine file: quantities of memory, and pools of huge pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.machine.model import HugePages
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError


def parse_bytes(value: object, path: str) -> int:
    """Return the bytes of a quantity such as `64Gi`. Raises `InputError`."""
    # `true` of a YAML file is an int in Python, too.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise InputError(f"{str(value)[:40]!r} is not a size", path=path, remedy="write a size such as 64Gi")
    try:
        quantity = Quantity.parse(value)
    except QuantityError as error:
        problem = f"{abbreviate(value)} is not a size: {error}"
        raise InputError(problem, path=path, remedy="write a size such as 64Gi") from None
    if quantity.overflows():
        raise InputError(f"{abbreviate(value)} is beyond 64 bits", path=path, remedy="write a size such as 64Gi")
    return quantity.value()


def parse_pools(pages: Mapping[Any, Any], path: str) -> Iterator[HugePages]:
    """Yield the pools of `{2Mi: 512}`. Raises `InputError` with the path of the size at fault."""
    for size, count in pages.items():
        where = f"{path}[{size}]"
        in_bytes = parse_bytes(str(size), where)
        # The kernel names its pools in KiB (hugepages-2048kB), so no other size exists.
        if in_bytes < 1024 or in_bytes % 1024:
            raise InputError(f"{size} is not a page size", path=where, remedy="write whole KiB, such as 2Mi or 1Gi")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"{count!r} is not a number of pages", path=where, remedy="write a whole number")
        yield HugePages(in_bytes // 1024, count)
