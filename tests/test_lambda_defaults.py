"""A default that is a function has a name, under which a reader and a traceback find it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.source_files import modules_with


def defaults(node: ast.AST) -> list[ast.expr | None]:
    """Defaults of parameters, what makes defaults of fields, and what attributes and fields are given."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.args.defaults, *node.args.kw_defaults]
    made = isinstance(node, ast.keyword) and node.arg == "default_factory"
    given = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)
    return [node.value] if made or given or isinstance(node, ast.AnnAssign) else []  # type: ignore[attr-defined]


def lambda_defaults(tree: ast.AST) -> Iterator[int]:
    """Lines of defaults that are lambdas."""
    for node in ast.walk(tree):
        yield from (one.lineno for one in defaults(node) if isinstance(one, ast.Lambda))


def test_no_default_is_a_lambda() -> None:
    """All of the package."""
    found = {file: list(lambda_defaults(tree)) for file, tree in modules_with("lambda")}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_lambdas_are_found() -> None:
    """The test above finds each kind."""
    text = """
def one(hear=lambda: None, *, tell=lambda: None): ...
class Part:
    made: dict = field(default_factory=lambda: {})
    heard: Callable = lambda: None
    def __init__(self):
        self.told = lambda: None
        self.asked: Callable = lambda: None
        kept = sorted([], key=lambda one: one)
"""
    assert sorted(lambda_defaults(ast.parse(text))) == [2, 2, 4, 5, 7, 8]
