"""Every input the fuzzers started from or found ends in an answer or a typed error."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for name in TARGETS for path in (CORPUS / name).iterdir())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_input(path: Path) -> None:
    """No untyped error and no hang on a kept input."""
    TARGETS[path.parent.name](path.read_bytes())
