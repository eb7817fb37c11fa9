"""Writes of others to the cgroups of pods are corrected at once, with bounds."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from podslice.agent.process.daemon import Agent
from podslice.host.kernel.filewrites import LOST, FileWrites
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.fakenode import FakeTree
from tests.agent.test_daemon import api_pod, with_agent
from tests.clock import until
from tests.service.fake_runtime import FakeContainer, FakeRuntime

Test = Callable[[Agent, FakeRuntime, FakeTree], Awaitable[None]]
NEVER = 3600.0


def on_node(folder: Path, monkeypatch: pytest.MonkeyPatch, test: Test, writes: FileWrites | None = None) -> None:
    """With an agent that makes no pass over everything while the test runs."""
    monkeypatch.setattr("podslice.agent.cgroups.write_watcher.FOLLOW_SECONDS", 0.01)
    monkeypatch.setattr("podslice.agent.cgroups.write_watcher.PAUSE_SECONDS", 0.01)
    followed = writes or FileWrites()

    async def main(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("owner", "4"))
        await api.apply(api_pod("shares", "100m"))
        await test(agent, fake, FakeTree(folder / "cgroup"))

    with_agent(folder, main, writes=followed, reconcileSeconds=NEVER)
    followed.close()


async def made(fake: FakeRuntime, tree: FakeTree, uid: str) -> tuple[FakeContainer, str]:
    """A container that runs, its cgroups as the runtime and the kubelet make them, and the path of its own."""
    container = await fake.create_container(await fake.run_pod(uid), "app")
    path = container.message.linux.cgroups_path.strip("/")
    tree.add(path, cpuset_cpus=container.cpus, cpuset_mems=container.mems)
    tree.add(path.rpartition("/")[0])
    return container, path


async def started(agent: Agent, fake: FakeRuntime, tree: FakeTree, uid: str) -> tuple[FakeContainer, str]:
    """The same, once it is followed."""
    container, path = await made(fake, tree, uid)
    await until(lambda: agent.upkeep.write_watcher.followed >= {uid, container.message.id})
    return container, path


def test_put_right_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota that comes back on a pod whose containers own CPUs, and a CPU set that is written over, are put right
    long before the next pass, and counted as drift. What we write ourselves is not."""

    async def test(agent: Agent, fake: FakeRuntime, tree: FakeTree) -> None:
        owner, path = await started(agent, fake, tree, "owner")
        shares, other = await started(agent, fake, tree, "shares")
        pod = path.rpartition("/")[0]
        tree.write(pod, "cpu.max", "400000 100000")
        await until(lambda: tree.text(pod, "cpu.max") == "max 100000")
        tree.write(other, "cpuset.cpus", "0-31")
        tree.write(path, "cpuset.cpus", "0-31")
        await until(
            lambda: (tree.text(path, "cpuset.cpus"), tree.text(other, "cpuset.cpus")) == (owner.cpus, shares.cpus)
        )
        await until(lambda: len(agent.upkeep.drifts) == 3)
        assert {(one.pod, one.kind) for one in agent.upkeep.drifts} == {
            ("default/owner", "quota"), ("default/owner", "cpus"), ("default/shares", "cpus")
        }  # fmt: skip
        assert all(one.repaired for one in agent.upkeep.drifts)
        tree.write(pod, "cpu.max", "max 100000")
        tree.write(path, "cpuset.cpus", "0-31")
        await until(lambda: len(agent.upkeep.drifts) == 4)

    on_node(tmp_path, monkeypatch, test)


def test_who_insists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who writes again and again is answered after a pause each time, not as often as he writes."""

    async def test(agent: Agent, fake: FakeRuntime, tree: FakeTree) -> None:
        monkeypatch.setattr("podslice.agent.cgroups.write_watcher.PAUSE_SECONDS", NEVER)
        _, path = await started(agent, fake, tree, "owner")
        tree.write(path, "cpuset.cpus", "0-31")
        await until(lambda: len(agent.upkeep.drifts) == 1)
        for _ in range(50):
            tree.write(path, "cpuset.cpus", "0-31")
            await asyncio.sleep(0.01)
        assert len(agent.upkeep.drifts) == 1
        assert tree.text(path, "cpuset.cpus") == "0-31"

    on_node(tmp_path, monkeypatch, test)


def test_a_cgroup_that_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that has gone is not followed any more, the next one is."""

    async def test(agent: Agent, fake: FakeRuntime, tree: FakeTree) -> None:
        first, _ = await started(agent, fake, tree, "owner")
        await fake.remove_container(first.message.id)
        await until(lambda: first.message.id not in agent.upkeep.write_watcher.followed)
        _, path = await started(agent, fake, tree, "shares")
        tree.write(path, "cpuset.cpus", "0")
        await until(lambda: agent.upkeep.drifts)
        assert agent.upkeep.drifts[-1].pod == "default/shares"

    on_node(tmp_path, monkeypatch, test)


class Scarce(FileWrites):
    """A kernel that gives no more."""

    def follow(self, path: Path) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_kernel_that_gives_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be followed one line says so, and the pass over everything finds what was written."""

    async def test(agent: Agent, fake: FakeRuntime, tree: FakeTree) -> None:
        troubles: list[str] = []
        agent.upkeep.write_watcher._trouble = lambda what, text: troubles.append(text)
        _, path = await made(fake, tree, "owner")
        tree.write(path, "cpuset.cpus", "0-31")
        await until(lambda: troubles)
        assert "cannot be followed: No space left on device" in troubles[0]
        assert not agent.upkeep.drifts
        assert {one.kind for one in await agent.upkeep.look()} == {"cpus"}

    on_node(tmp_path, monkeypatch, test, Scarce())


class Deaf(FileWrites):
    """A kernel that could not keep up."""

    def read(self) -> set[int]:
        return {LOST} if super().read() else set()


def test_a_kernel_that_could_not_keep_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not say what was written, all that is followed is looked at."""

    async def test(agent: Agent, fake: FakeRuntime, tree: FakeTree) -> None:
        _, path = await started(agent, fake, tree, "owner")
        tree.write(path, "cpuset.cpus", "0-31")
        await until(lambda: agent.upkeep.drifts)

    on_node(tmp_path, monkeypatch, test, Deaf())


def test_files_that_are_written(tmp_path: Path) -> None:
    """Each file that was written is told once, under its own number; those that were only read, are forgotten or gone
    are not."""
    names = ("a", "b", "c", "d")
    for name in names:
        (tmp_path / name).write_text("1")
    writes = FileWrites()
    numbers = {name: writes.follow(tmp_path / name) for name in names}
    assert len(set(numbers.values())) == len(names)
    assert writes.follow(tmp_path / "a") == numbers["a"]
    assert writes.read() == set()
    for _ in range(3):
        (tmp_path / "a").write_text("2")
    (tmp_path / "b").read_text()
    writes.forget(numbers["c"])
    (tmp_path / "c").write_text("2")
    (tmp_path / "d").unlink()
    writes.forget(numbers["d"])
    assert writes.read() == {numbers["a"]}
    assert writes.read() == set()
    with pytest.raises(FileNotFoundError):
        writes.follow(tmp_path / "e")
    writes.close()
