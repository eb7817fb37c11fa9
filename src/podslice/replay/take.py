"""Picking cases (FORMAT.md, "takeByTopology")."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.config.policy_options import OptionError, option_errors, parse_cpu_policy_options
from podslice.machine.model import CPUTopology, Machine
from podslice.node.cpu.picking.picker import Picker
from podslice.replay.outcome import failure
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.errors import AdmissionError
from podslice.values.gates import FeatureGates
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("takeByTopology",)


def run(case: dict[str, Any], quirks: Quirks, release: Release = DEFAULT) -> dict[str, Any]:
    """Return the complete result of one picking case."""
    result: dict[str, Any] = {"name": case["name"], "type": case["type"]}
    topology = CPUTopology(msgspec.convert(case["machine"], Machine))
    gates = FeatureGates.from_overrides(case.get("featureGates") or {}, release=release)
    try:
        # An empty map of Go is null in JSON, so null is the same as absent.
        options = parse_cpu_policy_options(case.get("options") or {}, gates, release)
    except OptionError as error:
        # The kubelet goes over a map of options, whose order is random, so with several errors any may be the first.
        return result | failure(str(error), list(map(str, option_errors(case.get("options") or {}, gates, release))))
    try:
        pick = Picker(topology, options, quirks, release).take(parse_bits(case["available"]), case["n"])
        # In the form of the kubelet's cpuset.String: results are compared as text.
        result["cpus"] = format_bits(pick.cpus)
    except AdmissionError as error:
        result["error"] = error.message
    return result
