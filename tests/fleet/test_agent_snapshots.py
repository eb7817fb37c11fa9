"""Nodes of podslice's agents begin in their real state, whichever way the agent reported it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podslice import Node
from podslice.config.policy_file import policy_from_dict
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.machine.readers.form import to_data
from podslice.replica.journal import Journal
from podslice.replica.nodestate import build_status, new_node_state
from podslice.values.document import with_header
from tests.fleet.test_runs import fleet
from tests.fleet.test_start import (
    CONFIG,
    DEVICES,
    GONE,
    KEPT,
    MACHINE,
    cpus_of_pod,
    make_node,
    node_object,
    pod,
    run_rows,
    to_pod,
)
from tests.read_documents import check_document

ELASTIC = {
    "apiVersion": "podslice.io/v1alpha1",
    "kind": "PodslicePolicy",
    "metadata": {"name": "elastic"},
    "spec": {"resize": {"exclusive": True}},
}


def live_node(node: Node, name: str = "worker-0", **other: Any) -> dict[str, Any]:
    """Return the output of `kubectl podslice node NAME --live -o json`."""
    devices = [
        {"resource": one.resource, "devices": [{"id": device.id, "numa": list(device.numa or ()), "health": "Healthy"}
                                               for device in one.devices]}
        for one in DEVICES.resources
    ]  # fmt: skip
    document = with_header(
        "LiveNode",
        {
            "node": name,
            "profile": "podslice",
            "problem": "",
            "machine": to_data(MACHINE),
            "configuration": CONFIG.document(),
            "policy": {},
            "pods": [
                {"metadata": {key: one["metadata"][key] for key in ("name", "namespace", "uid")},
                 "spec": {"containers": one["spec"]["containers"]}, "annotations": {}}
                for one in KEPT
            ],
            "files": {file: data.decode() for file, data in node.manager_files.items()},
            "devices": devices,
            **other,
        },
    )  # fmt: skip
    check_document(document)
    return document


def node_state_object(node: Node, name: str = "worker-0") -> dict[str, Any]:
    """The object that an agent keeps in the API server."""
    found = Journal(node.rules, node.state, epoch=3, version="0.1.0").whole_state()
    data = new_node_state(name) | {"status": msgspec.to_builtins(build_status(found))}
    return {**data, "metadata": {"name": name, "resourceVersion": "7", "future": True}}


@pytest.fixture
def node() -> Node:
    return make_node(KEPT, GONE)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    folder = tmp_path / "dump"
    folder.mkdir()
    for name, items in (("nodes", [node_object("worker-0")]), ("pods", [*KEPT, pod("new", 6, gpus=1, node="")])):
        (folder / f"{name}.json").write_text(json.dumps({"kind": "List", "items": items}))
    return folder


def expected_cpus(node: Node) -> list[str]:
    return [cpus_of_pod(node, one) for one in ("a", "b", "c")]


def cpus_of(cluster: Path, run: Path) -> list[str]:
    """CPUs of the pods of a run, in order of their numbers."""
    found = run_rows(cluster, run)
    return [found[number]["cpus"] for number in sorted(found, key=int)]


WAYS = {
    "LiveNode": lambda node: live_node(node),
    "NodeState": lambda node: {"kind": "NodeStateList", "items": [node_state_object(node)]},
    "List": lambda node: {"kind": "List", "apiVersion": "v1", "items": [node_state_object(node)]},
}


@pytest.mark.parametrize("way", list(WAYS))
def test_pods_have_what_the_agent_gave_them(way: str, node: Node, dump: Path, tmp_path: Path) -> None:
    """Machine, configuration and state come from the agent: the pods have their very CPUs, and the next pod gets
    those that the node itself would give it."""
    (dump / "agent.json").write_text(json.dumps(WAYS[way](node)))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "1 node: machines captured for 1" in said
    assert "pods at the beginning: as state files say on 1 node" in said
    assert "Missing: the" not in said
    assert "spread evenly" not in said
    *there, new = cpus_of(tmp_path / "cluster", tmp_path / "run")
    assert there == expected_cpus(node)
    assert node.admit(to_pod(pod("new", 6, gpus=1, node=""))).admitted
    assert new == cpus_of_pod(node, "new")


def test_devices_are_where_plugins_listed_them(node: Node, dump: Path, tmp_path: Path) -> None:
    """Also those that are not allocated: the four GPUs are two on each NUMA node, by their ids from the last to the
    first."""
    (dump / "agent.json").write_text(json.dumps(live_node(node)))
    assert fleet("import", dump, "--out", tmp_path / "cluster").exit_code == 0
    study = Study(load_scenario(tmp_path / "cluster" / "scenario.yaml"), tmp_path / "cluster")
    devices = study.cluster.classes[0].devices
    assert devices is not None
    assert [device.numa for device in devices.resources[0].devices] == [(1,), (1,), (0,), (0,)]


@pytest.mark.parametrize("way", ["LiveNode", "NodeState"])
def test_agents_alone_make_a_cluster(way: str, node: Node, tmp_path: Path) -> None:
    """Without objects of nodes and pods theirs are used: the amounts are those that the configuration leaves, and
    labels are said not to be known."""
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "agent.json").write_text(json.dumps(WAYS[way](node)))
    result = fleet("import", folder, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "3 pods on nodes, 0 pending" in said
    assert "labels and taints of 1 node are not known: kubectl get nodes -o json" in said
    (made,) = json.loads((tmp_path / "cluster" / "nodes.json").read_text())["items"]
    assert made["status"]["allocatable"]["cpu"] == "30"
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert cpus_of(tmp_path / "cluster", tmp_path / "run") == expected_cpus(node)


def test_an_agents_directory(node: Node, dump: Path, tmp_path: Path) -> None:
    """A copy of an agent's directory as state/NODE has the pods too, where no dump has them."""
    (dump / "pods.json").unlink()
    place = dump / "state" / "worker-0"
    (place / "pods").mkdir(parents=True)
    for file, data in node.manager_files.items():
        (place / file).write_bytes(data)
    for one in KEPT:
        found = {"metadata": one["metadata"], "spec": {"containers": one["spec"]["containers"]}}
        (place / "pods" / f"{one['metadata']['uid']}.json").write_text(json.dumps(found))
    (dump / "machines").mkdir()
    (dump / "machines" / "worker-0.json").write_text(json.dumps(to_data(MACHINE)))
    (dump / "configz").mkdir()
    (dump / "configz" / "worker-0.json").write_text(json.dumps({"kubeletconfig": CONFIG.document()}))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    assert cpus_of(tmp_path / "cluster", tmp_path / "run") == expected_cpus(node)


