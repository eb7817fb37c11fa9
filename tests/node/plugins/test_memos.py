"""Notes of plugins on containers: kept in podslice_policy_state, and passed to them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from podslice import Node, PodslicePolicy
from podslice.config.policy import PluginEntry, PluginRules
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.plugins import builtin
from podslice.plugins import Bits, CPUAsk, CPUEffects, CPUNode
from podslice.state_files.commands.state import state
from tests.conftest import make_pod
from tests.node.plugins.helpers import TWO_NODES, Base, config

ASKED: list[tuple[str, str]] = []
"""Operation and memo of each Allocate, and the arguments of Deallocate."""


class Counting(Base):
    """Counts how often it was asked about a container."""

    def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects:
        ASKED.append((ask.operation, ask.memo))
        return CPUEffects(memo=ask.memo + "x")

    def deallocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> None:
        ASKED.append(("gone", ask.memo))


class Refusing(Base):
    """Remembers, and then refuses pods of three CPUs."""

    def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects:
        if ask.count == 3:
            raise ValueError
        return CPUEffects(memo="mine")


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are there by name, and none was called yet."""
    ASKED.clear()
    monkeypatch.setattr(
        "podslice.node.plugins.resolve.BUILT_IN", {**builtin.BUILT_IN, "counting": Counting, "refusing": Refusing}
    )


def node(*names: str, files: Mapping[str, bytes] | None = None, **settings: Any) -> Node:
    """A node with these plugins, which starts with these files."""
    rules = PodslicePolicy(plugins=PluginRules(tuple(map(PluginEntry, names))))
    return Node(from_synthetic(TWO_NODES), config(**settings), policy=rules, files=files)


def memos(of: Node) -> object:
    """Return the notes in the file."""
    files = of.manager_files
    return policy_state.decode(files[POLICY_STATE_FILE]).plugins if POLICY_STATE_FILE in files else None


def test_memos_outlive_a_restart() -> None:
    """A memo is in the file with the decision, is handed back after the start, and is gone with its container."""
    one, pod = node("counting"), make_pod("a", ("c", "2"))
    one.admit(pod)
    assert memos(one) == {"a": {"c": {"counting": "x"}}}
    again = node("counting", files=one.files)
    again.readmit([pod])
    assert memos(again) == {"a": {"c": {"counting": "xx"}}}
    again.remove("a")
    assert ASKED == [("admit", ""), ("restart", "x"), ("gone", "xx")]
    assert memos(again) == {}
    assert not again.state.cpu.memos


def test_who_never_came_back_is_forgotten() -> None:
    """The memo of a pod that is gone by the start goes with its CPUs, and one without an owner does not come in."""
    one = node("counting")
    one.admit(make_pod("a", ("c", "2")))
    again = node("counting", files=one.files)
    again.readmit([])
    again.admit(make_pod("b", ("c", "2")))
    assert memos(again) == {"b": {"c": {"counting": "x"}}}
    emptied = {name: data for name, data in one.files.items() if name == POLICY_STATE_FILE}
    assert not node("counting", files=emptied).state.cpu.memos


def test_refused_pods_leave_no_memo() -> None:
    """A pod that is refused after a plugin remembered one of its containers leaves nothing."""
    one = node("refusing", topology_manager_scope="container")
    assert not one.admit(make_pod("a", ("c", "2"), ("d", "3"))).admitted
    assert memos(one) is None
    assert one.admit(make_pod("b", ("c", "2"))).admitted
    assert memos(one) == {"b": {"c": {"refusing": "mine"}}}


def test_without_the_plugin_the_file_stays() -> None:
    """A policy that names the plugin no more takes no memo away; a damaged file has none."""
    one, pod = node("counting"), make_pod("a", ("c", "2"))
    one.admit(pod)
    other = node("static", files=one.files)
    other.readmit([pod])
    assert memos(other) == {"a": {"c": {"counting": "x"}}}
    damaged = {**one.files, POLICY_STATE_FILE: one.files[POLICY_STATE_FILE][:-9]}
    assert node("counting", files=damaged).state.cpu.memos == {}


def test_memos_are_shown_and_verified(tmp_path: Path) -> None:
    """state shows what plugins remember, without letting it speak to the terminal, and names what has no owner."""
    one = node("counting")
    one.admit(make_pod("a", ("c", "2")))
    for name, data in one.files.items():
        (tmp_path / name).write_bytes(data)
    assert 'counting  "x"' in " ".join(CliRunner().invoke(state, ["show", str(tmp_path)]).output.split(" " * 3))
    content = msgspec.to_builtins(policy_state.decode(one.files[POLICY_STATE_FILE]))
    content["plugins"] = {"b": {"c": {"counting": "\x1b[0m"}}}
    (tmp_path / POLICY_STATE_FILE).write_bytes(policy_state.envelop(content))
    assert "\x1b" not in CliRunner().invoke(state, ["show", str(tmp_path)]).output
    assert "plugins.b.c" in CliRunner().invoke(state, ["verify", str(tmp_path)]).output
