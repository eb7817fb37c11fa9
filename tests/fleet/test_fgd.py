"""FGD's published tables: how its experiment is set up, and when results agree."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

import msgspec
import numpy as np
from click.testing import CliRunner, Result

from podslice.api.pod.spec import Pod, PodSpec
from podslice.cli.main import cli
from podslice.fleet.documents import FleetValidation
from podslice.fleet.engine.shapes import FleetShape, SchedulerRequests
from podslice.fleet.scenario.fgd import (
    POINTS,
    PUBLISHED,
    FGDPoint,
    FGDRun,
    FGDTraces,
    compare,
    inflate,
    make_curve,
    run_one,
    total_milli_gpus,
    value_at,
)
from podslice.fleet.scheduler.columns import Columns
from podslice.fleet.scheduler.fragmentation import GPUFragmentation, popular_shapes
from podslice.fleet.scheduler.policies import FGD, BestFit, DotProduct, GPUClustering, GPUPacking
from podslice.fleet.traces.trace import TracePod
from podslice.values.document import document
from podslice.values.errors import InputError
from tests.read_documents import check_document

GIB = 1 << 30


def artifact(folder: Path, *, nodes: int = 4, pods: int = 40) -> Path:
    """A folder like the artifact's: a small cluster and a list of pods, and tables of two seeds that say 0."""
    traces, tables = folder / "alibaba-gpu-v2023", folder / "hkust-simulator" / "expected"
    traces.mkdir(parents=True)
    tables.mkdir(parents=True)
    with (traces / "openb_node_list_gpu_node.csv").open("w") as file:
        csv.writer(file).writerows(
            [["sn", "cpu_milli", "memory_mib", "gpu", "model"]]
            + [[f"n{i}", 96_000, 393_216, 8, ("G2", "T4")[i % 2]] for i in range(nodes)]
        )
    columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase"
    times = ["creation_time", "deletion_time", "scheduled_time"]
    kinds = [(4000, 0, 0, ""), (8000, 1, 500, ""), (8000, 1, 1000, ""), (16000, 2, 1000, "T4"), (6000, 1, 300, "G2|T4")]
    with gzip.open(traces / "openb_pod_list_default.csv.gz", "wt") as file:
        writer = csv.writer(file)
        writer.writerow([*columns.split(","), *times])
        for i in range(pods):
            cpu, gpus, milli, models = kinds[i % len(kinds)]
            writer.writerow([f"p{i:03}", cpu, 16_384, gpus, milli, models, "LS", "Running", i, i + 9, i])
    write_tables(folder, {policy: [dict.fromkeys(range(131), 0.0)] * 2 for policy in PUBLISHED})
    return folder


def write_tables(folder: Path, curves: dict[Any, list[dict[int, float]]]) -> None:
    with gzip.open(folder / "hkust-simulator/expected/analysis_allo_discrete.csv.gz", "wt") as file:
        writer = csv.writer(file)
        writer.writerow(["workload", "sc_policy", "tune", "seed", "total_gpus", *range(131)])
        for policy, seeds in curves.items():
            for seed, one in enumerate(seeds):
                row = ["openb_pod_list_default", PUBLISHED[policy], 1.3, 42 + seed, 32]
                writer.writerow([*row, *(one.get(percent, 0.0) for percent in range(131))])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["fleet", "validate", "fgd", *arguments])


def test_verdicts_agree_and_disagree(tmp_path: Path) -> None:
    """Tables that say what we say agree (exit 0); a table that is two points off does not (exit 1). Runs that are kept
    are not run again."""
    folder = artifact(tmp_path / "a")
    kept = tmp_path / "runs.jsonl"
    options = ("--traces", str(folder), "--seeds", "2", "--keep", str(kept))
    assert run(*options).exit_code == 1
    assert len(kept.read_text().splitlines()) == 12
    ours: dict[Any, list[dict[int, float]]] = {}
    for line in kept.read_text().splitlines():
        _, policy, _, found = json.loads(line)
        ours.setdefault(policy, []).append({int(percent): value for percent, value in found.items()})
    filled: dict[Any, list[dict[int, float]]] = {
        policy: [{percent: value_at(one, percent) for percent in POINTS} for one in seeds]
        for policy, seeds in ours.items()
    }
    write_tables(folder, filled)
    agreed = run(*options, "-o", "json")
    assert agreed.exit_code == 0
    answer = json.loads(agreed.stdout)
    assert (answer["agrees"], answer["outside"], len(answer["points"])) == (True, 0, 36)
    filled["fgd"] = [{percent: value + 2 for percent, value in one.items()} for one in filled["fgd"]]
    write_tables(folder, filled)
    shown = run(*options)
    assert shown.exit_code == 1
    assert "they do not agree" in shown.stdout
    assert len(kept.read_text().splitlines()) == 12


