"""The agent's parts are complete once they are made, and `wire()` alone says what hears what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import podslice.agent

AGENT = Path(podslice.agent.__file__).parent
MODULES = {str(path.relative_to(AGENT)): ast.parse(path.read_text()) for path in sorted(AGENT.rglob("*.py"))}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LONGEST_WIRE = 120
"""Lines: two screens."""


def methods(trees: dict[str, ast.Module]) -> set[str]:
    """Names of methods that are no properties, and those of events and lists that are given away as callbacks."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    functions = [one for node in classes for one in node.body if isinstance(one, FUNCTIONS)]
    found = {one.name for one in functions if "property" not in map(ast.unparse, one.decorator_list)}
    fields = {ast.unparse(one.target) for node in classes for one in node.body if isinstance(one, ast.AnnAssign)}
    return (found | {"set", "append"}) - fields


def patches(tree: ast.AST, callbacks: set[str]) -> Iterator[str]:
    """Lambdas as defaults and attributes, callbacks that are given to a part after it was made, and attributes for
    callbacks that are no argument of the constructor."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if isinstance(default, ast.Lambda):
                    yield f"line {default.lineno}: a lambda is a default"
        elif isinstance(node, ast.keyword) and node.arg == "default_factory" and isinstance(node.value, ast.Lambda):
            yield f"line {node.value.lineno}: a lambda makes a default"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if not isinstance(target, ast.Attribute):
                    continue
                own = isinstance(target.value, ast.Name) and target.value.id == "self"
                if isinstance(node.value, ast.Lambda):
                    yield f"line {node.lineno}: {ast.unparse(target)} is a lambda"
                elif not own and isinstance(node.value, ast.Attribute) and node.value.attr in callbacks:
                    yield f"line {node.lineno}: {ast.unparse(target)} is patched"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_patched(module: str) -> None:
    """Every part has what it needs from its constructor."""
    assert list(patches(MODULES[module], methods(MODULES))) == []


def test_patches_are_found() -> None:
    """The test above finds each of them."""
    text = """
class Part:
    def __init__(self, hear=lambda: None):
        self.on_room: Callable = lambda: None
    def wake(self): ...
    def start(self, owner):
        owner.on_news = self.wake
        owner.count = self.count
"""
    tree = ast.parse(text)
    assert len(list(patches(tree, methods({"": tree})))) == 3


def test_the_wiring_fits_on_two_screens() -> None:
    """It reads as the architecture only where it can be seen."""
    (wire,) = [one for one in MODULES["wiring.py"].body if isinstance(one, ast.FunctionDef) and one.name == "wire"]
    assert wire.end_lineno is not None
    assert wire.end_lineno - wire.lineno < LONGEST_WIRE
