"""State files found in public places get the verdict that Kubernetes' own code gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.node.checkpoints.identify import IdentifiedFile, identify

_SAMPLES = 117


@pytest.fixture(scope="module")
def samples(shared: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((shared / "checkpoints.json").read_text())["samples"]
    return loaded


def _kind(identity: IdentifiedFile) -> str:
    return "cpu-v0" if identity.kind == "cpu" and identity.stated is None else identity.kind


def _compute(identity: IdentifiedFile) -> dict[str, int]:
    if identity.stated is None:
        return {}
    return {"data_computed" if version == "data" else version: value for version, value in identity.computed.items()}


def test_every_sample_gets_its_recorded_verdict(samples: list[dict[str, Any]]) -> None:
    """Kind, format, checksum under every format, and whether the checksum is right are as recorded, for all 117."""
    differing = []
    for sample in samples:
        identity = identify(sample["text"].encode())
        ours = (_kind(identity), identity.stated or 0, identity.version is not None, identity.matches)
        recorded = (sample["kind"], sample["stated_checksum"], sample["verified"], sample["matches_format"])
        if ours != recorded or _compute(identity) != sample["computed"]:
            differing.append((sample["id"], ours, recorded, _compute(identity), sample["computed"]))
    assert not differing
    assert len(samples) == _SAMPLES
