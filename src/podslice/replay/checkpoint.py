"""State-file cases: encoding with the hashed dump, and verification (FORMAT.md, "checkpoint", "verifyCheckpoint")."""

from __future__ import annotations

import json
from typing import Any

from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.memory import checkpoint as checkpoint_memory
from podslice.values.gates import FeatureGates
from podslice.values.go.gojson import CheckpointError
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("checkpoint", "verifyCheckpoint")
Json = dict[str, Any]


def run(case: Json, quirks: Quirks, release: Release = DEFAULT) -> Json:
    """Return the complete result of one state-file case."""
    result: Json = {"name": case["name"], "type": case["type"]}
    if case["type"] == "checkpoint":
        return result | _encode(case["kind"], case["version"], case["body"])
    gates = FeatureGates.from_overrides(case.get("featureGates") or {}, release=release)
    try:
        _verify(case["kind"], case["version"], case["body"].encode(), pod_level=gates["PodLevelResourceManagers"])
    except CheckpointError as error:
        return result | {"admit": False, "error": str(error)}
    return result | {"admit": True}


def _encode(kind: str, version: str, body: Json) -> Json:
    # The recorded body is decoded and encoded again: both directions are under test.
    data = json.dumps(body).encode()
    if kind == "cpu":
        cpu = checkpoint_cpu.decode(data, version)
        text = checkpoint_cpu.encode(cpu, version)
        return {"text": text.decode(), "dump": checkpoint_cpu.dump_text(cpu, version)}
    memory = checkpoint_memory.decode(data, version)
    return {
        "text": checkpoint_memory.encode(memory, version).decode(),
        "dump": checkpoint_memory.dump_text(memory, version),
    }


def _verify(kind: str, version: str, data: bytes, *, pod_level: bool) -> None:
    if kind == "cpu":
        checkpoint_cpu.verify(checkpoint_cpu.decode(data, version), version, pod_level=pod_level)
    else:
        checkpoint_memory.verify(checkpoint_memory.decode(data, version), version, pod_level=pod_level)
