"""Select devices for a container: the ids, in order of preference (memory-device 2.8, 2.9).

Devices are bits. Where upstream takes any subset of a class, this takes the lowest ids in byte order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podslice.node.devices.hints import Coverage
from podslice.values.cpuset import Bits, bits_of, iter_bits
from podslice.values.errors import AdmissionError, RefusalKind

Prefer = Callable[[str, Bits, Bits, int], "Bits | None"]
"""Ask the plugin of a resource, by (resource, available, must include, how many), for the devices it prefers; None for
no preference."""
_UNAVAILABLE = RefusalKind(
    "devices-unavailable",
    "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}",
)


class Selection:
    """Devices taken for one request; `taken` is complete also after an error, since upstream marks them as in use.

    `ids` names the devices by bit position.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self.taken: Bits = 0
        self._ids = ids

    def run(
        self,
        resource: str,
        needed: int,
        *,
        size: int,
        reusable: Bits,
        available: Bits,
        coverage: Coverage,
        mask: Bits | None,
        prefer: Prefer,
    ) -> None:
        """Take `needed` devices (memory-device 2.8, steps 6 to 11): reusable ones first, then by affinity: those on its
        NUMA nodes, on others, on none (memory-device 2.9).

        `size` is the container's whole request, which is what the plugin is asked for. Raises `AdmissionError`.
        """
        if reusable:
            needed -= self._take(reusable, needed)
        if not needed:
            return
        available &= ~self.taken
        if available.bit_count() < needed:
            raise AdmissionError(_UNAVAILABLE, resource=resource, requested=needed, available=available.bit_count())
        placed = 0 if mask is None else coverage.placed
        aligned = available & coverage.reach(mask) if mask is not None and placed else 0
        choices: tuple[Bits, ...]
        # The plugin may choose only where there is a choice: among more aligned devices than needed, or among the
        # others once all aligned ones are taken.
        if needed < aligned.bit_count():
            offered, choices = aligned, (aligned,)
        else:
            needed -= self._take(aligned, needed)
            if not needed:
                return
            offered, choices = available, (available & placed & ~aligned, available & ~placed)
        preferred = prefer(resource, offered | self.taken, self.taken, size) or 0
        for choice in (preferred & offered, *choices):
            if choice and needed:
                needed -= self._take(choice, needed)

    def _take(self, devices: Bits, most: int) -> int:
        chosen = lowest(self._ids, devices & ~self.taken, most)
        self.taken |= chosen
        return chosen.bit_count()


def lowest(ids: Sequence[str], devices: Bits, most: int) -> Bits:
    """Return at most `most` of `devices`, those with the lowest ids in byte order."""
    if devices.bit_count() <= most:
        return devices
    return bits_of(sorted(iter_bits(devices), key=ids.__getitem__)[:most])
