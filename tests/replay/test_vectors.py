"""Recorded decisions of Kubernetes v1.36.2: a sample ships with the project, the full sets run beside the checkout."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from podslice.replay.run import Json, compare, first_difference, read_cases
from podslice.values.quirks import KUBELET_1_36

SAMPLE = Path(__file__).parents[1] / "vectors"
KINDS = ("cpuset", "quantity", "take", "hints", "merge", "checkpoint", "managers-cpu", "managers", "api")
SLICES = 8


def check(path: Path, start: int, step: int) -> int:
    compared = [compare(record, KUBELET_1_36) for record in islice(read_cases(path), start, None, step)]
    different = [f"{c.type} {c.name}: {c.difference}" for c in compared if c.difference]
    assert not different, "\n".join(different[:5])
    return len(compared)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_sample(kind: str) -> None:
    """Every case of the shipped sample is decided as upstream decided it."""
    assert check(SAMPLE / f"{kind}.jsonl.gz", 0, 1) > 100


@pytest.mark.conformance
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("kind", KINDS)
def test_full_set(shared: Path, kind: str, part: int) -> None:
    """Every recorded case beside the checkout is decided as upstream decided it."""
    assert check(shared / "vectors" / f"{kind}.jsonl.gz", part, SLICES) > 100


FOUND = list(read_cases(SAMPLE / "found.jsonl.gz"))


@pytest.mark.parametrize("record", FOUND, ids=[record["case"]["name"] for record in FOUND])
def test_found(record: Json) -> None:
    """A smallest case in which podslice once differed from upstream's code is decided as upstream decides it."""
    assert compare(record, KUBELET_1_36).difference == ""


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        pytest.param({"a": 1}, {"a": 2}, "a: expected 1, found 2", id="value"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, "a: 2 elements expected, 1 found", id="length"),
        pytest.param({"a": 1}, {}, "a: missing, expected 1", id="missing"),
        pytest.param({}, {"a": None}, "a: unexpected null", id="unexpected"),
        pytest.param({"a": True}, {"a": 1}, "a: expected true, found 1", id="type"),
        pytest.param({"a": {"panic": "divide"}}, {"a": {"defect": "x"}}, "", id="declared crash"),
        pytest.param({"a": {"panic": "divide"}}, {"a": 1}, 'a: expected {"panic": "divide"}, found 1', id="crash"),
        pytest.param({"a": {"b": 1.0}}, {"a": {"b": 1}}, "", id="equal numbers"),
    ],
)
def test_difference_is_found(expected: object, actual: object, difference: str) -> None:
    """The comparison that judges everything else sees every kind of difference."""
    assert first_difference(expected, actual) == difference
