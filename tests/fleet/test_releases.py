"""Fleets of several releases of Kubernetes: nodes, classes of machines and configurations name theirs."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.cluster import ClassStartError
from podslice.fleet.scenario.codec import encode
from podslice.fleet.scenario.equivalence import group_equivalent
from podslice.fleet.scenario.run import assumptions
from podslice.fleet.scenario.scenario_file import scenario_from_data
from podslice.fleet.workers.pool import simulate_cell
from podslice.values.errors import InputError
from tests.fleet.test_runs import SCENARIO

STATIC = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node", "systemReserved": {"cpu": "1"}}
LEVEL = {"level": {"sidecars": {"count": 1, "cpu": 1, "as": "pod-level"}}}
"""Pods whose pod-level resources are honoured, ignored or dropped, by the release."""
OLD, NEW = {"class": "m", "count": 3, "kubernetes": "1.33"}, {"class": "m", "count": 3}


def study(folder: Path, **fields: Any) -> Study:
    base = {"seeds": [1], "schedulers": {"kube": {}}, "kubelets": {"static": {"set": STATIC}}}
    return Study(scenario_from_data(deepcopy({**SCENARIO, **base, **fields}), "scenario.yaml"), folder)


def releases(made: Study) -> dict[str, str]:
    """Return the release of each class."""
    return {one.name: str(one.rules.release) for one in made.start(made.cells[0]).classes}


def results(made: Study) -> list[bytes]:
    return [encode(simulate_cell(made, cell.key)) for cell in made.cells]


def figures(made: Study) -> Any:
    """Return the figures of the first cell, in which no node has a name."""
    return simulate_cell(made, made.cells[0].key).result.summary


def test_nodes_classes_and_configurations_name_a_release(tmp_path: Path) -> None:
    """Nodes before their class, a configuration before both; profile and other nodes stay as they are."""
    assert releases(study(tmp_path, nodes=[OLD, NEW])) == {"m-1.33": "1.33", "m": "1.36"}
    machine = {"m": {**SCENARIO["machines"]["m"], "kubernetes": "v1.34.2"}}
    assert releases(study(tmp_path, machines=machine, nodes=[OLD, NEW])) == {"m-1.33": "1.33", "m": "1.34"}
    named = {"static": {"set": STATIC, "kubernetes": 1.35}}
    assert releases(study(tmp_path, kubelets=named, nodes=[OLD, NEW])) == {"m-1.33": "1.35", "m": "1.35"}
    made = study(tmp_path, nodes=[OLD, NEW], profile="kubelet-1.36")
    quirks = [one.rules.quirks for one in made.start(made.cells[0]).classes]
    assert quirks[0] != quirks[1]
    assert all(one.numa_node_limit for one in quirks)


def test_each_node_decides_by_its_release(tmp_path: Path) -> None:
    """A fleet of one release is the same whoever names it, of two releases the sum of its parts: pods with pod-level
    resources own CPUs on nodes of 1.33, of which four fit on one, and share those of 1.36."""
    amounts = {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}
    spec = {"resources": amounts, "containers": [{"name": "app", "image": "i", "resources": amounts}]}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 30, "selector": {"matchLabels": {"app": "a"}}, "template": template},
    }  # fmt: skip
    (tmp_path / "pods.yaml").write_text(json.dumps(deployment))
    work: dict[str, Any] = {"workload": [{"manifests": "pods.yaml"}]}
    named = {"static": {"set": STATIC, "kubernetes": "1.33"}}
    nodes = [{**OLD, "count": 6}], [{**NEW, "count": 6}], [OLD, NEW]
    old, new, both = (figures(study(tmp_path, nodes=one, **work)) for one in nodes)
    assert figures(study(tmp_path, nodes=nodes[1], kubelets=named, **work)) == old
    assert [one["running"] for one in (old, new, both)] == [24, 30, 27]


def test_releases_as_a_dimension_of_the_matrix(tmp_path: Path) -> None:
    """Configurations that differ in the release alone are cells of their own; a node restarts as a newer kubelet."""
    kubelets = {"old": {"set": STATIC, "kubernetes": "1.33"}, "new": {"set": STATIC, "kubernetes": "1.36"}}
    made = study(tmp_path, kubelets=kubelets, transforms=LEVEL)
    assert len(group_equivalent(made, made.cells)) == 2
    old, new = results(made)
    assert old != new
    event = {"at": "20s", "restart": "m-*", "kubelet": "new"}
    rolled = study(tmp_path, kubelets=kubelets, transforms=LEVEL, nodeEvents=[event])
    later = rolled.start(rolled.cells[0]).classes
    assert [str(one.rules.release) for one in later] == ["1.33", "1.36"]
    assert results(rolled)[0] not in (old, new)


def test_nodes_of_a_live_cluster(tmp_path: Path) -> None:
    """`auto`: each node is of the release that its Node object states, and nodes of one size are several classes."""

    def node(name: str, version: str) -> dict[str, Any]:
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletVersion": version}}
        return {"kind": "Node", "metadata": {"name": name}, "status": status}

    items = [node("a", "v1.33.1"), node("b", "v1.35.2"), node("c", "v1.33.7")]
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": items}))
    live: dict[str, Any] = {"nodes": [{"kubernetes": "nodes.json"}], "machines": {}}
    assert releases(study(tmp_path, **live)) == {"16c-64Gi": "1.36"}
    made = study(tmp_path, **live, kubelets={"static": {"set": STATIC, "kubernetes": "auto"}})
    assert releases(made) == {"16c-64Gi": "1.33", "16c-64Gi-1": "1.35"}
    assert [node.kind for node in made.cluster.nodes] == [0, 1, 0]
    assert "Kubernetes, kubelet static: 1.33 for 2 nodes, 1.35 for 1 node" in assumptions(made)
    items[1]["status"]["nodeInfo"]["kubeletVersion"] = "v1.38.0"
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": items}))
    with pytest.raises(InputError, match=r"kubelets.static.kubernetes: Kubernetes 1.38 is not known here"):
        study(tmp_path, **live, kubelets={"static": {"set": STATIC, "kubernetes": "auto"}})


def test_a_kubelet_that_does_not_start_in_an_older_release(tmp_path: Path) -> None:
    """Options are judged by the release of the class."""
    options = {**STATIC, "cpuManagerPolicyOptions": {"prefer-align-cpus-by-uncorecache": "true"}}
    made = study(tmp_path, nodes=[OLD, NEW], kubelets={"static": {"set": options}})
    with pytest.raises(ClassStartError, match=r"on nodes of class m-1\.33: .*prefer-align-cpus-by-uncorecache"):
        made.start(made.cells[0])
    alone = study(tmp_path, nodes=[NEW], kubelets={"static": {"set": options}})
    assert releases(alone) == {"m": "1.36"}


def test_scenarios_without_releases_stay_what_they_were(tmp_path: Path) -> None:
    """Their id, by which a run is resumed, is that of versions that knew no releases; nothing is said of them."""
    made = Study(scenario_from_data(SCENARIO, "scenario.yaml"), tmp_path)
    assert made.id == "d8a8f1d5693063c0026b6794f7c679e2aff41114e92a16a0a2de06381eec42ad"
    assert not any("Kubernetes" in line for line in assumptions(made))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"nodes": [{**OLD, "kubernetes": "1.99"}]}, "nodes[0].kubernetes: Kubernetes 1.99 is not known here"),
        ({"nodes": [{**OLD, "kubernetes": "nodes.json"}]}, "'nodes.json' is not a Kubernetes version"),
        ({"machines": {"m": {"from": "pack:2", "kubernetes": "x"}}}, "machines.m.kubernetes: 'x' is not a Kubernetes"),
        ({"kubelets": {"k": {"kubernetes": "auto"}}}, "kubelets.k.kubernetes: auto needs nodes of a live cluster"),
        ({"kubelets": {"k": {"kubernetes": "1.9"}}}, "kubelets.k.kubernetes: Kubernetes 1.9 is not known here"),
        ({"profile": "kubelet-1.9"}, "profile: 'kubelet-1.9' is not a profile (one of podslice, kubelet-1.31"),
    ],
)
def test_releases_that_are_not_known(tmp_path: Path, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError) as raised:
        study(tmp_path, **fields)
    assert error in str(raised.value)
