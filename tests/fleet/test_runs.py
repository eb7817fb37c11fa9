"""Runs: the same bytes whichever process simulates, nothing lost whatever ends them, tables of all decisions."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from click.testing import CliRunner, Result

from podslice.cli.main import cli
from podslice.fleet.report.comparing import Configuration, difference, mean_over, rank
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.codec import DamagedError, decode, encode
from podslice.fleet.scenario.run import read_inputs
from podslice.fleet.scenario.scenario_file import API_VERSION, load_scenario
from podslice.fleet.scenario.store import RunStore
from podslice.fleet.traces.rows import open_rows
from podslice.fleet.workers.helper import unpack_files
from podslice.fleet.workers.pool import Task, simulate, simulate_cell
from podslice.values.errors import InputError
from tests.read_documents import read_document

SCENARIO: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "name": "small",
    "seeds": [1, 2],
    "machines": {"m": {"from": "pack:2 [numa] core:4 pu:2", "memory": "64Gi", "gpus": 2, "gpuModel": "G"}},
    "nodes": [{"class": "m", "count": 6}],
    "workload": [
        {
            "synthetic": {
                "shapes": [{"cpu": 3, "weight": 3}, {"cpu": 6, "memory": "8Gi", "weight": 2}, {"cpu": 1, "gpus": 1}],
                "arrivals": {"poisson": "1/s"},
                "lifetime": {"exponential": "12s"},
                "pods": 150,
            }
        }
    ],
    "kubelets": {
        "none": {},
        "single": {
            "set": {
                "cpuManagerPolicy": "static",
                "topologyManagerPolicy": "single-numa-node",
                "systemReserved": {"cpu": "1"},
            }
        },
    },
    "schedulers": {"kube": {}, "exact": {"filter": "exact"}},
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO))
    return path


def fleet(*words: object) -> Result:
    return CliRunner().invoke(cli, ["fleet", *map(str, words)])


def files_of(folder: Path) -> dict[str, str]:
    """Digests of everything below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def podslice(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "podslice", "fleet", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=280)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was made by one process, with its scenario beside it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "scenario.yaml").write_text(json.dumps(SCENARIO))
    result = fleet("run", folder / "scenario.yaml", "--out", folder / "run", "--workers", 1)
    assert result.exit_code == 0, result.output
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_tables_are_described(finished_run: Path) -> None:
    """Every table is there with its columns in their order, each with a type that its cells have, and a meaning; the
    document is of its schema."""
    data = read_document((finished_run / "run" / "tables" / "tables.json").read_text(), "FleetTables")
    assert {table["name"] for table in data["tables"]} == {"cells", "series", "refusals", "pods", "nodes"}
    for table in data["tables"]:
        found = rows(finished_run / "run" / "tables" / table["file"])
        columns = {column["name"]: column["type"] for column in table["columns"]}
        assert all(column["meaning"] for column in table["columns"])
        for row in found:
            assert list(row) == list(columns)
            for name, text in row.items():
                if text and columns[name] != "text":
                    assert float(text) == (int(text) if columns[name] in ("integer", "decimal") else float(text))


def test_a_run_keeps_every_cell_and_tables(finished_run: Path) -> None:
    """Each cell has an outcome and a page; the tables have a row for every cell, pod and node."""
    run = finished_run / "run"
    assert len(list((run / "cells").glob("*.bin"))) == len(list((run / "cells").glob("*.json"))) == 8
    cells = rows(run / "tables" / "cells.csv")
    assert [row["cell"] for row in cells] == list(RunStore(run).list_keys())
    assert len(rows(run / "tables" / "pods.csv.gz")) == 8 * 150
    assert len(rows(run / "tables" / "nodes.csv.gz")) == 8 * 6
    exact = [row for row in cells if row["scheduler"] == "exact"]
    assert {row["refused_attempts"] for row in exact} == {"0"}, "an exact filter has no refusals"


def test_pods_of_the_tables_add_up(finished_run: Path) -> None:
    """Running, ended and pods that never ran are all that arrived; an owner's CPUs are as many as it asked for."""
    tables = finished_run / "run" / "tables"
    cells = {row["cell"]: row for row in rows(tables / "cells.csv")}
    pods = rows(tables / "pods.csv.gz")
    for key, cell in cells.items():
        mine = [pod for pod in pods if pod["cell"] == key]
        assert sum(bool(pod["bound_ms"]) for pod in mine) == int(cell["bound"])
        assert sum(bool(pod["ended_ms"]) for pod in mine) == int(cell["ended"])
    owners = [pod for pod in pods if pod["cpus"]]
    assert owners
    for pod in owners[:50]:
        count = sum(
            int(last or first) - int(first) + 1
            for first, _, last in (part.partition("-") for part in pod["cpus"].split(","))
        )
        assert pod["shape"].startswith(f"{count} CPU")


