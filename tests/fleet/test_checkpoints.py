"""Cells that are left in the middle of their run and taken up again come to the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.engine import checkpoint, run
from podslice.fleet.engine.nodes import Fleet, FleetNode, NodeEvent
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.workload import Workload
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.run import resolve_defaults
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import RunStore
from podslice.fleet.scheduler.queue import PodQueue
from podslice.fleet.workers.checkpoint_file import CheckpointFile
from podslice.fleet.workers.pool import Task, simulate
from tests.fleet.fleets import churn, fleet_class, fleet_of, shape
from tests.fleet.kills import campaign, write_scenario
from tests.fleet.test_run import EVERYTHING, facts
from tests.fleet.test_runs import files_of, fleet

SHAPES = [shape("1"), shape("2"), shape("3"), shape("500m", owner="job"), shape("7"), shape("5", priority=3)]
EVENTS = (
    NodeEvent(20_000, "drain", (0,)),
    NodeEvent(30_000, "add", (5,)),
    NodeEvent(40_000, "restart", (1,), 1),
    NodeEvent(50_000, "fail", (2,)),
)


def two_classes() -> Fleet:
    """Six nodes, the last of which comes later; the second class is what kubelets restart as."""
    kinds = (fleet_class(), fleet_class(name="b", topology_manager_policy="restricted", memory_manager_policy="Static"))
    return Fleet(kinds, tuple(FleetNode(f"n{number}", number % 2, absent=number == 5) for number in range(6)))


CASES: dict[str, dict[str, Any]] = {
    "sums": {"policy": "most-allocated"},
    "exact": {"filter": "exact", "policy": "most-allocated"},
    "nrt": {"filter": "kube-nrt", "nrt_delay_ms": 3000},
    "events": {"events": EVENTS},
    "preemption": {"preemption": True, "filter": "exact"},
    "samples": {"sample_ms": 2500, "metrics": EVERYTHING},
    "arrivals": {"sample_arrivals": True, "metrics": EVERYTHING, "policy": "fgd"},
    "window": {"percentage": 40, "ties": "first"},
    "next-node": {"retry": "next-node", "policy": "random"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_cell_goes_on_from_any_checkpoint(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left between any two events and taken up by a new process, a cell comes to the same in every figure."""
    monkeypatch.setattr(run, "_REPORT_EVERY", 1)
    workload = churn(SHAPES, 160, gap=400)
    options = CellOptions(**CASES[case], cpus=True)
    kept: list[bytes] = []
    chance = Random(case)
    whole = run_cell(
        two_classes(), workload, options, 3,
        offer=lambda take: kept.append(take()) if chance.random() < 0.05 else None,
    )  # fmt: skip
    assert len(kept) > 8
    for begun in kept:
        assert facts(run_cell(two_classes(), workload, options, 3, saved=begun)) == facts(whole)


def test_a_resumed_cell_keeps_the_same_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run takes the same next checkpoint as the run itself: nothing is lost on the way."""
    monkeypatch.setattr(run, "_REPORT_EVERY", 50)
    workload, options = churn(SHAPES, 300, gap=400), CellOptions(cpus=True, sample_ms=5000)
    kept: list[bytes] = []
    run_cell(two_classes(), workload, options, 3, offer=lambda take: kept.append(take()))
    again: list[bytes] = []
    run_cell(two_classes(), workload, options, 3, saved=kept[2], offer=lambda take: again.append(take()))
    assert again == kept[3:]


def test_pods_that_were_there_are_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """More CPUs than an integer of 64 bits has: sets of CPUs are kept whole."""
    monkeypatch.setattr(run, "_REPORT_EVERY", 10)
    wide = fleet_class("pack:2 numa:1(memory=16GiB) core:96 pu:1")
    workload, options = churn([shape("5"), shape("17")], 60), CellOptions(cpus=True)
    kept: list[bytes] = []
    whole = run_cell(fleet_of(2, wide), workload, options, 1, offer=lambda take: kept.append(take()))
    assert facts(run_cell(fleet_of(2, wide), workload, options, 1, saved=kept[3])) == facts(whole)
    assert max(whole.pods.cpus).bit_length() > 64


def test_an_attribute_that_is_not_plain_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that keeps something that no checkpoint can hold is found by the first checkpoint."""
    monkeypatch.setattr(run, "_REPORT_EVERY", 10)
    begin = PodQueue.bind_initial_pods

    def with_more(queue: PodQueue) -> None:
        queue.more = object()  # type: ignore[attr-defined]
        begin(queue)

    monkeypatch.setattr(PodQueue, "bind_initial_pods", with_more)
    with pytest.raises(checkpoint.NotPlainError, match=r"PodQueue\.more: object is not plain data"):
        run_cell(fleet_of(1), churn(SHAPES, 50), CellOptions(), 1, offer=lambda take: take() and None)


