"""The version of podslice that runs."""

from __future__ import annotations

from importlib import metadata

UNPACKAGED = "0+unpackaged"


def running_version() -> str:
    """Return the installed version. A source tree that is only on Python's path is `UNPACKAGED`: its content is not
    known, so two of them do not count as the same version."""
    try:
        return metadata.version("podslice")
    except metadata.PackageNotFoundError:
        return UNPACKAGED