@pytest.mark.process
def test_workers_change_nothing(tmp_path: Path) -> None:
    """Two processes come to what one comes to."""
    folder = artifact(tmp_path / "a")
    results = []
    for workers in ("1", "2"):
        kept = tmp_path / f"{workers}.jsonl"
        run("--traces", str(folder), "--seeds", "1", "--workers", workers, "--keep", str(kept))
        results.append(sorted(kept.read_text().splitlines()))
    assert results[0] == results[1]
    assert len(results[0]) == 6


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A folder without the tables and a list that is not there: one line each."""
    with pytest.raises(InputError, match="has no alibaba-gpu-v2023"):
        FGDTraces(tmp_path)
    folder = artifact(tmp_path / "a")
    found = run("--traces", str(folder), "--workload", "gpuspec")
    assert isinstance(found.exception, InputError)
    assert "has no list gpuspec" in str(found.exception)


def test_pods_are_shuffled_and_drawn_again() -> None:
    """A seed gives one order; pods come again until 1.3 times all GPUs are asked for, and longer lists are cut."""
    pods = [TracePod(f"p{i}", 1000, GIB, 1, 500) for i in range(10)]
    workload, usual = inflate(pods, 7, 10_000)
    assert len(workload) == 26
    assert list(inflate(pods, 7, 10_000)[0].shape) == list(workload.shape)
    assert len(inflate(pods, 7, 2_000)[0]) == 5
    assert usual == (10,)


def test_a_curve_is_a_mean_over_arrivals() -> None:
    """Arrivals that round to the same percent, halves to even, are averaged."""
    found = make_curve([400, 500, 600, 3500], [400, 500, 600, 700], 100_000)
    assert found == {0: 0.45, 1: 0.6, 4: 0.7}
    assert (value_at(found, 1), value_at(found, 2), value_at(found, 9)) == pytest.approx((0.6, 0.65, 0.7))


def gpu_shape(cpu: int, gpus: int, milli: int, *models: str) -> FleetShape:
    amounts = {"cpu": cpu, "memory": GIB}
    return FleetShape(
        name=f"{cpu} {gpus} {milli}",
        pod=Pod(spec=PodSpec()),
        requests=SchedulerRequests(*[amounts] * 5),
        gpus=gpus,
        gpu_milli=milli,
        gpu_models=models,
    )


SHAPES = [gpu_shape(8000, 1, 1000), gpu_shape(4000, 1, 500), gpu_shape(2000, 0, 0), gpu_shape(8000, 2, 1000, "T4")]


def test_fragmentation_of_worked_examples() -> None:
    """Of a shape without GPU, of another model or too large everything idle counts; else what is too little for it."""
    counts = [6, 2, 1, 1]
    assert popular_shapes(SHAPES, counts, 700) == [(0, 6), (1, 2)]
    assert popular_shapes(SHAPES, [1, 1, 1, 1], 1000) == [(3, 1), (0, 1), (1, 1), (2, 1)]
    again = [*SHAPES, msgspec.structs.replace(SHAPES[1], requests=SchedulerRequests(*[{"cpu": 4000, "memory": 1}] * 5))]
    assert popular_shapes(again, [3, 2, 0, 0, 2], 500) == [(1, 4)]
    fragmentation = GPUFragmentation(SHAPES, list(enumerate(counts)), ["G2", "T4"])
    assert fragmentation.weight == 10
    cpus = np.array([16_000, 16_000, 4_000, 0])
    gpus = np.array([[1000, 400], [1000, 1000], [1000, 600], [300, 0]])
    found = fragmentation.amounts(cpus, gpus, np.array([0, 1, 1, 1]))
    # 1: 400 too little for a whole GPU and for a half; all 1400 for CPU pods and for a T4
    # 2: nothing is lost but for CPU pods; 3: only the shares fit 4 CPUs, and nothing is too little for them; 4: all
    assert found.tolist() == [
        6 * 400 + 2 * 400 + 1400 + 1400,
        2000,
        6 * 1600 + 0 + 1600 + 1600,
        10 * 300,
    ]


def columns_of(tmp_path: Path) -> Columns:
    traces = FGDTraces(artifact(tmp_path / "a", nodes=4))
    fleet = traces.fleet()
    assert total_milli_gpus(fleet) == 32_000
    return Columns(fleet, SHAPES)


def test_scores_of_the_published_policies(tmp_path: Path) -> None:
    """By the formulas of docs/development/fleet-engine.md, on an empty node and on one with 1.5 GPUs taken."""
    columns = columns_of(tmp_path)
    columns.book(1, 0, [0])
    columns.book(1, 1, [1])
    loads, nodes = columns.loads, columns.load[:2]
    # BestFit: 1 - (96 - 4)/128/2 - (8 - 0.5)/8/2, and with 84 - 4 CPUs and 6.5 - 0.5 GPUs
    assert BestFit(loads).score(1, nodes).tolist() == [17, 31]
    # DotProduct: 1 - (96 * 8/128² + 8 * 1/8²)/2, and with 84 CPUs and 6.5 GPUs
    assert DotProduct(loads).score(0, nodes).tolist() == [91, 92]
    # packing: 33 - 8 on a free node; the GPU with 500 left: 100 - 50/10; a whole one: 50 - 1
    assert GPUPacking(loads).score(1, nodes).tolist() == [25, 95]
    assert GPUPacking(loads).score(0, nodes).tolist() == [25, 49]
    # clustering: 25 for a free node; 50 among others, and 25 * 1.5/8 for what is taken
    assert GPUClustering(loads).score(0, nodes).tolist() == [25, 54]
    assert GPUClustering(loads).score(3, nodes).tolist() == [25, 4]
    assert list(BestFit(loads).choose_gpus(1, int(nodes[1]), (0, 1))) == [1]
    assert list(BestFit(loads).choose_gpus(3, int(nodes[1]), (0, 1))) == [2, 3]


def test_fgd_takes_the_gpu_that_loses_least(tmp_path: Path) -> None:
    """A half goes where another half is taken, and such a node scores more than a free one."""
    columns = columns_of(tmp_path)
    fragmentation = GPUFragmentation(SHAPES, [(0, 3), (1, 1)], ["G2", "T4"])
    policy = FGD(columns.loads, fragmentation, np.array([0, 1]))
    columns.book(2, 1, [2])
    free, half = policy.score(1, columns.load[[0, 2]]).tolist()
    assert free < 50 < half
    assert list(policy.choose_gpus(1, int(columns.load[2]), (0, 2))) == [2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_published_tables(shared: Path) -> None:
    """With the traces beside the checkout: FGD and BestFit on `default` are inside the published bands."""
    folder = shared / "traces"
    if not (folder / "hkust-simulator" / "expected").is_dir():
        pytest.skip("needs the traces of FGD's artifact in shared/traces")
    runs = [FGDRun("default", policy, seed) for policy in ("fgd", "best-fit") for seed in range(2)]
    verdict = compare(FGDTraces(folder), {one: run_one(folder, one) for one in runs})  # type: ignore[arg-type]
    assert len(verdict.points) == 12
    assert verdict.agrees, [point for point in verdict.points if not point.inside]


def test_the_verdict_is_a_document() -> None:
    """The output of `fleet validate fgd -o json` is a FleetValidation."""
    point = FGDPoint("default", "fgd", 100, 3, 95.1, 0.1, 95.2, 0.1, 0.3)
    found = document(FleetValidation(agrees=True, outside=0, worst=0.1, points=(point,)))
    check_document(json.loads(json.dumps(found)), "FleetValidation")
