"""Live clusters begin where they really are: with the CPUs, memory and devices that pods have on their nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podslice import KubeletConfig, Node
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.fleet.importing.kube_objects import read_documents
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.node_history import replay_node
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.scenario.store import RunStore
from podslice.host.machine_files import dump_machine
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import CPUSet
from tests.fleet.test_runs import fleet, rows

MACHINE = from_synthetic("pack:2 numa:1(memory=32GiB) core:8 pu:2")
CONFIGZ = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0,16",
    "systemReserved": {"memory": "2Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2Gi"}}],
    "evictionHard": {},
}
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    topology_manager_policy="single-numa-node",
    reserved_system_cpus="0,16",
    system_reserved={"memory": "2Gi"},
    reserved_memory=(MemoryReservation(0, {"memory": "2Gi"}),),
    eviction_hard={},
)
DEVICES = inventory_from_data(
    [{"resource": "nvidia.com/gpu", "devices": [{"id": f"GPU-{9 - n}", "numa": [n // 2]} for n in range(4)]}]
)


def pod(name: str, cpus: int, *, gpus: int = 0, node: str = "worker-0") -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": f"{cpus}Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"} if node else {"phase": "Pending"},
    }


def make_node(
    keep: Sequence[dict[str, Any]], gone: Sequence[dict[str, Any]], devices: DeviceInventory = DEVICES
) -> Node:
    """A node on which pods came and went, so that the others are not where they would be if they came now."""
    node = Node(MACHINE, CONFIG, devices=devices)
    for one in (*gone[:1], *keep[:1], *gone[1:], *keep[1:]):
        assert node.admit(to_pod(one)).admitted
    for one in gone:
        node.remove(one["metadata"]["uid"])
    return node


def to_pod(data: dict[str, Any]) -> Pod:
    return pod_from_dict({"metadata": data["metadata"], "spec": data["spec"]})


def node_object(name: str, *, gpus: int = 4) -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    allocatable = {**amounts, "cpu": "30", "memory": "62Gi"}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": allocatable},
    }


def write_dump(folder: Path, nodes: Sequence[dict[str, Any]], pods: Sequence[dict[str, Any]]) -> Path:
    for place in ("configz", "machines"):
        (folder / place).mkdir(parents=True)
    for name, items in (("nodes", nodes), ("pods", pods)):
        (folder / f"{name}.json").write_text(json.dumps({"kind": "List", "items": list(items)}))
    for one in nodes:
        name = one["metadata"]["name"]
        (folder / "configz" / f"{name}.json").write_text(json.dumps({"kubeletconfig": CONFIGZ}))
        (folder / "machines" / f"{name}.yaml").write_text(dump_machine(MACHINE, "yaml"))
    return folder


def write_state(folder: Path, name: str, node: Node) -> None:
    for file, data in node.manager_files.items():
        path = folder / "state" / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def cpus_of_pod(node: Node, name: str) -> str:
    cpus = node.state.cpu.assignments[f"uid-{name}"]["main"]
    return str(CPUSet.from_bits(cpus))


KEPT = [pod("a", 3, gpus=1), pod("b", 5), pod("c", 2, gpus=1)]
GONE = [pod("x", 7), pod("y", 4, gpus=1)]


@pytest.fixture
def dump(tmp_path: Path) -> tuple[Path, Node]:
    node = make_node(KEPT, GONE)
    folder = write_dump(tmp_path / "dump", [node_object("worker-0")], [*KEPT, pod("new", 6, gpus=1, node="")])
    write_state(folder, "worker-0", node)
    return folder, node


def run_rows(cluster: Path, run: Path) -> dict[str, dict[str, str]]:
    done = fleet("run", cluster / "scenario.yaml", "--out", run, "--workers", 1)
    assert done.exit_code == 0, done.output
    return {row["pod"]: row for row in rows(run / "tables" / "pods.csv.gz")}


def test_pods_begin_as_in_state_files(dump: tuple[Path, Node], tmp_path: Path) -> None:
    """Each pod has the CPUs that its kubelet wrote down, and the next pod gets those that the real node gives it."""
    folder, node = dump
    result = fleet("import", folder, "--out", tmp_path / "cluster")
    assert result.exit_code == 0, result.output
    assert "1 node: machines captured for 1" in result.output
    assert "pods at the beginning: as state files say on 1 node" in result.output
    assert "Left out" not in result.output
    found = run_rows(tmp_path / "cluster", tmp_path / "run")
    assert node.admit(to_pod(pod("new", 6, gpus=1))).admitted
    assert [found[str(number)]["cpus"] for number in range(4)] == [
        cpus_of_pod(node, name) for name in ("a", "b", "c", "new")
    ]
    again = Node(MACHINE, CONFIG, devices=DEVICES)
    assert all(again.admit(to_pod(one)).admitted for one in KEPT)
    assert cpus_of_pod(again, "b") != cpus_of_pod(node, "b"), (
        "the history must leave something that a re-admission does not"
    )


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_the_picture_of_a_node_is_the_one_of_its_state(dump: tuple[Path, Node], tmp_path: Path, profile: str) -> None:
    """`fleet show` draws pods where they are, in both profiles."""
    folder, node = dump
    assert fleet("import", folder, "--out", tmp_path / "cluster").exit_code == 0
    file = tmp_path / "cluster" / "scenario.yaml"
    file.write_text(file.read_text() + f"profile: {profile}\n")
    run_rows(tmp_path / "cluster", tmp_path / "run")
    study = Study(load_scenario(file), tmp_path / "cluster")
    store = RunStore(tmp_path / "run")
    end = replay_node(study, study.cells[0], store.read_outcome(study.cells[0].key), "worker-0")
    assert end.exact
    assert {cpus_of_pod(end.node, name) for name in "abc"} == {cpus_of_pod(node, name) for name in "abc"}


def test_another_configuration_restarts_on_the_files(dump: tuple[Path, Node], tmp_path: Path) -> None:
    """A kubelet with another Topology Manager policy keeps what its files say; one with another CPU Manager policy
    cannot start on them, so that its pods are admitted again."""
    folder, node = dump
    assert fleet("import", folder, "--out", tmp_path / "cluster").exit_code == 0
    file = tmp_path / "cluster" / "scenario.yaml"
    more = """  restricted: {set: {topologyManagerPolicy: restricted}}
  none: {set: {cpuManagerPolicy: none, memoryManagerPolicy: None, topologyManagerPolicy: none}}
