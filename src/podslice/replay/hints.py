"""CPU hint cases (FORMAT.md, "cpuHints")."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.config.policy_options import parse_cpu_policy_options
from podslice.machine.model import CPUTopology, Machine
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.topology.hint import Hint
from podslice.values.cpuset import iter_bits, parse_bits
from podslice.values.gates import FeatureGates
from podslice.values.quirks import Quirks

TYPES = ("cpuHints",)


def run(case: dict[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Return the complete result of one hint case."""
    topology = CPUTopology(msgspec.convert(case["machine"], Machine))
    options = parse_cpu_policy_options(
        case.get("options") or {}, FeatureGates.from_overrides(case.get("featureGates") or {})
    )
    hints = cpu_topology_hints(
        topology,
        parse_bits(case["available"]),
        parse_bits(case["reusable"]),
        case["n"],
        align_by_socket=options.align_by_socket,
    )
    result: dict[str, Any] = {"name": case["name"], "type": case["type"]}
    # Go leaves out an empty list (`omitempty`), so no hints and no member are the same.
    if hints:
        result["hints"] = [hint_to_json(hint) for hint in hints]
    return result


def hint_to_json(hint: Hint) -> dict[str, Any]:
    """Return a hint as recordings write it: `numa` is null for no affinity."""
    return {"numa": None if hint.mask is None else list(iter_bits(hint.mask)), "preferred": hint.preferred}
