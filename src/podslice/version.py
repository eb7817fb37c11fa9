"""The version of podslice that runs. Imports next to nothing: `podslice --version` answers with it."""

import os
import sys

__version__ = "0.1.0"
"""The version of this source tree; the build reads it here."""

UNPACKAGED = "0+unpackaged"

KUBERNETES = "1.36.2"
"""The patch release whose source profile kubelet-1.36 was compared with; there may be a newer one of 1.36."""


def running_version() -> str:
    """Return the installed version. A source tree that is only on Python's path is `UNPACKAGED`: its content is not
    known, so two of them do not count as the same version."""
    return __version__ if is_installed() else UNPACKAGED


def is_installed() -> bool:
    """Whether a folder of Python's path has the metadata that an installer leaves."""
    return any(map(_has_metadata, sys.path))


def version_line() -> str:
    """Return what `podslice version` prints."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"podslice {running_version()} (decisions of Kubernetes v{KUBERNETES}, Python {python})"


def _has_metadata(folder: str) -> bool:
    # Not importlib.metadata: its import alone takes 25 ms.
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return False
    return any(name.startswith("podslice-") and name.endswith(".dist-info") for name in names)
