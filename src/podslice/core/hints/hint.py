"""Topology hints: which sets of NUMA nodes could satisfy one resource request (spec cpu-topology 7, 9.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from podslice.core.values.cpuset import Bits

if TYPE_CHECKING:
    from podslice.core.hints.hintset import HintSet


class Hint(NamedTuple):
    """A NUMA mask (bit *i* = node *i*), None for "no affinity", and whether this is as narrow as the machine allows."""

    mask: Bits | None
    preferred: bool


ResourceHints: TypeAlias = "HintSet | list[Hint] | None"
"""None: no preference. Empty list: cannot be satisfied. Otherwise the sets that would do, described or listed."""

ProviderHints: TypeAlias = "dict[str, ResourceHints] | None"
"""A provider's answer by resource name; None or empty: no preference about anything."""

NO_AFFINITY = Hint(None, False)
