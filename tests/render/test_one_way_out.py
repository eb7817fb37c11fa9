"""Everything printed goes through one function."""

from __future__ import annotations

import re
from pathlib import Path

import podslice

AROUND = re.compile(r"click\.(?:echo|secho|style)\(|(?<![\w.])print\(")


def test_nothing_prints_around_the_seam() -> None:
    """No command and no renderer prints or colours by itself: `render.ansi` lets no control character through."""
    root = Path(podslice.__file__).parent
    files = [*(root / "cli").rglob("*.py"), *(root / "render").rglob("*.py"), *(root / "serve").rglob("*.py")]
    files += [*root.rglob("command.py"), *root.rglob("commands/*.py"), *root.rglob("table.py")]
    assert len(files) > 30
    found = [path.name for path in files if path.name != "ansi.py" and AROUND.search(path.read_text(encoding="utf-8"))]
    assert found == []
