"""Runs on a Dask cluster: a real scheduler and workers on loopback, one of which is killed and replaced."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from podslice.core.errors import InputError
from podslice.fleet.far import dask_executor
from podslice.fleet.store import RunStore
from tests.fleet.test_runs import SCENARIO, files_of, podslice

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("distributed") is None, reason="needs Dask (pip install 'podslice[fleet-dask]')"
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
        self.start("scheduler", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(self.file))
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
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    near = podslice("run", path, "--out", tmp_path / "near", "--workers", 1)
    assert near.returncode == 0, near.stderr
    assert len(list(RunStore(tmp_path / "far").keys())) == 48
    assert files_of(tmp_path / "far") == files_of(tmp_path / "near")


def test_cells_tell_how_far_they_are(cluster: DaskCluster, tmp_path: Path) -> None:
    """Shares of cells in work come from the workers, and one that has no worker left waits for the next, which is
    said; files that are further up come along."""
    folder = tmp_path / "deep" / "down"
    folder.mkdir(parents=True)
    shapes = [{"cpu": cpus, "memory": f"{cpus}Gi"} for cpus in (1, 2, 4)]
    made = {"shapes": shapes, "arrivals": {"poisson": "2/s"}, "lifetime": {"exponential": "20s"}, "pods": 30_000}
    (tmp_path / "kubelet.yaml").write_text("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")
    data = {**SCENARIO, "seeds": [1], "workload": [{"synthetic": made}], "schedulers": {"kube": {}}}
    data["kubelets"] = {"far": {"file": "../../kubelet.yaml"}}
    (folder / "scenario.yaml").write_text(json.dumps(data))
    cluster.add_worker("--no-nanny")
    command = [sys.executable, "-m", "podslice", "fleet", "run", str(folder / "scenario.yaml"), "--progress", "json",
               "--out", str(tmp_path / "far"), "--dask", cluster.address]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    killed, notes = False, []
    with process.stderr:
        for line in process.stderr:
            told = json.loads(line) if line.startswith("{") else {}
            if not killed and any(0 < share < 1 for share in told.get("shares", {}).values()):
                cluster.workers[0].kill()
                killed = True
            if "note" in told:
                notes.append(told["note"])
                cluster.add_worker()
    assert process.wait(PATIENCE) == 0
    assert killed
    assert notes == [f"no worker is left; the run waits for one: dask worker {cluster.address}"]
    near = podslice("run", folder / "scenario.yaml", "--out", tmp_path / "near", "--workers", 1)
    assert near.returncode == 0, near.stderr
    assert files_of(tmp_path / "far") == files_of(tmp_path / "near")


def test_a_scheduler_that_is_not_there(tmp_path: Path) -> None:
    """An address where nobody answers is one line with what to do."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO))
    found = podslice("run", path, "--out", tmp_path / "run", "--dask", "tcp://127.0.0.1:9", **os.environ)
    assert found.returncode == 2
    lines = [line for line in found.stderr.splitlines() if line.startswith("podslice: error: ")]
    assert len(lines) == 1
    assert "--dask tcp://127.0.0.1:9: no scheduler answers" in lines[0]
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("address", ["nonsense", "http://host:8786", "tcp://:8786", "tcp://host:port", "a b:1"])
def test_what_is_no_address(address: str) -> None:
    """It is said at once."""
    with pytest.raises(InputError, match="is no address of a scheduler"), dask_executor(address, ()):
        pass


def test_a_cluster_without_workers(cluster: DaskCluster, tmp_path: Path) -> None:
    """A scheduler without workers is told, with the command that starts one."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO))
    found = podslice("run", path, "--out", tmp_path / "run", "--dask", cluster.address)
    assert found.returncode == 2
    assert f"has no worker (start some: dask worker {cluster.address})" in found.stderr
