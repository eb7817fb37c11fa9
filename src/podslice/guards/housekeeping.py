"""Where the system and the sandboxes of pods may run while containers have CPUs of their own: on the others."""

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
    """Sets of cgroups (`cpuset.cpus` by path) without CPUs that are not `free`; one that has no other, or allows
    everything, which it says by saying nothing, goes to those for `housekeeping`."""
    for path, text in texts.items():
        known = saved.get(path)
        first = bits_in(text if known is None else known.before, "list")
        wanted = (first & free or housekeeping) if not first or first & ~free else 0
        yield GuardedFile(path, "list", text, guard=guard, wanted=format_bits(wanted) if wanted else None)


def balancer_advice(environment: Mapping[str, str], guarded: Bits) -> str:
    """What to do about an irqbalance that runs with this environment; empty where it leaves guarded CPUs alone. It
    knows a list of CPUs, and in older versions a mask."""
    banned = bits_in(environment.get("IRQBALANCE_BANNED_CPULIST", ""), "list")
    banned |= bits_in(environment.get("IRQBALANCE_BANNED_CPUS", ""), "mask")
    if not guarded & ~banned:
        return ""
    wanted = format_bits(guarded | banned)
    return f"runs and moves interrupts back: stop it, or start it with IRQBALANCE_BANNED_CPULIST={wanted}"
