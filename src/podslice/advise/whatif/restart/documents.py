"""The document that `podslice whatif --restart` and `--reboot` print."""

from __future__ import annotations

import msgspec

from podslice.advise.whatif.restart.restart import RestartResult
from podslice.evidence.provenance import Provenance


class RestartReport(msgspec.Struct, frozen=True):
    """The running pods after a start of the kubelet, for each machine and configuration, and what the answer rests
    on. `changes`: whether any start changes anything."""

    changes: bool
    results: tuple[RestartResult, ...]
    provenance: tuple[Provenance, ...] = ()