def test_every_configuration_meets_the_same_pods(finished_run: Path) -> None:
    """Arrivals and shapes of a seed are the same in all cells, and others for another seed."""
    pods = rows(finished_run / "run" / "tables" / "pods.csv.gz")
    lists: dict[str, set[tuple[str, ...]]] = {}
    for key in {pod["cell"] for pod in pods}:
        seed = key.rpartition("~")[2]
        met = tuple(f"{pod['arrival_ms']} {pod['shape']}" for pod in pods if pod["cell"] == key)
        lists.setdefault(seed, set()).add(met)
    assert [len(met) for met in lists.values()] == [1, 1]
    assert lists["s1"] != lists["s2"]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "hashing"), [(2, "0"), (5, "77")])
@pytest.mark.process
def test_the_same_bytes_from_any_process(finished_run: Path, tmp_path: Path, workers: int, hashing: str) -> None:
    """Two and five processes with other hash seeds leave the bytes that one process left."""
    found = podslice("run", finished_run / "scenario.yaml", "--out", tmp_path / "run", "--workers", workers,
                     PYTHONHASHSEED=hashing)  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert files_of(tmp_path / "run") == files_of(finished_run / "run")


@pytest.mark.slow
@pytest.mark.process
def test_killed_runs_go_on_to_the_same_bytes(finished_run: Path, tmp_path: Path) -> None:
    """A run that is killed again and again, at any moment, ends with the bytes of one that was not."""
    chance = random.Random(5)
    command = [sys.executable, "-m", "podslice", "fleet", "run", str(finished_run / "scenario.yaml"), "--out",
               str(tmp_path / "run"), "--workers", "2", "--resume"]  # fmt: skip
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0)
        try:
            process.wait(1 + 3 * chance.random())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = podslice(*command[4:])
    assert found.returncode == 0, found.stderr
    assert files_of(tmp_path / "run") == files_of(finished_run / "run")


@contextmanager
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in `run` whose two workers are at it. Its stderr ends when the last of its processes has."""
    many = {**SCENARIO, "seeds": list(range(400))}
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(many))
    command = [sys.executable, "-m", "podslice", "fleet", "run", str(path), "--out", str(tmp_path / "run"),
               "--workers", "2"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    cells = tmp_path / "run" / "cells"
    end = time.monotonic() + 200
    while not list(cells.glob("*.json")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    try:
        assert process.poll() is None
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
@pytest.mark.process
def test_an_interrupted_run_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals, send: Callable[[int, int], None]
) -> None:
    """Ctrl-C, and SIGTERM to the first process alone, end a run and its workers with 130 and one line, and leave what
    --resume takes."""
    with long_run(tmp_path) as process:
        send(process.pid, number)
        _, text = process.communicate(timeout=200)
    assert process.returncode == 130, text
    assert f"interrupted; --resume goes on with {tmp_path / 'run'}" in text
    assert "Traceback" not in text
    store = RunStore(tmp_path / "run")
    made = list(store.list_keys())
    assert made
    assert all(store.find_problem(key, store.require_identity()["id"]) is None for key in made)


@pytest.mark.slow
@pytest.mark.process
def test_workers_end_when_the_run_is_killed(tmp_path: Path) -> None:
    """The first process is killed without a signal to its workers: none of them stays."""
    with long_run(tmp_path) as process:
        process.kill()
        process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL


def test_resume_makes_only_what_is_missing_or_damaged(finished_run: Path, tmp_path: Path) -> None:
    """A damaged cell is reported and made again, a whole one is kept, and the bytes are those of an unharmed run."""
    run = tmp_path / "run"
    run.mkdir()
    for path in (finished_run / "run").rglob("*"):
        target = run / path.relative_to(finished_run / "run")
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    keys = list(RunStore(run).list_keys())
    (run / "cells" / f"{keys[0]}.bin").write_bytes(b"damaged")
    (run / "cells" / f"{keys[1]}.json").unlink()
    kept = (run / "cells" / f"{keys[2]}.bin").stat().st_mtime_ns
    result = fleet("run", finished_run / "scenario.yaml", "--out", run, "--workers", 1, "--resume")
    assert result.exit_code == 0
    assert f"cell {keys[0]} does not have its checksum; it is made again" in result.output
    assert (run / "cells" / f"{keys[2]}.bin").stat().st_mtime_ns == kept
    assert files_of(run) == files_of(finished_run / "run")


def test_a_run_is_not_mixed_with_another(finished_run: Path, scenario: Path) -> None:
    """Without --resume a run is not touched, and with it only by the same scenario and files."""
    again = CliRunner().invoke(cli, ["fleet", "run", str(scenario), "--out", str(finished_run / "run")])
    assert isinstance(again.exception, InputError)
    assert "there is a run already" in str(again.exception)
    scenario.write_text(json.dumps({**SCENARIO, "seeds": [7]}))
    other = fleet("run", scenario, "--out", finished_run / "run", "--resume")
    assert "is a run of another scenario" in str(other.exception)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the run ends in one line; with room again --resume goes on."""
    kept: list[Path] = []

    def write(path: Path, data: bytes, _: object) -> None:
        if len(kept) > 5:
            raise OSError(28, "No space left on device")
        path.write_bytes(data)
        kept.append(path)

    with monkeypatch.context() as patched:
        patched.setattr("podslice.fleet.scenario.store.write_atomically", write)
        result = fleet("run", scenario, "--out", tmp_path / "run", "--workers", 1)
    assert "cannot be written: No space left on device (what is there stays; run again with --resume)" in str(
        result.exception
    )
    assert fleet("run", scenario, "--out", tmp_path / "run", "--workers", 1, "--resume").exit_code == 0


