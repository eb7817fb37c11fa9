"""What `verify` says about a state file."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["error", "warning", "note"]


class StateFinding(msgspec.Struct, frozen=True):
    """One thing to say about a file. `code` is stable, `path` names the member, `text` says what is there."""

    level: Level
    code: str
    path: str
    text: str