def test_anonymised_agents(node: Node, dump: Path, tmp_path: Path) -> None:
    """No name of a node, a pod or a device is in any file, and the pods have the same CPUs."""
    (dump / "agent.json").write_text(json.dumps(live_node(node, policy={"claims": {"numa": [0]}})))
    result = fleet("import", dump, "--out", tmp_path / "c", "--anonymise")
    assert result.exit_code == 0, result.output
    assert "the PodslicePolicy of agents is left out" in " ".join(result.output.split())
    text = "".join(path.read_text() for path in (tmp_path / "c").rglob("*") if path.is_file())
    for word in ("worker-0", "uid-a", "GPU-9", '"main"'):
        assert word not in text
    assert cpus_of(tmp_path / "c", tmp_path / "run")[:3] == expected_cpus(node)


def test_unfit_snapshots_are_reported(node: Node, dump: Path, tmp_path: Path) -> None:
    """Agents of nodes that are not there, without a state, of another version, with a state that breaks off; pods that
    the dump does not have. The rest is imported."""
    broken = node_state_object(node, "worker-1")
    broken["status"]["state"] = broken["status"]["state"][:200]
    empty = node_state_object(node, "worker-2")
    empty["status"] = {}
    other = node_state_object(node, "worker-3")
    other["status"]["encoding"] = "zstd"
    (dump / "states.json").write_text(json.dumps({"kind": "NodeStateList", "items": [broken, empty, other]}))
    (dump / "gone.json").write_text(json.dumps(live_node(node, "elsewhere")))
    (dump / "safe.json").write_text(json.dumps(live_node(node, files={}, pods=[], problem="the runtime is silent")))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "node worker-1: its NodeState cannot be used: status.state: " in said
    assert "node worker-2: its NodeState cannot be used: has no state yet" in said
    assert "node worker-3: its NodeState cannot be used: status.encoding: 'zstd' is not zlib+base64" in said
    assert (
        "an agent's snapshot is of elsewhere, which is not a node of the dump: they were made at different times"
        in said
    )
    assert "node worker-0: its agent reported no state: the runtime is silent" in said
    assert "3 pods of agents are not in the dump of pods" not in said