def test_configurations_that_do_not_start_are_named(scenario: Path, tmp_path: Path) -> None:
    """The others are simulated, and the exit code is 1."""
    kubelets = {**SCENARIO["kubelets"], "bare": {"set": {"cpuManagerPolicy": "static"}}}
    scenario.write_text(json.dumps({**SCENARIO, "kubelets": kubelets, "seeds": [1]}))
    result = fleet("run", scenario, "--out", tmp_path / "run", "--workers", 1)
    assert result.exit_code == 1
    assert "kubelet bare does not start on nodes of class m: " in result.output
    assert len(list(RunStore(tmp_path / "run").list_keys())) == 4


def test_print_is_a_scenario_with_the_same_id(scenario: Path, tmp_path: Path) -> None:
    """The output of --print has every default, and is the same scenario."""
    printed = fleet("run", scenario, "--print").output
    head, _, text = printed.partition("\n")
    (tmp_path / "again.yaml").write_text(text)
    again = fleet("run", tmp_path / "again.yaml", "--print").output
    assert again == printed
    assert head.startswith("# id ")
    assert "ties: random" in text


def test_a_dry_run_says_what_and_how_long(scenario: Path, tmp_path: Path) -> None:
    """Nothing is written; cells, nodes, what is assumed and a time are printed."""
    result = fleet("run", scenario, "--dry-run", "--out", tmp_path / "run")
    assert "small: 8 cells to make" in result.output
    assert "pods in a cell: 150; at " in result.output
    assert not (tmp_path / "run").exists()


def test_only_some_cells(scenario: Path, tmp_path: Path) -> None:
    """--only makes the cells with a text in their key; the others can be made later."""
    assert fleet("run", scenario, "--out", tmp_path / "run", "--workers", 1, "--only", "~exact~").exit_code == 0
    assert len(list(RunStore(tmp_path / "run").list_keys())) == 4
    unknown = fleet("run", scenario, "--out", tmp_path / "x", "--only", "nothing")
    assert "no cell's key has 'nothing' in it" in str(unknown.exception)


def test_parquet_tables_say_the_same(finished_run: Path, tmp_path: Path) -> None:
    """Parquet has the rows of the CSV files."""
    pytest.importorskip("pyarrow", reason="needs pyarrow (pip install '.[fleet-parquet]')")
    run = tmp_path / "run"
    assert (
        fleet("run", finished_run / "scenario.yaml", "--out", run, "--workers", 1, "--format", "parquet").exit_code == 0
    )
    for name in ("pods", "nodes", "refusals", "series"):
        with open_rows(run / "tables" / f"{name}.parquet") as table:
            found = [dict(zip(table.columns, row, strict=True)) for _, row in table.rows]
        wanted = rows(finished_run / "run" / "tables" / f"{name}.csv.gz")
        assert len(found) == len(wanted)
        assert found[:50] == wanted[:50]


