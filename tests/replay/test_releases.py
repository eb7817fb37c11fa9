"""Recorded decisions of other releases: a sample ships with the project, the full sets run beside the checkout."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from podslice.replay.run import compare, read_cases, release_of
from podslice.values.errors import InputError
from podslice.values.quirks import quirks_of
from podslice.values.releases.table import RELEASES

SAMPLE = Path(__file__).parents[1] / "vectors"
RECORDED = (35, 34, 33, 32)
KINDS = ("managers", "edits", "take", "hints", "merge")
SLICES = 4


def check(path: Path, minor: int, start: int, step: int) -> int:
    release = RELEASES[minor]
    compared = [compare(record, quirks_of(release), release) for record in islice(read_cases(path), start, None, step)]
    different = [f"{c.type} {c.name}: {c.difference}" for c in compared if c.difference]
    assert not different, "\n".join(different[:5])
    return len(compared)


@pytest.mark.parametrize("minor", RECORDED)
def test_sample(minor: int) -> None:
    """Every case of the shipped sample is decided as that release decided it."""
    assert check(SAMPLE / f"kubelet-1.{minor}.jsonl.gz", minor, 0, 1) > 50


@pytest.mark.conformance
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("minor", RECORDED)
def test_full_set(shared: Path, minor: int, kind: str, part: int) -> None:
    """Every recorded case beside the checkout is decided as that release decided it."""
    assert check(shared / f"vectors-1.{minor}" / f"{kind}.jsonl.gz", minor, part, SLICES) > 50


@pytest.mark.parametrize(
    ("path", "case", "minor"),
    [
        pytest.param("vectors-1.34/take.jsonl.gz", {}, 34, id="folder"),
        pytest.param("vectors/kubelet-1.33.jsonl.gz", {}, 33, id="file"),
        pytest.param("vectors-1.34/take.jsonl.gz", {"kubernetes": "v1.35.6"}, 35, id="the case itself"),
        pytest.param("vectors/take.jsonl.gz", {}, 36, id="no name"),
        pytest.param("cases-2.1.35x/take-11.34.jsonl", {}, 36, id="other numbers"),
    ],
)
def test_recording_names_its_release(path: str, case: dict[str, str], minor: int) -> None:
    """The release of a recording is in the case, or in the name of its file or folder; without one it is 1.36."""
    assert release_of(Path("/recordings") / path, case).minor == minor


def test_unknown_release_of_a_recording() -> None:
    """A recording of a release that is not known is refused, and the known ones are named."""
    with pytest.raises(InputError, match=r"^Kubernetes 1\.29 is not known here") as caught:
        release_of(Path("vectors-1.29/take.jsonl"), {})
    assert "known are 1.31 to" in str(caught.value)
