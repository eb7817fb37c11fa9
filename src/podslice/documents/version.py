"""The answer of `podslice version`."""

from __future__ import annotations

import msgspec


class Version(msgspec.Struct, frozen=True):
    """This package's version, the Kubernetes release whose decisions profile kubelet-1.36 takes, and Python's."""

    podslice: str
    kubernetes: str
    python: str