def test_parquet_files_say_what_they_hold(finished_run: Path, tmp_path: Path) -> None:
    """A file has the columns and types of tables.json, whole numbers of more than 64 bits as decimals, its
    name and version, and nothing that depends on when it was written."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (pip install '.[fleet-parquet]')")
    runs = tmp_path / "run", tmp_path / "again"
    for run in runs:
        result = fleet("run", finished_run / "scenario.yaml", "--out", run, "--workers", 1, "--format", "parquet")
        assert result.exit_code == 0
    types = {"text": "string", "integer": "int64", "number": "double", "decimal": "decimal128(38, 0)"}
    describe = json.loads((runs[0] / "tables" / "tables.json").read_text())["tables"]
    assert {one["name"] for one in describe} == {"cells", "pods", "nodes", "refusals", "series"}
    for table in describe:
        found = parquet.read_schema(runs[0] / "tables" / table["file"])
        assert found.metadata == {b"podslice.table": table["name"].encode(), b"podslice.version": b"1"}
        assert {one.name: str(one.type) for one in found} == {
            column["name"]: types[column["type"]] for column in table["columns"]
        }
        assert (runs[0] / "tables" / table["file"]).read_bytes() == (runs[1] / "tables" / table["file"]).read_bytes()


def test_a_damaged_trace_is_known_before_any_cell(scenario: Path, tmp_path: Path) -> None:
    """A row with a bad number at the end of a trace ends the run with its line, and nothing is simulated; what remedies
    say is meant for a scenario."""
    data = json.loads(scenario.read_text())
    trace = scenario.parent / "mine.csv"
    data["workload"] = [{"trace": "mine.csv", "columns": {"cpu": "c:cores"}}]
    scenario.write_text(json.dumps(data))
    trace.write_text("c,m\n" + "1,2\n" * 50 + "x,2\n")
    result = fleet("run", scenario, "--out", tmp_path / "run")
    assert "mine.csv: line 52 column c" in str(result.exception)
    assert not (tmp_path / "run").exists()
    data["workload"] = [{"trace": "mine.csv"}]
    scenario.write_text(json.dumps(data))
    unknown = str(fleet("run", scenario, "--out", tmp_path / "run").exception)
    assert 'columns: {cpu: "COLUMN:cores", memory: "COLUMN:MiB"}' in unknown
    assert "--columns" not in unknown


def test_outcomes_survive_their_encoding(scenario: Path) -> None:
    """Decoding returns what was encoded; other bytes are refused."""
    study = Study(load_scenario(scenario), scenario.parent)
    outcome = simulate_cell(study, study.cells[3].key)
    data = encode(outcome)
    again = decode(data)
    assert encode(again) == data
    assert again.result.pods == outcome.result.pods
    assert again.result.summary == outcome.result.summary
    for wrong in (b"", data[:-1], encode(outcome)[:40]):
        with pytest.raises(DamagedError):
            decode(wrong)


def test_a_worker_reports_its_problem(scenario: Path) -> None:
    """A cell that cannot be made is an answer with a line, not an exception that ends the worker."""
    text = json.dumps({**SCENARIO, "nodeEvents": [{"at": 1, "drain": "x"}]})
    answer = simulate(Task(text, str(scenario.parent), Study(load_scenario(scenario), scenario.parent).cells[0].key))
    assert answer.problem == "nodeEvents[0].drain: no node is called x"


def test_every_remembered_answer_can_be_computed_again(scenario: Path) -> None:
    """With --verify 1 every remembered answer is compared, and the outcome is the same."""
    study = Study(load_scenario(scenario), scenario.parent)
    key = study.cells[-1].key
    assert encode(simulate_cell(study, key, 1)) == encode(simulate_cell(study, key, 0))


def test_files_travel_to_workers_elsewhere(scenario: Path, tmp_path: Path) -> None:
    """A worker that does not see our files makes the same bytes from their contents, wherever their names lead."""
    kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    near, far = tmp_path / "deep" / "near", tmp_path / "far"
    near.mkdir(parents=True)
    (near.parent / "kubelet.yaml").write_text(kubelet)
    text = json.dumps({**SCENARIO, "kubelets": {"none": {"file": "../kubelet.yaml"}}})
    (near / "s.yaml").write_text(text)
    study = Study(load_scenario(near / "s.yaml"), near)
    files, depth = read_inputs(study)
    assert (files, depth) == ([("../kubelet.yaml", kubelet.encode())], 1)
    there = simulate(Task(text, str(near), study.cells[0].key))
    elsewhere = simulate(Task(text, str(unpack_files(pickle.dumps((depth, files)), far)), study.cells[0].key))
    assert there.data == elsewhere.data != b""
    assert [str(path.relative_to(far)) for path in far.rglob("*") if path.is_file()] == ["kubelet.yaml"]
    (near / "s.yaml").write_text(text.replace("../kubelet.yaml", str(near.parent / "kubelet.yaml")))
    with pytest.raises(InputError, match="is an absolute path \\(name it from the scenario's folder\\)"):
        read_inputs(Study(load_scenario(near / "s.yaml"), near))


# Comparing


def test_intervals_are_students() -> None:
    """Mean and half of the 95 % interval of small samples; one value has none."""
    assert mean_over([]) is None
    assert mean_over([3.0]) == (3.0, None)
    found = mean_over([1.0, 2.0, 3.0])
    assert found is not None
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.303 / 3**0.5)


def test_differences_are_paired_by_seed() -> None:
    """A small difference that is the same on every seed is one; a large one that changes its sign is none."""
    base = {1: 10.0, 2: 20.0, 3: 30.0}
    one = Configuration("one", {seed: {"unmet": value} for seed, value in base.items()})
    less = Configuration("less", {seed: {"unmet": value - 1 - seed / 100} for seed, value in base.items()})
    wild = Configuration("wild", {1: {"unmet": 0.0}, 2: {"unmet": 40.0}, 3: {"unmet": 20.0}})
    assert (found := difference(less, one, "unmet")) is not None
    assert found.verdict == "better"
    assert (other := difference(wild, one, "unmet")) is not None
    assert other.verdict == "equal"
    assert (same := difference(one, one, "unmet")) is not None
    assert same.verdict == "equal"
    single = Configuration("single", {1: {"unmet": 5.0}})
    assert (open_ := difference(single, one, "unmet")) is not None
    assert open_.verdict == "open"
    assert [candidate.name for candidate in rank([one, less, single])] == ["single", "less", "one"]


MANIFESTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - {topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: host, labelSelector: {matchLabels: {app: web}}}
      containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: db, labels: {app: db}}
spec:
  nodeSelector: {zone: b}
  containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cache}
spec:
  replicas: 3
  selector: {matchLabels: {app: cache}}
  template:
    metadata: {labels: {app: cache}}
    spec:
      affinity:
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: zone, labelSelector: {matchLabels: {app: db}}}
      containers: [{name: c, image: i, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]
"""


