"""Known bugs of container runtimes that an operator should know of, by name and version."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
Version = tuple[int, int, int]


class RuntimeBug(NamedTuple):
    """A bug of all versions of `runtime` from `since` up to a fix.

    `fixed`: the first good version of each release that got the fix late; releases after those were never affected.
    """

    runtime: str
    since: Version
    fixed: tuple[Version, ...]
    what: str

    def concerns(self, runtime: str, version: Version) -> bool:
        """Return whether this version has the bug."""
        # Releases without an entry are older than the first fix, or newer and have it from the start.
        good = next((good for good in self.fixed if good[:2] == version[:2]), self.fixed[0])
        return runtime == self.runtime and self.since <= version < good


KNOWN_BUGS = (
    RuntimeBug(
        "containerd",
        (2, 0, 0),
        ((2, 2, 6), (2, 3, 3)),
        "a sandbox that fails while it starts leaves its shim and pause process behind, and containerd may not start"
        " again (issues 13355, 13609); update to 2.2.6, 2.3.3 or newer",
    ),
    RuntimeBug(
        "containerd",
        (1, 7, 0),
        ((1, 7, 16),),
        "a plugin that registers can hang the runtime (issue 10085); update to 1.7.16 or newer",
    ),
    RuntimeBug(
        "containerd",
        (1, 7, 0),
        ((1, 7, 26),),
        "a pod that starts while a plugin registers can be missed (pull request 11326); update to 1.7.26 or newer",
    ),
)


def known_bugs_of(name: str, version: str) -> list[str]:
    """Return one line for each known bug of the runtime; none where its version cannot be parsed."""
    match = _VERSION.match(version)
    if match is None:
        return []
    found: Version = (int(match[1]), int(match[2]), int(match[3]))
    return [f"{name} {version}: {bug.what}" for bug in KNOWN_BUGS if bug.concerns(name, found)]