"""
    file.write_text(file.read_text().replace("schedulers:", more + "schedulers:"))
    found = rows_by_cell(file, tmp_path / "run")
    assert found["restricted"] == [cpus_of_pod(node, name) for name in "abc"]
    assert found["none"] == ["", "", ""]
    study = Study(load_scenario(file), file.parent)
    last = study.initial_fleet(next(cell for cell in study.cells if cell.kubelet == "none"))
    assert dict(last.counts) == {"again": 1}
    assert "node worker-0: its state files do not fit: " in last.problems[0]


def rows_by_cell(file: Path, run: Path) -> dict[str, list[str]]:
    assert fleet("run", file, "--out", run, "--workers", 1).exit_code == 0
    found: dict[str, list[str]] = {}
    for row in rows(run / "tables" / "pods.csv.gz"):
        if int(row["pod"]) < 3:
            found.setdefault(row["cell"].split("~")[1], []).append(row["cpus"])
    return found


def test_anonymised_state_files_are_whole(dump: tuple[Path, Node], tmp_path: Path) -> None:
    """Names are hashes in state files too, which stay files that a kubelet takes; CPUs are those that pods have."""
    folder, node = dump
    assert fleet("import", folder, "--out", tmp_path / "cluster", "--anonymise").exit_code == 0
    text = "".join(path.read_text() for path in (tmp_path / "cluster").rglob("*") if path.is_file())
    for word in ("worker-0", "uid-a", "main", "GPU-9"):
        assert word not in text
    found = run_rows(tmp_path / "cluster", tmp_path / "run")
    assert [found[str(number)]["cpus"] for number in range(3)] == [cpus_of_pod(node, name) for name in "abc"]


def test_policies_of_state_files(dump: tuple[Path, Node], tmp_path: Path) -> None:
    """Without the kubelet's configuration, what the files reveal of it is used."""
    folder, node = dump
    (folder / "configz" / "worker-0.json").unlink()
    result = fleet("import", folder, "--out", tmp_path / "cluster")
    assert "as state files say on 1 node" in result.output, result.output
    found = run_rows(tmp_path / "cluster", tmp_path / "run")
    assert [found[str(number)]["cpus"] for number in range(3)] == [cpus_of_pod(node, name) for name in "abc"]