def test_manifests_are_spread_and_kept_near(tmp_path: Path) -> None:
    """From manifests to tables: a Deployment is spread evenly over zones, one pod on a host, and its fifth pod waits;
    pods that want to be near another are in its zone."""
    zones = {"a": 2, "b": 2}
    nodes = [
        {"class": "m", "count": 1, "name": f"{zone}{host}", "labels": {"zone": zone, "host": f"{zone}{host}"}}
        for zone, hosts in zones.items()
        for host in range(hosts)
    ]
    (tmp_path / "deploy.yaml").write_text(MANIFESTS.replace("replicas: 4", "replicas: 5"))
    scenario = {
        "apiVersion": API_VERSION,
        "name": "near",
        "machines": {"m": {"from": "pack:1 numa:1(memory=16GiB) core:8 pu:1"}},
        "nodes": nodes,
        "workload": [{"manifests": "deploy.yaml"}],
    }
    (tmp_path / "scenario.yaml").write_text(json.dumps(scenario))
    result = fleet("run", tmp_path / "scenario.yaml", "--out", tmp_path / "run", "--workers", 1)
    assert result.exit_code == 0, result.output
    where: dict[str, list[str]] = {}
    for row in rows(tmp_path / "run" / "tables" / "pods.csv.gz"):
        where.setdefault(row["shape"], []).append(row["node"] if row["verdict"] == "ran" else row["verdict"])
    assert sorted(where["Deployment web-0"]) == ["a0", "a1", "b0", "b1", "pending"]
    assert where["Pod db"][0].startswith("b")
    assert {node[0] for node in where["Deployment cache-0"]} == {"b"}


def test_a_file_is_no_run(scenario: Path) -> None:
    """One line, without the system's words for it."""
    found = fleet("compare", scenario).exception
    assert str(found) == f"{scenario}: holds no run (podslice fleet run FILE --out DIR makes one)"
