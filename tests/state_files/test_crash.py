"""A process killed at any step of any write continues as if it had never been killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from podslice import KubeletConfig, Machine, Pod
from podslice.config.kubelet import MemoryReservation
from podslice.host.state.statefile import RealFiles
from podslice.host.state.store import NodeStore, StateWriteError
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod

CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    memory_manager_policy="Static",
    system_reserved={"memory": "512Mi"},
    reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
    eviction_hard={},
    topology_manager_policy="best-effort",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)
MACHINE: Machine = from_synthetic("pack:2 numa:1(memory=20GiB) core:4 pu:2")


class KilledError(BaseException):
    """The process is gone."""


class Killer(RealFiles):
    """Dies before or after the n-th step; a write that dies may be half done."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.steps = 0

    def _tick(self) -> bool:
        self.steps += 1
        return self.at is not None and self.steps >= self.at

    def write(self, path: Path, data: bytes) -> None:
        if self._tick():
            path.write_bytes(data[: len(data) // 2])
            raise KilledError
        path.write_bytes(data)
        if self._tick():
            raise KilledError

    def rename(self, source: Path, target: Path) -> None:
        if self._tick():
            raise KilledError
        os.replace(source, target)
        if self._tick():
            raise KilledError

    def sync_directory(self, path: Path) -> None:
        if self._tick():
            raise KilledError


def history(seed: int) -> list[Pod | str]:
    """Pods to admit and UIDs to remove."""
    choose = random.Random(seed)
    steps: list[Pod | str] = []
    alive: list[str] = []
    for number in range(8):
        if alive and choose.random() < 0.3:
            steps.append(alive.pop(choose.randrange(len(alive))))
            continue
        uid = f"p{number}"
        alive.append(uid)
        apps = [(f"c{i}", choose.choice([None, "1", "2", "500m"])) for i in range(choose.randint(1, 2))]
        init = ((("i0", "2", choose.random() < 0.5)),) if choose.random() < 0.4 else ()
        steps.append(make_pod(uid, *apps, init=init, budget=choose.choice([None, None, "4"])))
    return steps


def play(store: NodeStore, steps: list[Pod | str], running: dict[str, Pod]) -> None:
    for step in steps:
        if isinstance(step, str):
            running.pop(step, None)
            store.remove(step)
        elif store.admit(step).admitted:
            running[step.metadata.uid] = step


def owners(directory: Path, running: dict[str, Pod]) -> dict[str, bytes]:
    """The files as a restart with these pods leaves them; fails if a running pod is refused."""
    store = NodeStore(directory, MACHINE, CONFIG, running=running.values())
    assert store.refused == []
    return dict(store.node.files)


SEEDS = range(36)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_kill_point(seed: int, tmp_path: Path) -> None:
    """Killed before or after every write, sync and rename, the node restarts with all its pods where they were."""
    steps = history(seed)
    counter = Killer()
    play(NodeStore(tmp_path / "whole", MACHINE, CONFIG, files=counter), steps, {})
    twins: dict[tuple[int, str], dict[str, bytes]] = {}
    for at in range(1, counter.steps + 1):
        directory = tmp_path / f"kill-{at}"
        running: dict[str, Pod] = {}
        done = 0
        try:
            store = NodeStore(directory, MACHINE, CONFIG, files=Killer(at))
            for step in steps:
                play(store, [step], running)
                done += 1
        except KilledError:
            pass
        restarted = NodeStore(directory, MACHINE, CONFIG, running=running.values())
        assert restarted.refused == []
        removed = steps[done] if done < len(steps) else None
        key = done, removed if isinstance(removed, str) else ""
        if key not in twins:
            twin = NodeStore(tmp_path / f"twin-{at}", MACHINE, CONFIG)
            play(twin, steps[:done], {})
            if key[1]:
                twin.remove(key[1])
            twins[key] = dict(twin.node.files)
        assert dict(restarted.node.files) == twins[key]
        play(restarted, steps[done:], running)
        owners(directory, running)


def test_there_are_enough_kill_points(tmp_path: Path) -> None:
    """The histories above have at least 2 000 kill points together."""
    total = 0
    for seed in SEEDS:
        counter = Killer()
        play(NodeStore(tmp_path / str(seed), MACHINE, CONFIG, files=counter), history(seed), {})
        total += counter.steps
    assert total >= 2000


class FullDisk(RealFiles):
    """Takes nothing more once it is `full`."""

    full = False

    def write(self, path: Path, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write(path, data)


def test_failed_write_takes_the_decision_back(tmp_path: Path) -> None:
    """A decision that is not on disk was not made."""
    disk = FullDisk()
    store = NodeStore(tmp_path, MACHINE, CONFIG, files=disk)
    before = dict(store.node.files)
    disk.full = True
    with pytest.raises(StateWriteError, match="No space left on device"):
        store.admit(make_pod("p", ("c", "2")))
    assert dict(store.node.files) == before


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_a_running_pod_stays_when_it_is_admitted_again_on_a_full_disk(tmp_path: Path, profile: str) -> None:
    """An admission that cannot be written leaves the node as it was, with the pod if it was there before."""
    disk = FullDisk()
    store = NodeStore(tmp_path, MACHINE, CONFIG, profile=profile, files=disk)
    for name in ("stays", "leaves"):
        assert store.admit(make_pod(name, ("c", "2"))).admitted
    disk.full = True
    with pytest.raises(StateWriteError):
        store.remove("leaves")
    before = store.node.state
    with pytest.raises(StateWriteError):
        store.admit(make_pod("stays", ("c", "2")))
    assert store.node.pods == ("stays",)
    assert store.node.state == before
    disk.full = False
    store.save()
    again = NodeStore(tmp_path, MACHINE, CONFIG, profile=profile, running=[make_pod("stays", ("c", "2"))])
    assert again.refused == []
    assert again.node.view.owners == store.node.view.owners


CHILD = """
    import sys
    from pathlib import Path
    from podslice.host.state.store import NodeStore
    from tests.conftest import make_pod
    from tests.state_files.test_crash import CONFIG, MACHINE
    store = NodeStore(Path(sys.argv[1]), MACHINE, CONFIG)
    for number in range(10000):
        uid = f"p{number % 3}"
        if uid in store.node.kubelet.active:
            store.remove(uid)
            print("-" + uid, flush=True)
        else:
            assert store.admit(make_pod(uid, ("c", "2"))).admitted
            print("+" + uid, flush=True)
"""


@pytest.mark.slow
@pytest.mark.process
def test_sigkill(tmp_path: Path) -> None:
    """A real child process, really killed, leaves a directory that loads with every pod it had reported."""
    choose = random.Random(7)
    for attempt in range(6):
        directory = tmp_path / str(attempt)
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        lines = [child.stdout.readline().strip() for _ in range(choose.randint(1, 60))]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.read().split()
        child.wait()
        child.stdout.close()
        running: dict[str, Pod] = {}
        for line in lines:
            if line.startswith("+"):
                running[line[1:]] = make_pod(line[1:], ("c", "2"))
            else:
                running.pop(line[1:], None)
        assert len(lines) > 0
        store = NodeStore(directory, MACHINE, CONFIG, running=running.values())
        assert store.refused == []