def test_pods_missing_in_the_dump_are_counted(node: Node, dump: Path, tmp_path: Path) -> None:
    """Their resources are free, and a line reports it."""
    (dump / "pods.json").write_text(json.dumps({"kind": "PodList", "items": KEPT[:1]}))
    (dump / "agent.json").write_text(json.dumps(live_node(node)))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert "2 pods of agents are not in the dump of pods: their resources are free" in (" ".join(result.output.split()))


def test_a_state_that_contradicts_its_digests(node: Node, dump: Path, tmp_path: Path) -> None:
    """It is used as it was written, and said."""
    found = Journal(node.rules, node.state, epoch=3, version="0.1.0").whole_state()
    wrong = msgspec.structs.replace(found, allocation="0" * 32)
    data = new_node_state("worker-0") | {"status": msgspec.to_builtins(build_status(wrong))}
    (dump / "state.json").write_text(json.dumps(data))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert "its state is not what the agent's digests say; it is used as it was written" in (
        " ".join(result.output.split())
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": {"nodes": "many"}}, "agent.json"),
        ({"files": None}, "is a LiveNode that is not understood: AttributeError"),
        ({"configuration": {"cpuManagerPolicy": 7}}, "agent.json"),
    ],
)
def test_a_malformed_live_node_is_refused(
    node: Node, dump: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """With its file, and nothing is written."""
    (dump / "agent.json").write_text(json.dumps({**live_node(node), **change}))
    result = fleet("import", dump, "--out", tmp_path / "cluster")
    assert said in str(result.exception)
    assert result.exit_code != 0
    assert not (tmp_path / "cluster").exists()


def test_the_policy_of_all_agents_is_the_scenarios(node: Node, dump: Path, tmp_path: Path) -> None:
    """It is a file of the scenario and every pod has what it had; with two policies none is taken, and that is said;
    and so is an agent that decides by another profile."""
    policy = msgspec.to_builtins(policy_from_dict(ELASTIC))
    (dump / "agent.json").write_text(json.dumps(live_node(node, policy=policy)))
    assert fleet("import", dump, "--out", tmp_path / "one").exit_code == 0
    study = Study(load_scenario(tmp_path / "one" / "scenario.yaml"), tmp_path / "one")
    assert study.start(study.cells[0]).classes[0].rules.policy == policy_from_dict(ELASTIC)
    assert cpus_of(tmp_path / "one", tmp_path / "run")[:3] == expected_cpus(node)
    second = live_node(node, "worker-1", pods=[], profile="kubelet-1.36")
    (dump / "second.json").write_text(json.dumps(second))
    nodes = [node_object("worker-0"), node_object("worker-1")]
    (dump / "nodes.json").write_text(json.dumps({"kind": "List", "items": nodes}))
    result = fleet("import", dump, "--out", tmp_path / "two")
    said = " ".join(result.output.split())
    assert "agents have different PodslicePolicies, which are left out" in said
    assert "node worker-1: its agent decides by profile kubelet-1.36" in said
    assert not (tmp_path / "two" / "policy.yaml").exists()


def test_a_copied_state_replaces_the_agents(node: Node, dump: Path, tmp_path: Path) -> None:
    """As a whole: no file of the other is beside it."""
    (dump / "agent.json").write_text(json.dumps(live_node(make_node(KEPT, []))))
    place = dump / "state" / "worker-0"
    place.mkdir(parents=True)
    for file, data in node.manager_files.items():
        (place / file).write_bytes(data)
    assert fleet("import", dump, "--out", tmp_path / "cluster").exit_code == 0
    assert not (tmp_path / "cluster" / "state" / "worker-0" / "devices.json").exists()
    assert cpus_of(tmp_path / "cluster", tmp_path / "run")[:3] == expected_cpus(node)
