"""Where the profiles part: every quirk is asked, and at one place unless there is a reason."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from podslice.values.gates import GATES
from podslice.values.quirks import Quirks
from tests.source_files import modules_with

SEVERAL = {
    "amounts_wrap": (2, "an admission, and what a model of the cluster foresees of one"),
    "assignment_metrics_drift": (3, "both managers count, an undo takes back, and the agent names its metrics"),
    "distances_by_node_id": (2, "a node's merges, and replayed merges without a node"),
    "eviction_pod_level_hides_containers": (2, "what counts, and the note about it in inspect"),
    "fit_score_ignores_pod_level": (2, "what counts, and the note about it in inspect"),
    "gate_moves_running_pods": (
        2,
        "what becomes of running pods when gates go on, and what they keep when gates go off",
    ),
    "implied_limit_becomes_weight": (2, "a container's start, and the note about it in inspect"),
    "inexact_memory_is_refused": (2, "reading an amount, and a pod's allocation that passes over what it cannot read"),
    "init_memory_again": (2, "the hints of ended init containers, and whether their containers start again"),
    "init_overlaps_sidecars": (2, "the check of an admission, and the CPUs at run time"),
    "pod_allocation_repeats": (2, "each manager looks at what it holds"),
    "refused_pods_leave_state": (
        6,
        "an admission, what each manager finds left by an earlier one, which pod counts as active in 1.31, and twice "
        "whether answers need names",
    ),
    "reuse_outlives_pod": (2, "what managers remember, and affinities"),
    "searches_take_any_time": (2, "a merge whose search ends, and the listing of hints before it"),
    "zero_checksum_is_trusted": (2, "each file has its reader"),
}
"""How often a quirk is asked, and why more than once."""


def asked() -> dict[str, list[str]]:
    """Where each quirk is read as an attribute."""
    found = defaultdict(list)
    for file, tree in modules_with(*Quirks.__struct_fields__):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in Quirks.__struct_fields__:
                found[node.attr].append(f"{file}:{node.lineno}")
    return found


@pytest.mark.slow
def test_a_quirk_is_asked_at_one_place() -> None:
    """Behaviours part at one place for each quirk; the exceptions are listed, each with its reason and its number."""
    several = {name: places for name, places in asked().items() if len(places) > 1}
    assert {name: len(places) for name, places in several.items()} == {
        name: number for name, (number, _) in SEVERAL.items()
    }, several


@pytest.mark.slow
def test_no_quirk_is_idle() -> None:
    """Every quirk changes something: it is asked, or decides about a gate."""
    gates = {gate.later for gate in GATES.values() if gate.later}
    assert set(Quirks.__struct_fields__) == asked().keys() | gates
