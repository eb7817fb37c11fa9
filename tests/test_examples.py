"""The programs in examples/ run, with nothing but the public names, and say what is true."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

import podslice

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


def run(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_fleet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """First fit fills node after node; whoever is asked and has the CPUs can only refuse for their place."""
    placed, asked, left = run("fleet.py", monkeypatch, capsys, "20", "100")
    assert placed.startswith("100 of 100 pods on 7 of 20 nodes in ")
    assert asked == "asked 100 times, refused: 0 by the Topology Manager"
    assert left.endswith(" CPUs are left on the nodes in use")


def test_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The pod that is too wide for a NUMA node fits where nodes are wider, or where the policy is content with two."""
    lines = run("why.py", monkeypatch, capsys)
    wide = [line for line in lines if line.startswith("  too-wide: ")]
    assert [line.split()[1] for line in wide] == ["TopologyAffinityError:", "Guaranteed,", "Guaranteed,"]


def test_resize(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Granted, deferred and infeasible, and granted when room was made."""
    lines = run("resize.py", monkeypatch, capsys)
    assert [line.split(":")[1].strip() for line in lines if line.startswith(("front", "back", "database"))] == [
        "Allocated", "Deferred", "Infeasible", "Allocated",
    ]  # fmt: skip
    assert lines[-1] == "cpu.weight of back: 157"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_examples_use_public_names_only(program: Path) -> None:
    """Examples import public names only."""
    for node in ast.walk(ast.parse(program.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("podslice"):
            assert node.module == "podslice"
            assert {alias.name for alias in node.names} <= set(podslice.__all__)
