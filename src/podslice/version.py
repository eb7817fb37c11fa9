"""Which podslice this is."""

from __future__ import annotations

from importlib import metadata

UNPACKAGED = "0+unpackaged"


def running_version() -> str:
    """What is installed; `UNPACKAGED` for a tree that is only on Python's path: nobody can say what is in it, so two
    of them are not one version."""
    try:
        return metadata.version("podslice")
    except metadata.PackageNotFoundError:
        return UNPACKAGED
