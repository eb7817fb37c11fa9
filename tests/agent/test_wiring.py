"""The agent's parts are complete once they are made, and the wiring alone says which part hears which event."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import podslice.agent

AGENT = Path(podslice.agent.__file__).parent
MODULES = {str(path.relative_to(AGENT)): ast.parse(path.read_text()) for path in sorted(AGENT.rglob("*.py"))}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WIRING = {"wiring.py", "node_wiring.py"}
LONGEST_WIRE = 112
"""Lines: two screens."""


def classes(trees: dict[str, ast.Module]) -> list[ast.ClassDef]:
    return [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def method_names(trees: dict[str, ast.Module]) -> set[str]:
    """Names of methods that are no properties, and those of events and lists that are given away as callbacks."""
    functions = [one for node in classes(trees) for one in node.body if isinstance(one, FUNCTIONS)]
    found = {one.name for one in functions if "property" not in map(ast.unparse, one.decorator_list)}
    fields = {ast.unparse(one.target) for node in classes(trees) for one in node.body if isinstance(one, ast.AnnAssign)}
    return (found | {"set", "append"}) - fields


def callback_attributes(trees: dict[str, ast.Module]) -> set[str]:
    """Names of attributes and fields that are declared as callbacks, and of parameters that are kept as attributes."""
    found: set[str] = set()
    for node in classes(trees):
        for one in ast.walk(node):
            if isinstance(one, ast.AnnAssign) and "Callable" in ast.unparse(one.annotation):
                found.add(ast.unparse(one.target).removeprefix("self."))
            elif isinstance(one, FUNCTIONS) and one.name == "__init__":
                given = {
                    arg.arg
                    for arg in (*one.args.args, *one.args.kwonlyargs)
                    if arg.annotation is not None and "Callable" in ast.unparse(arg.annotation)
                }
                found |= {
                    target.attr
                    for kept in ast.walk(one)
                    if isinstance(kept, ast.Assign) and isinstance(kept.value, ast.Name) and kept.value.id in given
                    for target in kept.targets
                    if isinstance(target, ast.Attribute)
                }
    return found


def patches(tree: ast.AST, methods: set[str], callbacks: set[str]) -> Iterator[str]:
    """Lambdas as defaults and attributes, and callbacks that a part gets after it was made."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if isinstance(default, ast.Lambda):
                    yield f"line {default.lineno}: a lambda is a default"
        elif isinstance(node, ast.keyword) and node.arg == "default_factory" and isinstance(node.value, ast.Lambda):
            yield f"line {node.value.lineno}: a lambda makes a default"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            yield f"line {node.lineno}: an attribute is set by name"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if not isinstance(target, ast.Attribute):
                    continue
                own = isinstance(target.value, ast.Name) and target.value.id == "self"
                if isinstance(node.value, ast.Lambda):
                    yield f"line {node.lineno}: {ast.unparse(target)} is a lambda"
                elif not own and (target.attr in callbacks or _is_callback(node.value, methods)):
                    yield f"line {node.lineno}: {ast.unparse(target)} is patched"


def _is_callback(value: ast.expr | None, methods: set[str]) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) == "partial"
    return isinstance(value, ast.Attribute) and value.attr in methods


def subscriptions(tree: ast.AST) -> Iterator[str]:
    """Calls of `add` of an event of the node."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add":
            event = ast.unparse(node.func.value)
            if "events." in event:
                yield f"line {node.lineno}: {event}"


def test_nothing_is_patched() -> None:
    """Every part has what it needs from its constructor."""
    methods, callbacks = method_names(MODULES), callback_attributes(MODULES)
    found = {module: list(patches(tree, methods, callbacks)) for module, tree in MODULES.items()}
    assert {module: some for module, some in found.items() if some} == {}


def test_patches_are_found() -> None:
    """The test above finds each of them."""
    text = """
class Part:
    told: Callable[[], None] | None = None
    def __init__(self, hear=lambda: None, *, wake: Callable[[], None]):
        self.on_room: Callable = lambda: None
        self.on_wake = wake
    def wake(self): ...
    def start(self, owner, other):
        owner.on_news = self.wake
        owner.count = self.count
        owner.told = other
        owner.on_wake = None
        owner.when = partial(self.count, 1)
        setattr(owner, "when", other)
"""
    trees = {"": ast.parse(text)}
    found = list(patches(trees[""], method_names(trees), callback_attributes(trees)))
    assert sorted(one.partition(":")[0] for one in found) == [f"line {n}" for n in (11, 12, 13, 14, 4, 5, 9)]


def test_only_the_wiring_subscribes() -> None:
    """Every listener is attached in the wiring, so that it shows all of them."""
    found = {module: list(subscriptions(tree)) for module, tree in MODULES.items()}
    assert {module for module, some in found.items() if some} == WIRING


def test_every_event_is_heard() -> None:
    """An event that nothing hears is one that nobody needs."""
    (events,) = [node for node in classes(MODULES) if node.name == "NodeEvents"]
    names = {target.attr for node in ast.walk(events) if isinstance(node, ast.Assign)
             for target in node.targets if isinstance(target, ast.Attribute)}  # fmt: skip
    text = "".join(ast.unparse(MODULES[module]) for module in sorted(WIRING))
    assert names
    assert [name for name in sorted(names) if f"events.{name}" not in text] == []


def test_the_wiring_fits_on_two_screens() -> None:
    """It reads as the architecture only where it can be seen."""
    (wire,) = [one for one in MODULES["wiring.py"].body if isinstance(one, ast.FunctionDef) and one.name == "wire"]
    assert wire.end_lineno is not None
    assert wire.end_lineno - wire.lineno < LONGEST_WIRE
