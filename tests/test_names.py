"""One word, one meaning: what the code base calls things."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "podslice"
_DOCUMENTS = {"DeviceInventory", "Machine"}
"""Kinds of documents (`contract`) that are called like the value they print."""


def classes() -> dict[str, list[str]]:
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return found


def test_a_class_name_is_unique() -> None:
    """No two classes have the same name, private ones included, so a name that a search finds is the one meant."""
    doubles = {name: places for name, places in classes().items() if len(places) > 1}
    assert {name: places for name, places in doubles.items() if name not in _DOCUMENTS} == {}
    assert doubles.keys() >= _DOCUMENTS
