"""The table of known releases, and the release that a version names."""

from __future__ import annotations

import re

from podslice.values.errors import InputError
from podslice.values.releases import v1_31, v1_32, v1_33, v1_34, v1_35, v1_36, v1_37
from podslice.values.releases.release import Release

_MODULES = (v1_31, v1_32, v1_33, v1_34, v1_35, v1_36, v1_37)
RELEASES: dict[int, Release] = {module.RELEASE.minor: module.RELEASE for module in _MODULES}
"""Every known release by its minor version, oldest first."""
OLDEST, NEWEST = min(RELEASES), max(RELEASES)
DEFAULT = RELEASES[36]
"""The release that is meant where none is named: the newest one whose decisions were recorded."""


def releases_up_to(minor: int) -> list[int]:
    """Return the minor versions of the known releases up to one, oldest first."""
    return [one for one in RELEASES if one <= minor]


_VERSION = re.compile(r"v?1\.(\d{1,3})(?:\.\d+)?(?:[-+].*)?\Z")


def parse_release(text: str) -> Release:
    """Return the release of a version such as `1.34`, `v1.34.9` or `v1.34.5-gke.100`. Raises `InputError` for one that
    is not known, and names the nearest."""
    match = _VERSION.match(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not a Kubernetes version", remedy="write for example 1.34")
    minor = int(match[1])
    if minor not in RELEASES:
        raise InputError(
            f"Kubernetes 1.{minor} is not known here",
            remedy=f"known are 1.{OLDEST} to 1.{NEWEST}; nearest is {nearest_release(text)}",
        )
    return RELEASES[minor]


def nearest_release(text: str) -> Release | None:
    """Return the known release that is nearest to that of a version; None for text that is not a version."""
    match = _VERSION.match(text.strip())
    return None if match is None else RELEASES[min(max(int(match[1]), OLDEST), NEWEST)]
