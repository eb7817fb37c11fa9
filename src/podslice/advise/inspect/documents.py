"""The answer of `podslice inspect`."""

from __future__ import annotations

import msgspec

from podslice.advise.inspect.page import Page


class InspectionList(msgspec.Struct, frozen=True):
    """One page for each pod, in the order of the files."""

    items: tuple[Page, ...]