def zones(node: Node) -> dict[str, Any]:
    """Return the object that an exporter of NodeResourceTopology writes for a node."""
    state, topology = node.state, node.rules.cpu.topology
    listed = []
    for zone, cpus in sorted(topology.numa_nodes.items()):
        table = (state.memory.machine_state[zone].memory_map or {})["memory"]
        pool = state.device.pools["nvidia.com/gpu"]
        near = [one for one in range(4) if zone in pool.numa[one]]
        used = sum(bool(state.device.used.get("nvidia.com/gpu", 0) >> one & 1) for one in near)
        amounts = {
            "cpu": (
                16,
                (cpus & ~node.rules.cpu.reserved).bit_count(),
                (cpus & state.cpu.default & ~node.rules.cpu.reserved).bit_count(),
            ),
            "memory": (table.total, table.allocatable, table.free),
            "nvidia.com/gpu": (2, 2, 2 - used),
        }
        resources = [
            {"name": name, "capacity": str(one[0]), "allocatable": str(one[1]), "available": str(one[2])}
            for name, one in amounts.items()
        ]
        listed.append({"name": f"node-{zone}", "type": "Node", "resources": resources})
    return {
        "kind": "NodeResourceTopology",
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "metadata": {"name": "worker-0"},
        "zones": listed,
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    }


def test_sums_of_zones_agree_without_state_files(tmp_path: Path) -> None:
    """With NodeResourceTopology alone each NUMA node has as much in use as the object says, and that is called
    approximate."""
    node = make_node(KEPT, GONE)
    folder = write_dump(tmp_path / "dump", [node_object("worker-0")], KEPT)
    (folder / "nrt.json").write_text(json.dumps({"kind": "List", "items": [zones(node)]}))
    result = fleet("import", folder, "--out", tmp_path / "cluster")
    assert "so that the sums of NodeResourceTopology agree (approximate) on 1 node" in result.output, result.output
    study = Study(load_scenario(tmp_path / "cluster" / "scenario.yaml"), tmp_path / "cluster")
    begun = study.fleet(study.cells[0])
    start = begun.nodes[0].start
    assert start is not None
    made = Node.of(begun.classes[0].rules, start)
    assert zones(made)["zones"] == zones(node)["zones"]
    assert made.admit(to_pod(pod("new", 6, gpus=1))).admitted == node.admit(to_pod(pod("new", 6, gpus=1))).admitted


def test_zones_that_no_placement_explains(tmp_path: Path) -> None:
    """Pods are admitted again, and a line reports it, if no placement of them has these sums."""
    node = make_node(KEPT, GONE)
    folder = write_dump(tmp_path / "dump", [node_object("worker-0")], [*KEPT, pod("late", 1)])
    (folder / "nrt.json").write_text(json.dumps({"kind": "List", "items": [zones(node)]}))
    result = fleet("import", folder, "--out", tmp_path / "cluster")
    assert "admitted again in order of their start on 1 node" in result.output
    assert "Left out: node worker-0: no placement of its pods agrees" in result.output


def test_owners_that_the_dump_does_not_have(dump: tuple[Path, Node], tmp_path: Path) -> None:
    """Resources of pods that are not in the dump are free, as they are for a kubelet without these pods."""
    folder, node = dump
    (folder / "pods.json").write_text(json.dumps({"kind": "List", "items": KEPT[:2]}))
    assert fleet("import", folder, "--out", tmp_path / "cluster").exit_code == 0
    study = Study(load_scenario(tmp_path / "cluster" / "scenario.yaml"), tmp_path / "cluster")
    start = study.fleet(study.cells[0]).nodes[0].start
    assert start is not None
    assert set(start.cpu.assignments) == {"uid-a", "uid-b"}
    assert start.cpu.default == node.state.cpu.default | node.state.cpu.assignments["uid-c"]["main"]


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("state/worker-0/cpu_manager_state", "{", "admitted again in order of their start on 1 node"),
        ("state/worker-0/cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0-31","checksum":1}',
         "node worker-0: its state files do not fit"),
        ("state/worker-0/kubelet_internal_checkpoint", "[]", "kubelet_internal_checkpoint"),
        ("machines/worker-0.yaml", "nodes: many", "machines/worker-0.yaml"),
        ("configz/worker-0.json", "[1]", "holds no configuration of a kubelet"),
        ("configz/worker-0.json", '{"kubeletconfig": {"cpuManagerPolicy": 7}}', "cpuManagerPolicy"),
    ],
)  # fmt: skip
def test_damaged_files_are_reported_in_a_line(
    dump: tuple[Path, Node], tmp_path: Path, file: str, text: str, said: str
) -> None:
    """Damaged files of a node are named; files that only do not fit cost the exact start and nothing else."""
    folder, _ = dump
    (folder / file).write_text(text)
    result = fleet("import", folder, "--out", tmp_path / "cluster")
    found = result.output + str(result.exception or "")
    assert said in found.replace("\n", " "), found
    assert "Traceback" not in found


