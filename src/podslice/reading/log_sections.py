"""`kubectl cluster-info dump` on one stream: lists of objects, and between them the logs of containers.

The logs stand between lines of their own. They may hold anything, also text that looks like objects, and are taken out
before the rest is read.
"""

from __future__ import annotations

import re

_START = re.compile(r"^==== START logs for container ([^\n]{1,600}) ====$", re.MULTILINE)
_MARK = "==== START logs for container "


def drop_log_sections(text: str) -> str:
    """Return a text without its sections of logs. Empty lines take their place, so that the others keep their
    numbers."""
    if _MARK not in text:
        return text
    kept: list[str] = []
    place = 0
    while (start := _START.search(text, place)) is not None:
        # A log need not end with a line: the end mark may follow its last words.
        mark = f"==== END logs for container {start[1]} ===="
        end = text.find(mark, start.end())
        end = len(text) if end < 0 else end + len(mark)
        kept += [text[place : start.start()], "\n" * text.count("\n", start.start(), end)]
        place = end
    kept.append(text[place:])
    return "".join(kept)
