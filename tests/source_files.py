"""The modules of the package for tests that read them: parsing all of them takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import podslice

SOURCE = Path(podslice.__file__).parent


def modules_with(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield path and tree of each module whose text holds one of the words."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in words):
            yield path.relative_to(SOURCE).as_posix(), ast.parse(text)