def test_whole_states_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With profile kubelet-1.36 no checkpoint is offered."""
    monkeypatch.setattr(run, "_REPORT_EVERY", 1)
    monkeypatch.setattr(run, "can_checkpoint", lambda queue: False)
    offered: list[object] = []
    run_cell(fleet_of(1), Workload.of([shape("1")], [0], [0]), CellOptions(), 1, offer=offered.append)
    assert not offered


# Files


def test_a_checkpoint_is_kept_every_minute(tmp_path: Path) -> None:
    """Not before a minute has passed, and then with a checksum."""
    now = [0.0]
    one = CheckpointFile(tmp_path / "a.ckpt", "id", clock=lambda: now[0])
    for second in (10, 59):
        now[0] = second
        one.offer(lambda: b"early")
    assert not (tmp_path / "a.ckpt").exists()
    now[0] = 61
    one.offer(lambda: b"state")
    assert CheckpointFile(tmp_path / "a.ckpt", "id").load() == (b"state", "")


@pytest.mark.parametrize(
    ("spoil", "identity", "said"),
    [
        (lambda data: data[:-1], "id", "does not have its checksum"),
        (lambda data: data[:20], "id", "cannot be read"),
        (lambda data: b"[]\n" + data, "id", "cannot be read"),
        (lambda data: b"", "id", "cannot be read"),
        (lambda data: data, "other", "is of another scenario or release"),
    ],
)
def test_a_damaged_checkpoint_is_ignored(
    tmp_path: Path, spoil: Callable[[bytes], bytes], identity: str, said: str
) -> None:
    """Nothing is begun from it, and why is said."""
    path = tmp_path / "a.ckpt"
    one = CheckpointFile(path, "id", clock=iter([0.0, 100.0, 100.0]).__next__)
    one.offer(lambda: b"state")
    path.write_bytes(spoil(path.read_bytes()))
    data, problem = CheckpointFile(path, identity).load()
    assert data == b""
    assert said in problem


@pytest.mark.slow
def test_an_interrupted_run_goes_on_inside_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a cell keeps it; --resume takes it up and makes the same bytes, the checkpoint goes."""
    file = write_scenario(tmp_path / "s")
    assert fleet("run", file, "--out", tmp_path / "whole", "--workers", 1).exit_code == 0
    offered = CheckpointFile.offer
    count = [0]

    def interrupt(one: CheckpointFile, take: Callable[[], bytes]) -> None:
        count[0] += 1
        if count[0] == 5:
            os.kill(os.getpid(), signal.SIGINT)
        offered(one, take)

    monkeypatch.setattr(CheckpointFile, "offer", interrupt)
    result = fleet("run", file, "--out", tmp_path / "run", "--workers", 1)
    assert result.exit_code == 130, result.output
    assert "interrupted; --resume goes on with" in result.output
    (left,) = (tmp_path / "run" / "cells").glob("*.ckpt")
    begun: list[bool] = []
    restore = run.restore_checkpoint
    monkeypatch.setattr(run, "restore_checkpoint", lambda *given: begun.append(True) or restore(*given))
    assert fleet("run", file, "--out", tmp_path / "run", "--workers", 1, "--resume").exit_code == 0
    assert begun == [True]
    assert not left.exists()
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_only_its_cell(tmp_path: Path) -> None:
    """It is said, the cell begins anew and comes to the same."""
    file = write_scenario(tmp_path / "s")
    assert fleet("run", file, "--out", tmp_path / "whole", "--workers", 1).exit_code == 0
    assert fleet("run", file, "--out", tmp_path / "run", "--workers", 1, "--only", "s1").exit_code == 0
    key = list(RunStore(tmp_path / "run").require_identity()["cells"])[1]
    (tmp_path / "run" / "cells" / f"{key}.ckpt").write_bytes(b"not a checkpoint")
    result = fleet("run", file, "--out", tmp_path / "run", "--workers", 1, "--resume")
    assert result.exit_code == 0
    assert f"the checkpoint of cell {key} cannot be read" in result.output
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


