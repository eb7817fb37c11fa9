"""The document that `podslice upgrade` prints."""

from __future__ import annotations

import msgspec

from podslice.advise.upgrade.engine import Upgrade
from podslice.evidence.provenance import Provenance


class UpgradeReport(msgspec.Struct, frozen=True, rename="camel"):
    """The steps of an upgrade, how many pods run, and what the answer rests on. `harms`: a step refuses a running pod,
    takes CPUs or memory from it, or its kubelet does not start."""

    steps: tuple[Upgrade, ...]
    pods: int
    harms: bool
    provenance: Provenance
