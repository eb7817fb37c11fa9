"""API-level cases: every section of a pod's life between the API server and the cgroup (FORMAT.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podslice.replay.api import change, cluster, limits, node, server
from podslice.replay.api.case import ABSENT, ApiCase, Json
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

TYPES = ("pod", "gates", "cpuconv", "eviction")

SECTIONS: dict[str, Callable[[ApiCase], Any]] = {
    **server.SECTIONS,
    **change.SECTIONS,
    **limits.SECTIONS,
    **node.SECTIONS,
    **cluster.SECTIONS,
}


RUNNERS: dict[str, Callable[[Json, Quirks], Json]] = {
    "cpuconv": node.run_cpuconv,
    "eviction": cluster.run_eviction,
    "gates": server.run_gates,
}
"""Types that are not pods."""


def run(case: Json, quirks: Quirks, release: Release = DEFAULT) -> Json:
    """Return the complete result of one case."""
    if case.get("type") in RUNNERS:
        return RUNNERS[case["type"]](case, quirks)
    api_case = ApiCase(case, quirks)
    result: Json = {"name": case["name"]}
    gates = server.gates_to_json(case.get("featureGates") or {}, quirks)
    # With gates that do not start, or a pod that is not decoded, no later section has anything to look at.
    if "error" in gates:
        return {**result, "gates": gates}
    if api_case.decode_error:
        return {**result, "gates": gates, "decodeError": api_case.decode_error}
    wanted = case.get("sections") or SECTIONS
    for name, section in SECTIONS.items():
        if name in wanted:
            shown = section(api_case)
            if shown is not ABSENT:
                result[name] = shown
    return result