KILLED = """
import os, sys
from podslice.fleet.workers import checkpoint_file
checkpoint_file.EVERY = 0.0
writes = [0]
write = checkpoint_file.write_atomically
def counted(path, data):
    writes[0] += 1
    if writes[0] == {number}:
        {how}
    write(path, data)
checkpoint_file.write_atomically = counted
from podslice.entry import main
sys.argv = ["podslice", "fleet", "run", {file!r}, "--out", {out!r}, "--workers", "1", "--resume"]
main()
"""


def test_a_run_killed_before_it_had_an_identity(tmp_path: Path) -> None:
    """The remains of a process killed while it writes its first file are no obstacle; other files are."""
    file = write_scenario(tmp_path / "s")
    (tmp_path / "run" / "cells").mkdir(parents=True)
    (tmp_path / "run" / ".id.json.new").write_bytes(b"{")
    assert fleet("run", file, "--out", tmp_path / "run", "--workers", 1, "--resume", "--only", "s1").exit_code == 0
    (tmp_path / "own" / "cells").mkdir(parents=True)
    (tmp_path / "own" / "cells" / "notes").write_text("mine")
    result = fleet("run", file, "--out", tmp_path / "own", "--workers", 1)
    assert "is not empty and no run" in str(result.exception)


@pytest.mark.slow
@pytest.mark.process
def test_kills_at_any_moment(tmp_path: Path) -> None:
    """Killed between any two events, and before any call that a file is written with, runs end with the same bytes
    (`python -m tests.fleet.kills` does it as often as you like)."""
    killed, runs = campaign(tmp_path, kills=12, seed=17)
    assert killed >= 12
    assert runs < killed


@pytest.mark.slow
@pytest.mark.process
def test_kills_at_random_moments(tmp_path: Path) -> None:
    """A process that is killed again and again, each time somewhere inside a cell, in the end has the bytes of one that
    was left alone."""
    file = write_scenario(tmp_path / "s")
    assert fleet("run", file, "--out", tmp_path / "whole", "--workers", 1).exit_code == 0
    chance = Random(5)
    for kill in range(6):
        number = chance.randrange(2, 5)
        how = (
            "os.kill(os.getpid(), 9)"
            if kill % 2
            else "path.with_name(f'.{path.name}.new').write_bytes(data[:99]); os._exit(9)"
        )
        text = KILLED.format(number=number, how=how, file=str(file), out=str(tmp_path / "run"))
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        assert done.returncode in (9, -9), done.stderr
    assert fleet("run", file, "--out", tmp_path / "run", "--workers", 1, "--resume").exit_code == 0
    assert kill > 2
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")


WORKER = """
import sys, time
from podslice.fleet.workers import checkpoint_file, pool
offer = checkpoint_file.CheckpointFile.offer
def waits(one, take):
    if not checkpoint_file._STOPPING.asked:
        print("runs", flush=True)
    while not checkpoint_file._STOPPING.asked:
        time.sleep(1e-3)
    print("is to stop", flush=True)
    sys.stdin.readline()
    offer(one, take)
checkpoint_file.CheckpointFile.offer = waits
pool._begin_worker()
pool.simulate(pool.Task({scenario!r}, {folder!r}, {key!r}, checkpoint={path!r}, identity={identity!r}))
"""


@pytest.mark.slow
@pytest.mark.process
def test_a_stopped_worker_writes_its_checkpoint(tmp_path: Path) -> None:
    """SIGTERM, which a run that is interrupted sends to its workers, ends a worker between two events; the next run
    goes on from there."""
    file = write_scenario(tmp_path / "s")
    study = Study(load_scenario(file), file.parent)
    scenario, key = json.dumps(resolve_defaults(study.scenario)), study.cells[0].key
    task = Task(scenario, str(file.parent), key, checkpoint=str(tmp_path / "a.ckpt"), identity="id")
    text = WORKER.format(scenario=scenario, folder=task.folder, key=key, path=task.checkpoint, identity="id")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", text], text=True, **pipes) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "runs\n"
        worker.terminate()
        assert worker.stdout.readline() == "is to stop\n"
        worker.terminate()  # as a pool does whose other worker has ended
        worker.communicate("go on\n")
        assert worker.returncode == 1
    assert CheckpointFile(tmp_path / "a.ckpt", "id").load()[0]
    assert simulate(task).data == simulate(task._replace(checkpoint="")).data
