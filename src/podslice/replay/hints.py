"""CPU hint cases (FORMAT.md, "cpuHints")."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.config.policy_options import OptionError, option_errors, parse_cpu_policy_options
from podslice.machine.model import CPUTopology, Machine
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.topology.hint import Hint
from podslice.replay.outcome import failure
from podslice.values.cpuset import iter_bits, parse_bits
from podslice.values.gates import FeatureGates
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("cpuHints",)


def run(case: dict[str, Any], quirks: Quirks, release: Release = DEFAULT) -> dict[str, Any]:
    """Return the complete result of one hint case."""
    result: dict[str, Any] = {"name": case["name"], "type": case["type"]}
    topology = CPUTopology(msgspec.convert(case["machine"], Machine))
    gates = FeatureGates.from_overrides(case.get("featureGates") or {}, release=release)
    try:
        options = parse_cpu_policy_options(case.get("options") or {}, gates, release)
    except OptionError as error:
        return result | failure(str(error), list(map(str, option_errors(case.get("options") or {}, gates, release))))
    hints = cpu_topology_hints(
        topology,
        parse_bits(case["available"]),
        parse_bits(case["reusable"]),
        case["n"],
        align_by_socket=options.align_by_socket,
    )
    # Go leaves out an empty list (`omitempty`), so no hints and no member are the same.
    if hints:
        result["hints"] = [hint_to_json(hint) for hint in hints]
    return result


def hint_to_json(hint: Hint) -> dict[str, Any]:
    """Return a hint as recordings write it: `numa` is null for no affinity."""
    return {"numa": None if hint.mask is None else list(iter_bits(hint.mask)), "preferred": hint.preferred}
