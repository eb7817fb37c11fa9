"""Which agents a service predicts, by version and by the number of their decisions."""

from __future__ import annotations

import hashlib

import pytest

from podslice.replica.compatibility import DECISIONS, Relation, find_relation
from podslice.replica.events import encode
from tests.replica.lives import Life

FINGERPRINTS = {1: "936dc8a3a42d3f3e"}
"""By number of decisions, what drawn lives come to. Where a change makes this test fail on purpose, raise `DECISIONS`
and add a line, unless no release has that number yet: then replace its line. Agents of the number before are predicted
one pod at a time."""


@pytest.mark.parametrize(
    ("version", "decisions", "expected"),
    [
        ("known", 0, "same"), ("known", DECISIONS + 5, "same"), ("newer", DECISIONS, "same"),
        ("newer", DECISIONS + 1, "neighbour"), ("newer", DECISIONS + 2, "other"), ("older", 0, "other"),
        ("older", -DECISIONS, "other"), ("", 0, "other"),
    ],
)  # fmt: skip
def test_relations(version: str, decisions: int, expected: Relation) -> None:
    """A known version decides the same, and so does any that says the same number; the next one nearly so."""
    assert find_relation(version, decisions, {"known"}) == expected


def test_the_number_changes_with_the_decisions() -> None:
    """Agents and services of two releases with the same number decide the same: lives drawn from fixed seeds, in both
    profiles, end in the same digests, whatever the release."""
    found = hashlib.sha256()
    for seed in range(60):
        life = Life(seed, "podslice" if seed % 2 else "kubelet-1.36")
        for stamped in life.steps(25):
            found.update(f"{stamped.sequence} {stamped.allocation} {stamped.named}\n".encode())
            if stamped.sequence == 0:
                found.update(encode(stamped))
    assert found.hexdigest()[:16] == FINGERPRINTS[DECISIONS]
