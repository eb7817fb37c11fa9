"""Every input the fuzzers started from or found ends in an answer or a typed error."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.campaign import HANG_SECONDS, campaign
from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for name in TARGETS for path in (CORPUS / name).iterdir())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.slow
def test_input(path: Path) -> None:
    """No untyped error and no hang on a kept input."""
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.slow
def test_campaign(tmp_path: Path, name: str) -> None:
    """A short campaign finds nothing. Only a hang counts here; `python -m fuzz.run` watches the time of an input."""
    inputs = len(list((CORPUS / name).iterdir())) + 100
    tallies = campaign({name: TARGETS[name]}, CORPUS, tmp_path, inputs=inputs, seed=7, limit_seconds=HANG_SECONDS)
    assert [str(path) for path in tmp_path.rglob("*")] == []
    assert tallies[name].inputs >= inputs


def test_a_campaign_keeps_what_fails(tmp_path: Path) -> None:
    """Inputs that end in an untyped error are kept and counted."""

    def broken(data: bytes) -> None:
        raise KeyError(data)

    tallies = campaign({"wire": broken}, CORPUS, tmp_path, inputs=100, seed=1)
    assert tallies["wire"].failures == tallies["wire"].inputs
    assert list((tmp_path / "wire").iterdir())