def test_a_dump_is_read_once(dump: tuple[Path, Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the folder is parsed twice."""
    folder, _ = dump
    seen: list[Path] = []

    def count_reads(path: Path) -> list[Any]:
        seen.append(path)
        return read_documents(path)

    monkeypatch.setattr("podslice.fleet.importing.kube_dump.read_documents", count_reads)
    assert fleet("import", folder, "--out", tmp_path / "cluster").exit_code == 0
    assert sorted(seen) == [folder / "nodes.json", folder / "pods.json"]


# Histories


def pod_with_times(name: str, came: str, *, node: str = "worker-0", ended: str = "") -> dict[str, Any]:
    made = pod(name, 2, node=node)
    made["metadata"]["creationTimestamp"] = came
    if ended:
        terminated = {"terminated": {"finishedAt": ended}}
        made["status"] = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": terminated}]}
    return made


def test_several_dumps_are_a_history(tmp_path: Path) -> None:
    """Pods come when they were made and end when they say, or half-way between the dump that has them last and the
    next; those that ran at the beginning are on their nodes."""
    folder = write_dump(tmp_path / "dump", [node_object("worker-0")], ())
    (folder / "pods.json").unlink()
    before, later = pod_with_times("before", "2026-01-01T09:00:00Z"), pod_with_times("later", "2026-01-01T10:30:00Z")
    done = pod_with_times("done", "2026-01-01T10:10:00Z", ended="2026-01-01T10:40:00Z")
    old = pod_with_times("old", "2026-01-01T08:00:00Z", ended="2026-01-01T08:30:00Z")
    for hour, pods in ((10, [before, old]), (11, [before, later, done, old]), (12, [later])):
        path = folder / f"pods-2026-01-01T{hour}:00:00Z.json"
        path.write_text(json.dumps({"kind": "List", "items": pods}))
    result = fleet("import", folder, "--out", tmp_path / "cluster", "--since", "2026-01-01T10:00:00Z")
    assert result.exit_code == 0, result.output
    run_rows(tmp_path / "cluster", tmp_path / "run")
    found = [(row["arrival_ms"], row["ended_ms"]) for row in rows(tmp_path / "run" / "tables" / "pods.csv.gz")]
    assert found == [("0", "5400000"), ("600000", "2400000"), ("1800000", "")]


def test_the_last_of_several_dumps_counts_without_since(tmp_path: Path) -> None:
    """Without a history the pods are those of the last dump; dumps of single namespaces are one."""
    folder = write_dump(tmp_path / "dump", [node_object("worker-0")], ())
    (folder / "pods.json").unlink()
    for hour, pods in ((10, KEPT[:2]), (11, KEPT[1:])):
        (folder / f"pods-2026-01-01T{hour}:00:00Z.json").write_text(json.dumps({"kind": "List", "items": pods}))
    assert "2 pods on nodes" in fleet("import", folder, "--out", tmp_path / "a").output
    (folder / "pods-2026-01-01T11:00:00Z.json").write_text(json.dumps({"kind": "List", "items": KEPT[2:]}))
    assert "3 pods on nodes" in fleet("import", folder, "--out", tmp_path / "b").output


def test_a_wrong_time_is_refused(tmp_path: Path) -> None:
    """`--since` without a time zone, or no time at all."""
    folder = write_dump(tmp_path / "dump", [node_object("worker-0")], KEPT)
    for text in ("yesterday", "2026-01-01T10:00:00"):
        result = fleet("import", folder, "--out", tmp_path / "c", "--since", text)
        assert str(result.exception) == f"--since: '{text}' is not a time (write 2026-01-31T12:00:00Z)"
