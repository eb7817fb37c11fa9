"""Page and lint rules over recorded pods: odd ones, invalid ones, every gate."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podslice import InputError
from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.facts import KnownNode
from podslice.advise.lint.engine import lint_pod
from podslice.advise.lint.registry import RULES
from podslice.advise.lint.subject import PodSubject
from podslice.api.server.limitrange import limit_range_from_dict
from podslice.replay.api.case import decode_pod, effective_gates
from podslice.values.gates import GateError
from podslice.values.quirks import KUBELET_1_36

SAMPLE = Path(__file__).parents[2] / "vectors" / "api.jsonl.gz"
ALL = frozenset(rule.id for rule in RULES)


def recorded() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with gzip.open(SAMPLE, "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            if "pod" in entry["case"] and "created" in entry["result"]:
                yield entry["case"], entry["result"]["created"]


@pytest.mark.slow
def test_page_agrees_with_recorded_creations() -> None:
    """The page agrees with the API server about every recorded pod: accepted or not, and the QoS class."""
    compared = 0
    for case, created in recorded():
        try:
            gates = effective_gates(case.get("featureGates") or {}, KUBELET_1_36)
            pod = decode_pod(case["pod"])
        except (GateError, InputError):
            continue
        ranges = [limit_range_from_dict(one) for one in case.get("limitRanges") or ()]
        view = KnownNode(memory_capacity=16 << 30)
        page = inspect_pod(pod, gates, KUBELET_1_36, data=case["pod"], limit_ranges=ranges, view=view)
        assert page.accepted == created["accepted"], case["name"]
        assert page.qos.qos_class == created["statusQOSClass"], case["name"]
        compared += 1
    assert compared > 100


def test_lint_finds_every_recorded_refusal() -> None:
    """A pod that the recorded API server refused with default gates has an error, and an accepted one has none."""
    errors = {True: 0, False: 0}
    for case, created in recorded():
        if case.get("featureGates") or case.get("limitRanges"):
            continue
        try:
            pod = decode_pod(case["pod"])
        except InputError:
            continue
        found = lint_pod(PodSubject(pod, profile="kubelet-1.36"), ALL)
        refused = any(finding.severity == "error" for finding in found)
        assert refused != created["accepted"], (case["name"], found)
        errors[refused] += 1
    assert min(errors.values()) > 10
