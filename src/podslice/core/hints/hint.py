"""Topology hints: which sets of NUMA nodes could satisfy one resource request (cpu-topology 7, 9.3)."""

from __future__ import annotations

from typing import NamedTuple

from podslice.core.values.cpuset import Bits


class Hint(NamedTuple):
    """A NUMA mask (bit *i* = node *i*), None for "no affinity", and whether this is as narrow as the machine allows."""

    mask: Bits | None
    preferred: bool


NO_AFFINITY = Hint(None, False)
