"""Cells that must come to the same are simulated once, and only those."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.commands.progress import RunProgress
from podslice.fleet.scenario import plan
from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.codec import encode
from podslice.fleet.scenario.equivalence import group_equivalent
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import RunStore
from podslice.fleet.workers.pool import simulate_cell
from tests.fleet.test_runs import SCENARIO, files_of, fleet

STATIC = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1", "memory": "1Gi"}}
MEMORY = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}]}
WHOLE_CORES = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
KINDS = {
    "none": STATIC,
    "best": {**STATIC, "topologyManagerPolicy": "best-effort"},
    "bestMemory": {**STATIC, **MEMORY, "topologyManagerPolicy": "best-effort"},
    "restricted": {**STATIC, "topologyManagerPolicy": "restricted"},
    "restrictedMemory": {**STATIC, **MEMORY, **WHOLE_CORES, "topologyManagerPolicy": "restricted"},
    "single": {**STATIC, **WHOLE_CORES, "topologyManagerPolicy": "single-numa-node"},
    "singleMemory": {**STATIC, **MEMORY, "topologyManagerPolicy": "single-numa-node"},
}


def scenario(kubelets: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Pods of one container that come and go; memory, CPUs and GPUs all get short."""
    data = deepcopy({**SCENARIO, "seeds": [1], "schedulers": {"kube": {}}, **fields})
    data["workload"][0]["synthetic"]["shapes"] += [{"cpu": 2, "memory": "22Gi", "weight": 2}, {"cpu": 9}]
    data["kubelets"] = kubelets
    return data


def load_study(folder: Path, data: dict[str, Any]) -> Study:
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(data))
    return Study(load_scenario(path), folder)


def merge_cells(folder: Path, data: dict[str, Any]) -> list[set[str]]:
    study = load_study(folder, data)
    return [{cell.kubelet for cell in same} for same in group_equivalent(study, study.cells).values()]


@pytest.mark.parametrize("kind", KINDS)
def test_scope_makes_no_difference_to_pods_of_one_container(tmp_path: Path, kind: str) -> None:
    """Simulated both ways, every byte of the outcomes is the same; pods are refused where a policy refuses."""
    pod = {**KINDS[kind], "topologyManagerScope": "pod"}
    data = scenario({"container": {"set": KINDS[kind]}, "pod": {"set": pod}})
    study = load_study(tmp_path, data)
    assert [len(same) for same in group_equivalent(study, study.cells).values()] == [2]
    first, second = (simulate_cell(study, cell.key) for cell in study.cells)
    assert encode(first) == encode(second)
    refuses = kind.startswith(("restricted", "single"))
    assert (first.result.summary["refused_attempts"] > 0) == refuses


def test_scope_counts_where_pods_have_several_containers(tmp_path: Path) -> None:
    """Sidecars, containers of a reading, and whatever reads manifests are not merged; and rightly so."""
    kubelets = {
        "container": {"set": KINDS["single"]},
        "pod": {"set": {**KINDS["single"], "topologyManagerScope": "pod"}},
    }
    data = scenario(kubelets, transforms={"two": {"sidecars": {"count": 1, "cpu": 2, "as": "padded"}}})
    study = load_study(tmp_path, data)
    assert len(group_equivalent(study, study.cells)) == 2
    first, second = (simulate_cell(study, cell.key) for cell in study.cells)
    assert encode(first) != encode(second)
    data = scenario(kubelets)
    data["workload"][0]["reading"] = {"containers": [{"name": "app"}, {"name": "proxy", "cpu": 1, "memory": "1Gi"}]}
    assert merge_cells(tmp_path, data) == [{"container"}, {"pod"}]
    assert merge_cells(tmp_path, scenario(kubelets, schedulers={"nrt": {"filter": "kube-nrt"}})) == [
        {"container"},
        {"pod"},
    ]
    assert merge_cells(tmp_path, scenario(kubelets, profile="kubelet-1.36")) == [{"container"}, {"pod"}]


def test_configurations_are_compared_as_kubelets_have_them(tmp_path: Path) -> None:
    """Different texts of the same settings are equivalent; a difference in any field, or on some nodes only, is not."""
    same = {"a": {"set": KINDS["single"]}, "b": {"set": {**KINDS["single"], "topologyManagerScope": "container"}}}
    assert merge_cells(tmp_path, scenario(same)) == [{"a", "b"}]
    other = {"set": KINDS["single"], "byClass": {"m": {"systemReserved": {"cpu": "2", "memory": "1Gi"}}}}
    assert merge_cells(tmp_path, scenario({**same, "c": other})) == [{"a", "b"}, {"c"}]
    assert len(merge_cells(tmp_path, scenario(same, seeds=[1, 2]))) == 2


@pytest.mark.process
def test_a_run_with_shared_cells_has_the_bytes_of_one_without(tmp_path: Path) -> None:
    """`--verify` simulates each cell; what is kept is the same file by file, for one and for two workers."""
    kubelets = {
        "container": {"set": KINDS["single"]},
        "pod": {"set": {**KINDS["single"], "topologyManagerScope": "pod"}},
    }
    load_study(tmp_path, scenario(kubelets))
    path = tmp_path / "scenario.yaml"
    answer = fleet("run", path, "--dry-run")
    assert "1 of the cells must come to the same as others and are not simulated" in answer.output
    ways = {"shared": ("--workers", 1), "each": ("--workers", 1, "--verify", 50), "two": ("--workers", 2)}
    for name, words in ways.items():
        result = fleet("run", path, "--out", tmp_path / name, *words)
        assert result.exit_code == 0, result.output
    assert files_of(tmp_path / "shared") == files_of(tmp_path / "each") == files_of(tmp_path / "two")
    assert len(list(RunStore(tmp_path / "shared").list_keys())) == 2


def test_a_plan_sizes_equivalent_cells_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins need as many nodes as their like, which is looked for once, and as many as they need alone."""
    kind = KINDS["single"]
    kubelets = {"container": {"set": kind}, "pod": {"set": {**kind, "topologyManagerScope": "pod"}}}
    looked: list[str] = []
    sized = plan._size_cell

    def looking(study: Study, cell: FleetCell, terms: plan.PlanTerms, found: Any) -> plan.CellSize:
        looked.append(cell.kubelet)
        return sized(study, cell, terms, found)

    monkeypatch.setattr(plan, "_size_cell", looking)
    terms, listener = plan.PlanTerms(5.0, 300_000), RunProgress(2, "none")
    both = plan.plan_nodes(load_study(tmp_path, scenario(kubelets)), terms, listener)
    assert looked == ["container"]
    assert [one.name for one in both.configurations] == ["container", "pod"]
    alone = plan.plan_nodes(load_study(tmp_path, scenario({"pod": kubelets["pod"]})), terms, listener)
    assert looked == ["container", "pod"]
    assert {one.by_seed for one in both.configurations} == {alone.configurations[0].by_seed}
