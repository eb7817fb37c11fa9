"""Where the system and the sandboxes of pods may run while containers have CPUs of their own: on the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from podslice.core.guards.files import Guard, GuardedFile, SavedFile, bits_in
from podslice.core.values.cpuset import Bits, format_bits

UNITS: Final = ("system.slice", "user.slice", "init.scope")


def housekeeping_files(
    texts: Mapping[str, str], saved: Mapping[str, SavedFile], *, guard: Guard, housekeeping: Bits
) -> Iterator[GuardedFile]:
    """Sets of cgroups (`cpuset.cpus` by path) without CPUs that are not of `housekeeping`; one that allows everything
    says so by saying nothing."""
    for path, text in texts.items():
        known = saved.get(path)
        first = bits_in(text if known is None else known.before, "list")
        wanted = (first & housekeeping or housekeeping) if not first or first & ~housekeeping else 0
        yield GuardedFile(path, "list", text, guard=guard, wanted=format_bits(wanted) if wanted else None)
