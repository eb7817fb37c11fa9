"""A finding of `podslice state verify`."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["error", "warning", "note"]


class StateFinding(msgspec.Struct, frozen=True):
    """A remark on a file. `code` is stable, `path` names the member, `text` describes it."""

    level: Level
    code: str
    path: str
    text: str
