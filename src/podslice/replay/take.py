"""Picking cases (FORMAT.md, "takeByTopology")."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.core.allocate.picker import Picker
from podslice.core.config.policy_options import parse_cpu_policy_options
from podslice.core.errors import AdmissionError
from podslice.core.machine.model import CPUTopology, Machine
from podslice.core.quirks import Quirks
from podslice.core.values.cpuset import format_bits, parse_bits
from podslice.core.values.gates import FeatureGates

TYPES = ("takeByTopology",)


def run(case: dict[str, Any], quirks: Quirks) -> dict[str, Any]:
    """The complete result of one picking case."""
    result: dict[str, Any] = {"name": case["name"], "type": case["type"]}
    topology = CPUTopology(msgspec.convert(case["machine"], Machine))
    options = parse_cpu_policy_options(
        case.get("options") or {}, FeatureGates.from_overrides(case.get("featureGates") or {})
    )
    try:
        pick = Picker(topology, options, quirks).take(parse_bits(case["available"]), case["n"])
        result["cpus"] = format_bits(pick.cpus)
    except AdmissionError as error:
        result["error"] = error.message
    return result
