"""Memory that the hard eviction threshold subtracts from a node's."""

from __future__ import annotations

import pytest

from podslice import KubeletConfig
from podslice.config.reservation import prepare_reservations
from podslice.machine.readers.synthetic import from_synthetic

MACHINE = from_synthetic("pack:1 numa:1(memory=64GiB) core:4 pu:1")


@pytest.mark.parametrize(
    ("threshold", "reserved"),
    [("100Mi", "100Mi"), ("25%", "16Gi"), ("0%", None), ("100%", None)],
)
def test_memory_kept_from_pods(threshold: str, reserved: str | None) -> None:
    """An amount or a share is kept; 0 % and 100 % both switch the threshold off."""
    config = KubeletConfig(eviction_hard={"memory.available": threshold})
    kept = prepare_reservations(config, MACHINE).total.get("memory")
    assert (None if kept is None else kept.canonical()) == reserved
