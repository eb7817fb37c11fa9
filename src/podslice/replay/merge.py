"""Hint merging cases (FORMAT.md, "mergeHints")."""

from __future__ import annotations

from typing import Any

from podslice.config.policy_options import parse_topology_options
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import ProviderHints
from podslice.node.topology.merge import Merger
from podslice.replay.hints import hint_to_json
from podslice.values.cpuset import bits_of
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("mergeHints",)


def run(case: dict[str, Any], quirks: Quirks, release: Release = DEFAULT) -> dict[str, Any]:
    """Return the complete result of one merge case."""
    merger = Merger(
        case["policy"],
        [(node["id"], node.get("distances")) for node in case["numa"]],
        closest=parse_topology_options(case.get("options") or {}).prefer_closest_numa_nodes,
        distances_by_id=quirks.distances_by_node_id,
    )
    merged = merger.merge([_provider(provider) for provider in case["providers"]])
    return {"name": case["name"], "type": case["type"], "hint": hint_to_json(merged.hint), "admit": merged.admitted}


def _provider(provider: dict[str, Any] | None) -> ProviderHints:
    if provider is None:
        return None
    return {
        resource: None
        if hints is None
        else [Hint(None if hint["mask"] is None else bits_of(hint["mask"]), hint["preferred"]) for hint in hints]
        for resource, hints in provider.items()
    }
