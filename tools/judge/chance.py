"""Random choices with weights, and random notations for amounts and CPU lists."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, TypeVar

from podslice.values.cpuset import CPUSet

T = TypeVar("T")
Json = dict[str, Any]
MIB = 1 << 20
GIB = 1 << 30


def pick(r: Random, *weighted: tuple[float, T]) -> T:
    """Choose one of the values, each as likely as its weight."""
    return r.choices([value for _, value in weighted], [weight for weight, _ in weighted])[0]


def often(r: Random, probability: float) -> bool:
    """Return True with this probability."""
    return r.random() < probability


def cpu_list(cpus: Iterable[int]) -> str:
    """Format CPUs as the kernel does (`0-3,8`)."""
    return str(CPUSet(cpus))


def cpu_text(r: Random, milli: int) -> str:
    """Write an amount of CPU (millicores) in one of its notations."""
    if milli % 1000:
        return f"{milli}m"
    whole = milli // 1000
    return pick(r, (8, str(whole)), (1, f"{milli}m"), (0.3, f"{whole}.0"), (0.1, f"{whole}e0"))


def memory_text(r: Random, size: int) -> str:
    """Write an amount of bytes in one of the notations that stand for exactly that amount."""
    notations = [(1.0, str(size))]
    for shift, suffix, weight in ((30, "Gi", 12.0), (20, "Mi", 8.0), (10, "Ki", 0.5)):
        if size and size % (1 << shift) == 0:
            notations.append((weight, f"{size >> shift}{suffix}"))
    for power, suffix in ((9, "G"), (6, "M"), (3, "k"), (3, "e3")):
        if size and size % 10**power == 0:
            notations.append((1.0, f"{size // 10**power}{suffix}"))
    if size and size % (GIB // 2) == 0 and size % GIB:
        notations.append((0.5, f"{size / GIB}Gi"))
    return pick(r, *notations)
