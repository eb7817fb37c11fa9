"""Counting groups of resctrl: who has one, in which group, and what becomes of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.config.policy import InterferenceGuards
from podslice.guards.holders import GuardedHolder
from podslice.guards.monitoring import MonitorFacts, monitor_files
from podslice.guards.resctrl import RESCTRL
from podslice.host.kernel.kernelfiles import KernelFiles
from podslice.host.kernel.resctrl import read_monitors
from podslice.node.checkpoints.guard_files import GuardedFile
from podslice.values.cpuset import format_bits, parse_bits
from tests.guards.kernel import ONLINE, KilledError
from tests.guards.node import GuardedNode
from tests.guards.test_resctrl import CLASSES, ResctrlKernel, put_resctrl

MINE = f"{RESCTRL}/mon_groups/podslice-"


def test_largest_first() -> None:
    """As many as the machine counts for, those with most CPUs first; in the group of their class where it is there;
    not those whose CPUs or whose name somebody else has taken."""
    holders = [
        GuardedHolder("u1", "a", 0b11),
        GuardedHolder("u2", "", 0b11111100, cache="fast"),
        GuardedHolder("u3", "b", 0xF00, cache="slow"),
        GuardedHolder("u4", "c", 0xF0000),
        GuardedHolder("u5", "d", 0xF00000),
        GuardedHolder("../u6", "e", 1 << 30),
    ]
    facts = MonitorFacts(3, {f"{MINE}u5-d/": "20-22"}, frozenset({f"{MINE}u4-c/"}))
    found = list(monitor_files(holders, {f"{RESCTRL}/podslice-fast/"}, 0xF00, facts))
    assert [(one.path.removeprefix(f"{RESCTRL}/"), one.text, one.wanted) for one in found] == [
        ("podslice-fast/mon_groups/podslice-u2/", "", "there"),
        ("podslice-fast/mon_groups/podslice-u2/cpus_list", "", "2-7"),
        ("mon_groups/podslice-u5-d/", "there", "there"),
        ("mon_groups/podslice-u5-d/cpus_list", "20-22", "20-23"),
        ("mon_groups/podslice-u1-a/", "", "there"),
        ("mon_groups/podslice-u1-a/cpus_list", "", "0-1"),
    ]
    assert not list(monitor_files(holders, (), 0, MonitorFacts()))


def test_reading_the_groups(tmp_path: Path) -> None:
    """The agent's own groups with their CPUs, others', and how many more the machine counts for; none without
    monitoring."""
    files = KernelFiles(tmp_path)
    put_resctrl(tmp_path)
    for path, text in {
        "mon_groups/podslice-u1-a/cpus_list": "0-1\n",
        "podslice-old/mon_groups/podslice-u2-b/cpus_list": "2\n",
        "operators/mon_groups/x/cpus_list": "6\n",
    }.items():
        (tmp_path / RESCTRL / path).parent.mkdir(parents=True)
        (tmp_path / RESCTRL / path).write_text(text)
    own = (f"{MINE}u1-a/", f"{RESCTRL}/podslice-old/mon_groups/podslice-u2-b/")
    others = {f"{RESCTRL}/mon_groups/x/", f"{RESCTRL}/operators/mon_groups/x/"}
    assert read_monitors(files, own) == MonitorFacts(176 - 3 - 2, dict(zip(own, ("0-1", "2"), strict=True)), others)
    (tmp_path / RESCTRL / "info/L3_MON/num_rmids").unlink()
    assert read_monitors(files, own).room == 0


class MonitoredKernel(ResctrlKernel):
    """With groups that count, below the first group and those of classes: a CPU is in one of each parent, and leaves it
    with its parent."""

    def take(self, path: str, text: str) -> None:
        if "/mon_groups/" not in path:
            super().take(path, text)
            self._trim()
            return
        if path.endswith("/"):
            assert f"{path.partition('mon_groups/')[0]}cpus_list" in self.files, "its parent is there"
            if text:
                self.monitors[f"{path}cpus_list"] = ""
            else:
                del self.monitors[f"{path}cpus_list"]
            return
        parent = path.partition("mon_groups/")[0]
        mine = parse_bits(text)
        assert not mine & ~parse_bits(self.files[f"{parent}cpus_list"]), "only its parent's CPUs"
        for other, listed in self.monitors.items():
            if other.startswith(f"{parent}mon_groups/"):
                self.monitors[other] = format_bits(parse_bits(listed) & ~mine)
        self.monitors[path] = text

    def __init__(self) -> None:
        self.monitors: dict[str, str] = {}
        super().__init__()

    def folder(self, path: str) -> bool:
        return f"{path}cpus_list" in self.monitors if "/mon_groups/" in path else super().folder(path)

    def read(self, path: str) -> str:
        return f"{self.monitors[path]}\n" if path in self.monitors else super().read(path)

    def _trim(self) -> None:
        for path, listed in list(self.monitors.items()):
            parent = f"{path.partition('mon_groups/')[0]}cpus_list"
            if parent in self.files:
                self.monitors[path] = format_bits(parse_bits(listed) & parse_bits(self.files[parent]))
            else:
                del self.monitors[path]

    def of(self, holders: list[GuardedHolder], room: int = 8) -> list[GuardedFile]:
        """The files for these, as a pass finds them."""
        cpus: dict[str, int] = {}
        for one in holders:
            if one.cache:
                cpus[one.cache] = cpus.get(one.cache, 0) | one.cpus
        files = self.found(cpus, CLASSES)
        known = {path.removesuffix("cpus_list"): listed for path, listed in self.monitors.items()}
        wanted = list(monitor_files(holders, {one.path for one in files if one.wanted}, 0, MonitorFacts(room, known)))
        paths = {one.path for one in wanted}
        return [*(one for one in files if one.path not in paths), *wanted]


HOLDERS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "a", "b"])), max_size=4)


def test_groups_that_count_come_and_go() -> None:
    """A container's group has its CPUs, follows it into a class, and goes with it."""
    kernel = MonitoredKernel()
    guard = kernel.guard()
    news = guard.run(kernel.of([GuardedHolder("u1", "x", 0b11), GuardedHolder("u2", "y", 0b100)]), online=ONLINE)
    assert news.refused == ()
    assert kernel.monitors == {f"{MINE}u1-x/cpus_list": "0-1", f"{MINE}u2-y/cpus_list": "2"}
    assert guard.run(kernel.of([GuardedHolder("u1", "x", 0b1001, cache="a")]), online=ONLINE).refused == ()
    assert kernel.monitors == {f"{RESCTRL}/podslice-a/mon_groups/podslice-u1-x/cpus_list": "0,3"}
    assert guard.run(kernel.of([]), online=ONLINE).refused == ()
    assert (kernel.monitors, kernel.stored) == ({}, {})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HOLDERS, st.integers(0, 18)), max_size=5))
