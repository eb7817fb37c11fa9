"""Runs on a Dask cluster: a real scheduler and workers on loopback, one of which is killed and replaced."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from podslice.fleet.scenario.store import RunStore
from podslice.fleet.workers.dask_client import dask_executor, translate_error
from podslice.fleet.workers.pool import Task, simulate
from podslice.values.errors import InputError
from tests.fleet.test_helper_pool import is_running
from tests.fleet.test_runs import SCENARIO, files_of, podslice

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None, reason="needs Dask (pip install '.[fleet-dask]')"
    ),
]
PATIENCE = 120


class DaskCluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.stack = stack
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start(
            "scheduler", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(self.file)
        )
        end = time.monotonic() + PATIENCE
        while not self.file.exists() and time.monotonic() < end:
            time.sleep(0.1)
        self.address: str = json.loads(self.file.read_text())["address"]

    def start(self, what: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, "--no-dashboard", *words]
        with (self.folder / f"{what}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def add_worker(self, *words: str) -> None:
        """One more, with one thread. It is there when this returns."""
        words = ("--nthreads", "1", "--host", "127.0.0.1", "--local-directory", str(self.folder), *words)
        log = self.folder / "worker.log"
        before = log.read_text().count("Registered to") if log.exists() else 0
        self.workers.append(self.start("worker", self.address, *words))
        end = time.monotonic() + PATIENCE
        while log.read_text().count("Registered to") == before and time.monotonic() < end:
            time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    (tmp_path / "dask").mkdir()
    with ExitStack() as stack:
        yield DaskCluster(tmp_path / "dask", stack)


def test_the_same_bytes_with_workers_that_come_and_go(cluster: DaskCluster, tmp_path: Path) -> None:
    """Two workers, one of which has no nanny and is killed in the middle, and a third with two threads leave the bytes
    of one process."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps({**SCENARIO, "seeds": list(range(1, 13))}))
    cluster.add_worker("--no-nanny")
    cluster.add_worker()
    command = [sys.executable, "-m", "podslice", "fleet", "run", str(path), "--out", str(tmp_path / "far"),
               "--dask", cluster.address]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    cells = tmp_path / "far" / "cells"
    end = time.monotonic() + PATIENCE
    while not list(cells.glob("*.json")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    cluster.workers[0].kill()
    cluster.add_worker("--nthreads", "2")
    _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    near = podslice("run", path, "--out", tmp_path / "near", "--workers", 1)
    assert near.returncode == 0, near.stderr
    assert len(list(RunStore(tmp_path / "far").list_keys())) == 48
    assert files_of(tmp_path / "far") == files_of(tmp_path / "near")


def long_scenario(folder: Path) -> Path:
    """One cell of some seconds, with a file that is further up."""
    deep = folder / "deep" / "down"
    deep.mkdir(parents=True)
    shapes = [{"cpu": cpus, "memory": f"{cpus}Gi"} for cpus in (1, 2, 4)]
    made = {"shapes": shapes, "arrivals": {"poisson": "2/s"}, "lifetime": {"exponential": "20s"}, "pods": 30_000}
    (folder / "kubelet.yaml").write_text("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")
    data = {**SCENARIO, "seeds": [1], "workload": [{"synthetic": made}], "schedulers": {"kube": {}}}
    data["kubelets"] = {"far": {"file": "../../kubelet.yaml"}}
    (deep / "scenario.yaml").write_text(json.dumps(data))
    return deep / "scenario.yaml"


def begin_run(path: Path, out: Path, cluster: DaskCluster) -> subprocess.Popen[str]:
    """Start a run that reports progress in JSON."""
    command = [sys.executable, "-m", "podslice", "fleet", "run", str(path), "--progress", "json",
               "--out", str(out), "--dask", cluster.address]  # fmt: skip
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def reports_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield a run's reports; its errors as `error`."""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            yield json.loads(line) if line.startswith("{") else {"error": line.strip()}


def is_in_work(found: dict[str, Any]) -> bool:
    return any(0 < share < 1 for share in found.get("shares", {}).values())


def test_cells_report_progress(cluster: DaskCluster, tmp_path: Path) -> None:
    """Shares of cells in work come from the workers, and one that has no worker left waits for the next, which is
    said; files that are further up come along."""
    path = long_scenario(tmp_path)
    cluster.add_worker("--no-nanny")
    process = begin_run(path, tmp_path / "far", cluster)
    killed, notes = False, []
    for found in reports_of(process):
        if not killed and is_in_work(found):
            cluster.workers[0].kill()
            killed = True
        if "note" in found:
            notes.append(found["note"])
            cluster.add_worker()
    assert process.wait(PATIENCE) == 0
    assert killed
    assert notes == [f"no worker is left; the run waits for one: dask worker {cluster.address}"]
    near = podslice("run", path, "--out", tmp_path / "near", "--workers", 1)
    assert near.returncode == 0, near.stderr
    assert files_of(tmp_path / "far") == files_of(tmp_path / "near")


@pytest.mark.parametrize(
    ("who", "code", "line"), [("scheduler", 2, "the scheduler is gone"), ("run", 130, "interrupt")]
)
def test_losses_in_the_middle_of_a_run(cluster: DaskCluster, tmp_path: Path, who: str, code: int, line: str) -> None:
    """A scheduler that is lost ends the run with a line, Ctrl-C ends the cell at its worker; both runs can go on."""
    path = long_scenario(tmp_path)
    cluster.add_worker("--no-nanny")
    process = begin_run(path, tmp_path / "far", cluster)
    ended, errors, helpers = False, [], set[int]()
    for found in reports_of(process):
        if not ended and is_in_work(found):
            ended, helpers = True, children(cluster.workers[0].pid)
            cluster.scheduler.kill() if who == "scheduler" else process.send_signal(signal.SIGINT)
        errors += [found["error"]] if "error" in found else []
    assert process.wait(PATIENCE) == code
    assert sum(line in one for one in errors) == 1, errors
    assert not any("Traceback" in one for one in errors)
    assert helpers
    end = time.monotonic() + PATIENCE
    while any(map(is_running, helpers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_running, helpers))
    near = podslice("run", path, "--out", tmp_path / "far", "--workers", 1, "--resume")
    assert near.returncode == 0, near.stderr


def children(process: int) -> set[int]:
    """Processes that it began."""
    return {int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


@pytest.mark.parametrize(
    ("problem", "said_of_it"),
    [
        (BrokenExecutor("ended with -9"), "the process of a cell was killed, perhaps for its memory (give workers"),
        (ModuleNotFoundError("No module named 'x'"), "the cluster cannot simulate: No module named 'x' (pip"),
        (RuntimeError("Error during deserialization of the task\ngraph"), "the cluster cannot simulate: Error during"),
    ],
)  # fmt: skip
def test_a_cluster_at_fault(problem: Exception, said_of_it: str) -> None:
    """One line each; what a cell itself raises stays what it is."""
    found = translate_error(problem, "tcp://host:1")
    assert isinstance(found, InputError)
    assert said_of_it in str(found)
    own = InputError("its own")
    assert translate_error(own, "tcp://host:1") is own


def test_a_worker_of_another_release() -> None:
    """Its cells would be of another release than the run says."""
    answer = simulate(Task("", "", "cell", release="0.0.1"))
    assert "and the run 0.0.1: install the same there" in answer.problem


def test_a_missing_scheduler(tmp_path: Path) -> None:
    """An address without an answer is one line with a remedy."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO))
    found = podslice("run", path, "--out", tmp_path / "run", "--dask", "tcp://127.0.0.1:9", **os.environ)
    assert found.returncode == 2
    lines = [line for line in found.stderr.splitlines() if line.startswith("podslice: error: ")]
    assert len(lines) == 1
    assert "--dask tcp://127.0.0.1:9: no scheduler answers" in lines[0]
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("address", ["nonsense", "http://host:8786", "tcp://:8786", "tcp://host:port", "a b:1"])
def test_malformed_addresses(address: str) -> None:
    """It is said at once."""
    with pytest.raises(InputError, match="is not an address of a scheduler"), dask_executor(address, ()):
        pass


def test_a_cluster_without_workers(cluster: DaskCluster, tmp_path: Path) -> None:
    """A scheduler without workers is reported, with the command that starts one."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO))
    found = podslice("run", path, "--out", tmp_path / "run", "--dask", cluster.address)
    assert found.returncode == 2
    assert f"has no worker (start some: dask worker {cluster.address})" in found.stderr
