"""Two agents on one node, left-overs of dead ones, folders that are not ours, and disks that come back."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from podslice.agent.admitting import Admitting, heal
from podslice.agent.process.exclusive import DirectoryLock, SocketFile
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.settings import settings_from_dict
from podslice.agent.status.local import bind_private
from podslice.host.state import statefile
from podslice.service.pacing import BackOff
from podslice.values.cpuset import parse_bits
from podslice.values.errors import InputError
from tests.agent.helpers import World, in_world
from tests.conftest import make_pod

KIND = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}


def test_one_agent_per_state_directory(tmp_path: Path) -> None:
    """The second is refused in one line with the process that has it, until that one is gone."""
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.take()
    with pytest.raises(InputError, match=rf"stateDirectory: .* used by another agent, process {os.getpid()} \(stop"):
        second.take()
    first.release()
    second.take()
    second.release()


def test_a_living_agents_socket_is_left_alone(tmp_path: Path) -> None:
    """A dead one's is replaced; on the way out only our own file goes."""
    file, other = SocketFile(tmp_path / "s"), SocketFile(tmp_path / "s")
    first = bind_private(file)
    with pytest.raises(OSError, match="another process listens"):
        bind_private(other)
    other.remove()
    assert file.path.is_socket()
    first.close()
    second = bind_private(other)
    file.remove()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(other.path))
    second.close()
    other.remove()
    assert not other.path.exists()


def test_only_marked_folders_are_removed(tmp_path: Path) -> None:
    """Files of other programs in the folder stay, also those beside our own."""

    async def test(world: World) -> None:
        folder = tmp_path / "containers"
        await world.run(make_pod("a", ("app", "1")))
        await world.run(make_pod("b", ("app", "1")))
        (folder / "etc").mkdir()
        (folder / "etc" / "passwd").write_text("x")
        (folder / "link").symlink_to(folder / "etc")
        (folder / "sandbox-b-app" / "theirs").write_text("x")
        ContainerFiles(folder).keep_only(set())
        assert sorted(path.name for path in folder.iterdir()) == ["etc", "link", "sandbox-b-app"]
        assert (folder / "etc" / "passwd").read_text() == "x"

    in_world(tmp_path, test)


@pytest.mark.parametrize(
    ("state", "files", "field"),
    [
        ("/var/lib/podslice", "/var/lib/podslice", "containerFiles"),
        ("/var/lib/podslice", "/var/lib/podslice/containers", "containerFiles"),
        ("/var/lib/podslice/state", "/var/lib/podslice", "containerFiles"),
        ("/var/lib/podslice", "/var/lib/x/../podslice", "containerFiles"),
        ("/var/lib/podslice", "/etc", "containerFiles"),
        ("/var/lib/podslice", "/etc/podslice", "containerFiles"),
        ("/var/lib/podslice", "/", "containerFiles"),
        ("/var/lib", "/run/podslice/containers", "stateDirectory"),
        ("/var/lib/kubelet", "/run/podslice/containers", "stateDirectory"),
    ],
)
def test_directories_of_others_are_refused(state: str, files: str, field: str) -> None:
    """Overlapping directories and those of the system, before anything is written or removed."""
    with pytest.raises(InputError) as caught:
        settings_from_dict(KIND | {"stateDirectory": state, "containerFiles": files})
    assert caught.value.path == field
    settings_from_dict(KIND | {"stateDirectory": "/var/lib/podslice", "containerFiles": ""})


def test_leftovers_of_killed_processes_go(tmp_path: Path) -> None:
    """Half-written files beside the state and the pods' files are removed at the next start, others' are not."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        await world.kill()
        state = tmp_path / "state"
        left = [state / "pods" / ".b.json.new", state / ".cpu_manager_state.new"]
        for path in (*left, state / ".mine.new"):
            path.write_text("{")
        await world.start()
        assert [path.exists() for path in left] == [False, False]
        assert (state / ".mine.new").exists()
        world.check()

    in_world(tmp_path, test)


class BrokenDisk(statefile.RealFiles):
    """Writes fail while `broken`."""

    broken = False

    def write(self, path: Path, data: bytes) -> None:
        if BrokenDisk.broken:
            raise OSError(5, "Input/output error")
        super().write(path, data)


def test_safe_mode_ends_with_the_disks_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start on a disk that does not work is tried again, more and more slowly, without a restart of anything; who
    owned CPUs keeps them. A damaged file stays a reason to ask people."""
    monkeypatch.setattr(statefile, "RealFiles", BrokenDisk)
    monkeypatch.setattr("podslice.host.state.store.RealFiles", BrokenDisk)

    async def test(world: World) -> None:
        slept: list[float] = []
        one = (await world.run(make_pod("a", ("app", "4"))))["app"]
        had = one.cpus
        await world.kill()
        (tmp_path / "state" / "memory_manager_state").unlink(missing_ok=True)
        (tmp_path / "state" / "cpu_manager_state").unlink()
        BrokenDisk.broken = True
        await world.start()
        assert "Input/output error" in world.owner.safe_mode or "owns" in world.owner.safe_mode
        world.owner.admitting.distrust("Input/output error", disk=True)

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 5:
                BrokenDisk.broken = False
            await asyncio.sleep(0)

        reconnected = asyncio.Event()
        task = asyncio.ensure_future(
            heal(world.owner.admitting, reconnected.set, sleep=sleep, back_off=BackOff(1.0, 60.0))
        )
        await asyncio.wait_for(reconnected.wait(), 5)
        task.cancel()
        assert len(slept) >= 5
        assert slept[4] > 4 * slept[0]
        assert one.cpus == had

    in_world(tmp_path, test)


def test_a_disk_that_comes_back_opens_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start on a broken disk to exclusive CPUs for new pods, with nothing restarted."""
    monkeypatch.setattr(statefile, "RealFiles", BrokenDisk)
    monkeypatch.setattr("podslice.host.state.store.RealFiles", BrokenDisk)

    async def test(world: World) -> None:
        await world.kill()
        (tmp_path / "state" / "cpu_manager_state").unlink()
        BrokenDisk.broken = True
        await world.start()
        assert world.owner.admitting.may_heal
        world.source.add(make_pod("b", ("app", "2")))
        sandbox = await world.fake.run_pod("b")
        with pytest.raises(RPCError, match="state cannot be trusted"):
            await world.fake.create_container(sandbox, "app")
        BrokenDisk.broken = False
        task = asyncio.ensure_future(
            heal(world.owner.admitting, world.fake.drop_plugin, sleep=lambda seconds: asyncio.sleep(0.001))
        )
        async with asyncio.timeout(5):
            while world.owner.safe_mode or not world.fake.attached.is_set():
                await asyncio.sleep(0.01)
        task.cancel()
        assert parse_bits((await world.fake.create_container(sandbox, "app")).cpus).bit_count() == 2
        world.check()

    in_world(tmp_path, test)


def test_damage_is_not_healed(tmp_path: Path) -> None:
    """A file that makes no sense is for people to correct."""

    async def test(world: World) -> None:
        await world.run(make_pod("a", ("app", "4")))
        await world.kill()
        (tmp_path / "state" / "cpu_manager_state").write_bytes(b"damaged")
        await world.start()
        assert (bool(world.owner.safe_mode), world.owner.admitting.may_heal) == (True, False)
        assert isinstance(world.owner.admitting, Admitting)

    in_world(tmp_path, test)
