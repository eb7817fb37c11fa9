"""CPU sets of system services and pod sandboxes while containers have CPUs of their own: the other CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from podslice.node.checkpoints.guard_files import Guard, GuardedFile, SavedFile, bits_in
from podslice.values.cpuset import Bits, format_bits

UNITS: Final = ("system.slice", "user.slice", "init.scope")
BALANCER: Final = "irqbalance"


def housekeeping_files(
    texts: Mapping[str, str], saved: Mapping[str, SavedFile], *, guard: Guard, free: Bits, housekeeping: Bits
) -> Iterator[GuardedFile]:
    """Yield the `cpuset.cpus` files (`texts`: by path) with sets that have only `free` CPUs.

    A cgroup that would have none left, or allows all CPUs, gets those for `housekeeping`.
    """
    for path, text in texts.items():
        # The old value counts, not the text: CPUs come back to a cgroup once they are free again. An empty file allows
        # all.
        known = saved.get(path)
        first = bits_in(text if known is None else known.before, "list")
        # A cgroup that has no guarded CPU needs no write, and keeps a set that its owner chose.
        wanted = (first & free or housekeeping) if not first or first & ~free else 0
        yield GuardedFile(path, "list", text, guard=guard, wanted=format_bits(wanted) if wanted else None)


def balancer_advice(environment: Mapping[str, str], guarded: Bits) -> str:
    """Return what to do about an irqbalance with this environment; empty where it leaves guarded CPUs alone."""
    # Older versions read a mask, newer ones a list.
    banned = bits_in(environment.get("IRQBALANCE_BANNED_CPULIST", ""), "list")
    banned |= bits_in(environment.get("IRQBALANCE_BANNED_CPUS", ""), "mask")
    if not guarded & ~banned:
        return ""
    wanted = format_bits(guarded | banned)
    return f"runs and moves interrupts back: stop it, or start it with IRQBALANCE_BANNED_CPULIST={wanted}"
