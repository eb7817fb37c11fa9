"""Live clusters: dumps of kubectl become scenarios, whatever is missing, odd or damaged in them is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.fleet.importing.kube import cluster_nodes
from podslice.fleet.importing.kube_import import import_cluster
from podslice.fleet.importing.kube_objects import read_objects
from podslice.fleet.importing.kube_pods import cluster_pods
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.run import plan_run
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.starter import sample_cluster
from podslice.fleet.scenario.store import RunStore
from podslice.values.errors import InputError
from tests.fleet.test_runs import fleet, rows

ZONES = [
    {
        "name": f"node-{zone}",
        "type": "Node",
        "resources": [
            {"name": "cpu", "capacity": "32", "allocatable": "31", "available": "20"},
            {"name": "memory", "capacity": "128Gi", "allocatable": "127Gi", "available": "100Gi"},
        ],
    }
    for zone in (0, 1)
]
NRT = {
    "kind": "NodeResourceTopology",
    "apiVersion": "topology.node.k8s.io/v1alpha2",
    "metadata": {"name": "worker-0"},
    "zones": ZONES,
    "attributes": [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ],
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    folder = tmp_path / "dump"
    folder.mkdir()
    nodes, pods = sample_cluster()
    (folder / "n.json").write_text(nodes)
    (folder / "p.json").write_text(pods)
    return folder


def change_items(path: Path, change: Any) -> None:
    data = json.loads(path.read_text())
    change(data["items"])
    path.write_text(json.dumps(data))


def test_a_cluster_becomes_a_scenario_that_runs(dump: Path, tmp_path: Path) -> None:
    """Output of kubectl is recognized by its content; running pods are on their nodes at once."""
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    assert "8 nodes: machines assumed for 8" in result.output
    assert "80 pods on nodes, 10 pending" in result.output
    assert "Missing: nrt.json: kubectl get noderesourcetopologies" in result.output
    assert "Missing: the configuration of 8 of 8 nodes" in result.output
    assert "Assumed: 8 nodes of class 64c-256Gi: two NUMA nodes of equal size" in result.output
    done = fleet("run", tmp_path / "cluster" / "scenario.yaml", "--out", tmp_path / "run", "--workers", 1)
    assert done.exit_code == 0, done.output
    pods = rows(tmp_path / "run" / "tables" / "pods.csv.gz")
    placed = [pod["node"] for pod in pods if pod["arrival_ms"] == "0"]
    assert placed == [f"worker-{number % 8}" for number in range(80)]


def test_zones_and_configurations_are_used(dump: Path, tmp_path: Path) -> None:
    """A node with a NodeResourceTopology has its zones and policies, one with a configz its configuration."""
    (dump / "nrt.json").write_text(json.dumps({"kind": "List", "items": [NRT]}))
    (dump / "configz").mkdir()
    configz = {"kubeletconfig": {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "2"}, "port": 10250}}
    (dump / "configz" / "worker-1.json").write_text(json.dumps(configz))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    assert "from NodeResourceTopology for 1" in result.output
    assert "the configuration of 7 of 8 nodes" in result.output
    study = Study(load_scenario(tmp_path / "cluster" / "scenario.yaml"), tmp_path / "cluster")
    configs = study.configs(study.cells[0])
    kinds = {node.name: node.kind for node in study.cluster.nodes}
    first, second, third = (configs[kinds[f"worker-{number}"]] for number in range(3))
    assert (first.topology_manager_policy, first.topology_manager_scope) == ("single-numa-node", "pod")
    assert (second.cpu_manager_policy, third.cpu_manager_policy) == ("static", "none")
    assert len(study.cluster.classes) == 3
    assert study.cluster.classes[kinds["worker-0"]].source == "nrt"


def test_the_scheduler_counts_with_the_nodes_own_numbers(dump: Path, tmp_path: Path) -> None:
    """Allocatable is what the Node object says; a configuration with other numbers is reported."""
    (node, *_) = cluster_nodes(dump / "n.json")
    assert node.kind.allocatable == {"cpu": 62_000, "memory": 254 << 30, "pods": 110}
    (dump / "configz").mkdir()
    for number, reserved in ((1, "6"), (2, "2")):
        found = {"kubeletconfig": {"systemReserved": {"cpu": reserved}, "maxPods": 110}}
        (dump / "configz" / f"worker-{number}.json").write_text(json.dumps(found))
    assert fleet("import", dump, "--out", tmp_path / "cluster").exit_code == 0
    study = Study(load_scenario(tmp_path / "cluster" / "scenario.yaml"), tmp_path / "cluster")
    (line, *_) = plan_run(study, None).warnings
    assert line.startswith("kubelet now leaves other CPUs than Node objects say, by which the scheduler counts (")
    assert "58, not 62" in line
    assert "62, not 62" not in line


def test_anonymised_copies_have_no_names(dump: Path, tmp_path: Path) -> None:
    """No name, namespace, label or image of the dump is in any file, and pods are still on their nodes."""

    def mark(items: list[dict[str, Any]]) -> None:
        for item in items:
            item["metadata"]["namespace"] = "secret-team"
            item["metadata"].setdefault("labels", {})["owner"] = "secret-owner"
            item["metadata"]["annotations"] = {"note": "secret-note"}
            for container in item["spec"].get("containers", ()):
                container.update(
                    name="secret-app", image="registry/secret", env=[{"name": "PASSWORD", "value": "secret"}]
                )

    change_items(dump / "p.json", mark)
    assert fleet("import", dump, "--out", tmp_path / "c", "--anonymise").exit_code == 0
    text = "".join(path.read_text() for path in (tmp_path / "c").rglob("*") if path.is_file())
    for word in ("secret", "worker-", "app-1", "PASSWORD"):
        assert word not in text
    nodes = frozenset(one.node.name for one in cluster_nodes(tmp_path / "c" / "nodes.json"))
    found = cluster_pods(tmp_path / "c" / "pods.json", nodes)
    assert sum(bool(pod.node) for pod in found.pods) == 80
    assert not found.problems


def test_contradictions_are_reported(dump: Path, tmp_path: Path) -> None:
    """Pods on unknown nodes and pods that cannot be read are left out and reported; ended ones do not count."""

    def spoil(items: list[dict[str, Any]]) -> None:
        items[0]["spec"]["nodeName"] = "gone"
        items[1]["spec"]["nodeName"] = "gone"
        items[2]["status"]["phase"] = "Succeeded"
        items[3]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"

    change_items(dump / "p.json", spoil)
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert "76 pods on nodes, 10 pending" in result.output
    assert "Left out: pod default/app-0 is on gone, which is not a node of the dump" in result.output
    assert "Left out: 2 pods in total are on nodes that are not in the dump" in result.output
    assert "Left out: pod default/app-3 cannot be read" in result.output


def test_dumps_of_other_versions(dump: Path) -> None:
    """Typed lists, unknown fields, and missing optional ones are read all the same."""
    data = json.loads((dump / "n.json").read_text())
    for item in data["items"]:
        item.pop("kind")
        item.pop("apiVersion")
        item["status"]["future"] = {"deep": [1]}
        item["spec"] = None
    (dump / "n.json").write_text(json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": data["items"]}))
    assert len(cluster_nodes(dump / "n.json")) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "List", "items": [{"kind": "Node", "metadata"', "breaks off, or is not JSON (make the dump again)"),
        ('{"kind": "List", "items": []}', "holds no Node (kubectl get nodes -o json)"),
        ('{"kind": "Node", "metadata": {}}', "a node has no name"),
        ('{"kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"memory": "1Gi"}}}',
         "status.capacity[cpu]: is missing"),
        ('{"kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4", "memory": "8Gi"}, '
         '"allocatable": {"cpu": "4", "x/y": "many"}}}', "'many'"),
    ],
)  # fmt: skip
def test_damaged_dumps_are_refused_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    """A file that is not a dump of nodes is reported with the file, the place and a remedy."""
    path = tmp_path / "nodes.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        cluster_nodes(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_a_folder_without_nodes_is_refused(tmp_path: Path) -> None:
    """Without nodes there is no cluster; the command that makes the dump is shown."""
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "notes.yaml").write_text("just: text")
    result = fleet("import", tmp_path / "dump", "--out", tmp_path / "c")
    assert "holds no nodes (kubectl get nodes -o json > nodes.json)" in str(result.exception)
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_large_dumps(tmp_path: Path) -> None:
    """A dump of 100 MB is read."""
    _, pods = sample_cluster()
    item = json.loads(pods)["items"][0]
    item["metadata"]["annotations"] = {"filler": "x" * 11_000}
    text = json.dumps(item)
    path = tmp_path / "pods.json"
    path.write_text('{"kind": "List", "items": [' + ",".join([text] * 10_000) + "]}")
    assert path.stat().st_size > 100 << 20
    assert len(read_objects(path, "Pod")) == 10_000


def test_the_live_starter_says_who_is_certainly_refused(tmp_path: Path) -> None:
    """The made-up cluster under another configuration: some pods that run now would not."""
    assert fleet("init", "live", "--out", tmp_path / "live").exit_code == 0
    result = fleet("run", tmp_path / "live" / "scenario.yaml", "--out", tmp_path / "run", "--workers", 1)
    assert result.exit_code == 0, result.output
    assert len(list(RunStore(tmp_path / "run").list_keys())) == 4


def test_budgets_of_a_dump_come_along(dump: Path, tmp_path: Path) -> None:
    """PodDisruptionBudgets of a dump are the scenario's: with a selector, all pods with an empty one, none without;
    an anonymised copy, which has no labels, says that it leaves them out."""
    spec = {"selector": {"matchLabels": {"app": "db"}}, "minAvailable": "50%"}
    budgets = [
        {"metadata": {"name": "db", "namespace": "prod"}, "spec": spec, "status": {"currentHealthy": 1}},
        {"metadata": {"name": "all"}, "spec": {"selector": {}, "maxUnavailable": 1}},
        {"metadata": {"name": "none"}, "spec": {"maxUnavailable": 1}},
    ]
    (dump / "b.json").write_text(json.dumps({"kind": "PodDisruptionBudgetList", "items": budgets}))
    assert fleet("import", dump, "--out", tmp_path / "cluster").exit_code == 0
    study = Study(load_scenario(tmp_path / "cluster" / "scenario.yaml"), tmp_path / "cluster")
    first, second = study.build(study.cells[0]).options.budgets
    assert (first.selector.match_labels, first.namespace, first.min_available) == ({"app": "db"}, "prod", "50%")
    assert (second.selector.match_labels, second.namespace, second.max_unavailable) == ({}, "default", 1)
    hidden = fleet("import", dump, "--out", tmp_path / "hidden", "--anonymise")
    assert "3 PodDisruptionBudgets left out: labels, by which they select, are hidden" in hidden.output
    assert not (tmp_path / "hidden" / "budgets.json").exists()


def test_a_budget_that_cannot_be_read_is_named(dump: Path, tmp_path: Path) -> None:
    """File, object, field and value of a budget without a number of pods; nothing is written."""
    wrong = {"kind": "PodDisruptionBudget", "metadata": {"name": "db"}, "spec": {"selector": {}, "minAvailable": "x"}}
    (dump / "b.json").write_text(json.dumps(wrong))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert "b.json: PodDisruptionBudget db: spec.minAvailable: 'x' is not a number of pods" in str(result.exception)
    assert not (tmp_path / "cluster").exists()


def test_constraints_of_imported_pods(dump: Path, tmp_path: Path) -> None:
    """Tolerations, affinity and spread of a dumped pod are in its copy; of an anonymised one only tolerations."""
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    spread = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    found = {"tolerations": [{"operator": "Exists"}], "affinity": affinity, "topologySpreadConstraints": spread}
    change_items(dump / "p.json", lambda items: items[0]["spec"].update(found))
    for name, kept, extra in (("open", found, ()), ("hidden", {"tolerations": found["tolerations"]}, ("--anonymise",))):
        assert fleet("import", dump, "--out", tmp_path / name, *extra).exit_code == 0
        first = json.loads((tmp_path / name / "pods.json").read_text())["items"][0]["spec"]
        assert {field: first[field] for field in found if field in first} == kept


def spread(folder: Path, dump: Path, *, gathered: bool) -> None:
    """Lay a dump out as a must-gather, or as `kubectl cluster-info dump` does, with each pod in its namespace."""
    nodes, pods = (json.loads((dump / name).read_text())["items"] for name in ("n.json", "p.json"))
    namespaces: dict[str, list[Any]] = {}
    for pod in pods:
        namespaces.setdefault(pod["metadata"].get("namespace", "default"), []).append(pod)
    files: dict[str, Any] = {"nodes.json": {"kind": "NodeList", "apiVersion": "v1", "items": nodes}}
    if gathered:
        files = {f"image/cluster-scoped-resources/core/nodes/{one['metadata']['name']}.yaml": one for one in nodes}
    for name, items in namespaces.items():
        place = f"image/namespaces/{name}/core/pods.yaml" if gathered else f"{name}/pods.json"
        files[place] = {"kind": "PodList", "apiVersion": "v1", "items": items}
        if gathered:
            first = items[0]["metadata"]["name"]
            files[f"image/namespaces/{name}/pods/{first}/{first}.yaml"] = items[0]
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(data))


@pytest.mark.parametrize("gathered", [False, True])
def test_dumps_in_folders(dump: Path, tmp_path: Path, gathered: bool) -> None:
    """A cluster-info dump and a must-gather are the same cluster as its lists in two files."""
    plain = import_cluster(dump, tmp_path / "plain", anonymise=False)
    spread(tmp_path / "spread", dump, gathered=gathered)
    found = import_cluster(tmp_path / "spread", tmp_path / "out", anonymise=False)
    assert (found.nodes, found.placed, found.pending) == (plain.nodes, plain.placed, plain.pending)
    assert found.placed > 0


def test_dump_on_one_stream(dump: Path, tmp_path: Path) -> None:
    """The output of `kubectl cluster-info dump` in one file is read without the logs in it."""
    plain = import_cluster(dump, tmp_path / "plain", anonymise=False)
    log = "==== START logs for container c of pod a/b ====\n{ no JSON\n==== END logs for container c of pod a/b ====\n"
    text = "".join((dump / name).read_text() + "\n" + log for name in ("n.json", "p.json"))
    (tmp_path / "stream").mkdir()
    (tmp_path / "stream" / "dump.txt").write_text(text)
    found = import_cluster(tmp_path / "stream", tmp_path / "out", anonymise=False)
    assert (found.nodes, found.placed, found.pending) == (plain.nodes, plain.placed, plain.pending)


def test_nodes_without_pods(dump: Path, tmp_path: Path) -> None:
    """A dump of nodes alone is imported; a line says how to get the pods, and the scenario runs without any."""
    (dump / "p.json").unlink()
    found = import_cluster(dump, tmp_path / "out", anonymise=False)
    assert found.missing[0] == "pods.json: kubectl get pods -A -o json > pods.json"
    assert Study(load_scenario(tmp_path / "out" / "scenario.yaml"), tmp_path / "out").cluster.nodes
    assert cluster_pods(tmp_path / "out" / "pods.json", frozenset()).pods == ()