def test_killed_anywhere(life: list[tuple[list[tuple[int, str]], int]]) -> None:
    """After any sequence of owners, with the agent killed before any store or write, no group is left once nobody owns
    CPUs (P1, P6)."""
    kernel = MonitoredKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    for owned, kill_at in life:
        holders, taken = [], 0
        for number, (count, cache) in enumerate(owned):
            cpus = (1 << min(8, taken + count)) - (1 << min(8, taken))
            taken += count
            if cpus:
                holders.append(GuardedHolder(f"u{number}", "c", cpus, cache=cache))
        kernel.kill_at, kernel.now = kill_at, kernel.now + 7200
        try:
            guard.run(kernel.of(holders), online=ONLINE)
        except KilledError:
            guard = kernel.guard()
        kernel.kill_at = 0
    for _ in range(2):
        kernel.now += 7200
        kernel.guard().run(kernel.of([]), online=ONLINE)
    assert (kernel.files, kernel.monitors, kernel.stored) == (first, {}, {})


@pytest.mark.parametrize("said", ["enforce containers", "observe containers", "enforce off"])
def test_on_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """The agent makes a group for a container where it may change files and metrics are wanted, and nothing else does;
    it goes with the container."""
    put_resctrl(tmp_path / "root")
    cache, metrics = said.split()
    make, remove = os.mkdir, os.rmdir

    def mkdir(path: Path, *rest: int) -> None:
        """As resctrl does: a folder has its files."""
        make(path, *rest)
        if RESCTRL in str(path):
            (path / "cpus_list").write_text("\n")

    def rmdir(path: Path) -> None:
        (path / "cpus_list").unlink(missing_ok=True)
        remove(path)

    node = GuardedNode(tmp_path, None, rules=InterferenceGuards(cache=cache, metrics=metrics))  # type: ignore[arg-type]
    cpus = node.own()
    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "rmdir", rmdir)
    node.look()
    path = f"{MINE}u1-app/cpus_list"
    if said != "enforce containers":
        assert not (node.root / path).exists()
        return
    assert node.text(path) == cpus
    assert node.troubles == []
    assert node.owner.node is not None
    node.owner.node.remove("u1")
    node.owner.node.kubelet.manager.remove_stale()
    node.look()
    assert not (node.root / path).parent.exists()
