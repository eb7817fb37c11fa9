"""Modules that need facts about a node read its view; only those that drive a kubelet use its managers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.source_files import modules_with

DRIVERS = ("node", "replica", "cluster/model", "fleet/engine", "advise/trial", "replay")
"""Rooms that may: what decides, the trials of advice, and the replay of recorded histories."""
INSIDES = {"kubelet", "manager"}
CLASSES = {"Kubelet", "ContainerManager", "CPUManager", "MemoryManager", "DeviceManager", "TopologyManager"}
POOLS, KEPT = {"default", "shared"}, "reserved"


def last_name(node: ast.expr) -> str:
    """The last word of `a.b.c`, of `c`, or nothing."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def reaches(tree: ast.AST, name: str = "") -> Iterator[str]:
    """Where the program of this name asks something for its kubelet or managers, or imports their classes. The agent's
    settings have a source of pods that is called `kubelet`, the scenarios of fleets their configurations, answers of
    the kubectl plugin a kubelet's version."""
    scenario, settings = name.startswith(("fleet/", "kubectl/")), name == "agent/settings.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in INSIDES:
            owner = last_name(node.value)
            if owner != "sources" and not (settings and owner == "self") and not (scenario and node.attr == "kubelet"):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom):
            yield from (f"line {node.lineno}: import {one.name}" for one in node.names if one.name in CLASSES)


def subtractions(tree: ast.AST) -> Iterator[str]:
    """Where the reserved CPUs are taken out of the shared pool."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=pool, op=ast.BitAnd(), right=ast.UnaryOp(op=ast.Invert(), operand=kept)):
                if last_name(pool) in POOLS and last_name(kept) == KEPT:
                    yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.slow
def test_only_drivers_reach_into_a_kubelet() -> None:
    """Outside of what decides, the trials and the replay nothing reaches through `.kubelet` or `.manager`."""
    found = [
        f"{name}, {where}"
        for name, tree in modules_with(*(f".{one}" for one in INSIDES), *CLASSES)
        if not name.startswith(tuple(f"{room}/" for room in DRIVERS))
        for where in reaches(tree, name)
    ]
    assert not found


@pytest.mark.slow
def test_what_can_be_given_away_is_written_once() -> None:
    """ASSIGNABLE, the shared pool without the reserved CPUs, has one place."""
    assert [name for name, tree in modules_with(KEPT) for _ in subtractions(tree)] == ["node/cpu/state.py"]


@pytest.mark.parametrize(
    ("program", "count"),
    [
        ("free = node.kubelet.manager.cpu.state.default", 2),
        ("manager = subject.manager", 1),
        ("from podslice.node.kubelet import Kubelet, Others", 1),
        ("every = settings.sources.kubelet.every_seconds", 0),
        ("free = node.view.assignable", 0),
    ],
)
def test_reaches_are_found(program: str, count: int) -> None:
    """The search finds what it looks for, and only that."""
    assert len(list(reaches(ast.parse(program)))) == count


def test_subtractions_are_found() -> None:
    """The search for the formula finds it under any owner."""
    assert len(list(subtractions(ast.parse("a = cpu.state.default & ~rules.reserved; b = shared & ~reserved")))) == 2
