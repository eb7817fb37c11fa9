"""Nodes and NodeResourceTopologies as machines: reported facts count, others are assumed with a line about it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from podslice import KubeletConfig, Node
from podslice.config.carriers.layer import API_VERSION
from podslice.config.kubelet_file import config_from_dict
from podslice.host.machine_files import dump_machine, load_machine, parse_described, parse_machine
from podslice.machine.model import Machine
from podslice.node.cpu.checkpoint import CPUCheckpoint, encode
from podslice.node_objects.described import DescribedNode
from podslice.values.cpuset import format_bits
from podslice.values.errors import InputError
from tests.conftest import make_pod
from tests.shell import podslice

NFD = "feature.node.kubernetes.io"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n7", "labels": {}},
    "status": {
        "capacity": {"cpu": "16", "memory": "66571232Ki", "hugepages-2Mi": "2Gi", "nvidia.com/gpu": "2", "pods": "200"},
        "allocatable": {"cpu": "15", "memory": "60Gi", "hugepages-2Mi": "2Gi", "nvidia.com/gpu": "2", "pods": "200"},
        "nodeInfo": {"architecture": "amd64"},
    },
}


def zone(number: int, cpus: int = 8, *, free: int | None = None, **more: Any) -> dict[str, Any]:
    """A NUMA node with one CPU kept from pods, and 32 GiB."""
    cpu = {
        "name": "cpu",
        "capacity": cpus,
        "allocatable": str(cpus - 1),
        "available": cpus - 1 if free is None else free,
    }
    memory = {"name": "memory", "capacity": "32Gi", "allocatable": "31Gi", "available": "31Gi"}
    costs = [{"name": f"node-{other}", "value": 10 if other == number else 21} for other in (0, 1)]
    return {"name": f"node-{number}", "type": "Node", "costs": costs, "resources": [cpu, memory], **more}


TOPOLOGY: dict[str, Any] = {
    "apiVersion": "topology.node.k8s.io/v1alpha2",
    "kind": "NodeResourceTopology",
    "metadata": {"name": "n7"},
    "attributes": [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "pod"},
    ],
    "zones": [zone(0), zone(1)],
}


def described(data: dict[str, Any]) -> DescribedNode:
    return parse_described(json.dumps(data), source="n.json")


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with something else at a path such as `zones/0/name`; None removes."""
    made = copy.deepcopy(data)
    *before, last = path.split("/")
    place: Any = made
    for step in before:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    if value is None:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return made


def problem(data: dict[str, Any]) -> str:
    """Return the error in an object, empty where it is a machine."""
    try:
        return "" if described(data).machine.cpu_count else "no CPUs"
    except InputError as error:
        return str(error)


def started(found: DescribedNode) -> Node:
    fields = {"apiVersion": API_VERSION, "kind": "KubeletConfiguration", **found.fields}
    return Node(found.machine, config_from_dict(fields).config, devices=found.devices)


def layout(machine: Machine) -> dict[int, tuple[int, ...]]:
    return {node.id: tuple(sorted(cpu for core in node.cores for cpu in core.threads)) for node in machine.nodes}


def test_a_node_reports_what_its_object_reported() -> None:
    """A kubelet on the described machine, configured as described, reports the same capacity and allocatable."""
    found = described(NODE)
    resources = started(found).view.resources
    assert {name: str(resources.allocatable[name]) for name in ("cpu", "pods")} == {"cpu": "15", "pods": "200"}
    assert resources.allocatable["memory"].value() == 60 << 30
    assert resources.capacity["memory"].value() == 66571232 << 10
    assert resources.allocatable["hugepages-2Mi"].value() == 2 << 30
    assert found.devices is not None
    assert [(one.resource, len(one.devices)) for one in found.devices.resources] == [("nvidia.com/gpu", 2)]


@pytest.mark.parametrize(("labels", "sizes", "threads", "part"), [
    ({}, [16], 2, "one NUMA node, because no label"),
    ({f"{NFD}/memory-numa": "false"}, [16], 2, "two threads in each core"),
    ({f"{NFD}/memory-numa": "true"}, [8, 8], 2, "two NUMA nodes of equal size"),
    ({f"{NFD}/cpu-hardware_multithreading": "false"}, [16], 1, "one NUMA node"),
    ({f"{NFD}/cpu-hardware_multithreading": "true"}, [16], 2, "CPUs numbered as Linux does"),
])  # fmt: skip
def test_labels_of_a_node(labels: dict[str, str], sizes: list[int], threads: int, part: str) -> None:
    """NFD's labels count; facts without a label are assumed, with a line about it."""
    found = described(changed(NODE, "metadata/labels", labels))
    assert [len(cpus) for cpus in layout(found.machine).values()] == sizes
    assert {len(core.threads) for node in found.machine.nodes for core in node.cores} == {threads}
    assert any(part in line for line in map(str, found.assumed))
    assert sum(node.memory for node in found.machine.nodes) == 66571232 << 10


def test_arm_machines_have_one_thread_in_a_core() -> None:
    """On arm64 cores have no second threads, and an odd number of CPUs has none either."""
    arm = described(changed(NODE, "status/nodeInfo/architecture", "arm64"))
    odd = described(changed(changed(NODE, "status/capacity/cpu", "15"), "status/allocatable/cpu", "15"))
    assert {len(core.threads) for one in (arm, odd) for core in one.machine.nodes[0].cores} == {1}
    assert any("arm64" in line for line in map(str, arm.assumed))
    assert any("odd" in line for line in map(str, odd.assumed))


@pytest.mark.parametrize(("path", "value", "part"), [
    ("status", None, "status.capacity[cpu]: is missing"),
    ("status/capacity/cpu", None, "status.capacity[cpu]: is missing"),
    ("status/capacity/memory", None, "status.capacity[memory]: is missing"),
    ("status/capacity/cpu", "15500m", "is not a whole number"),
    ("status/capacity/cpu", "0", "a node without CPUs"),
    ("status/capacity/cpu", "99999", "more CPUs than Linux supports"),
    ("status/capacity/cpu", "-4", "is negative"),
    ("status/capacity/cpu", [1], "is not an amount"),
    ("status/capacity/memory", "lots", "is not an amount"),
    ("status/capacity/nvidia.com~1gpu", "x", "is not an amount"),
    ("status/allocatable/cpu", "17", "status.allocatable[cpu]: 17 is more than the capacity, 16"),
    ("status/allocatable/example.com~1nic", "1", "which has none of it"),
    ("status/capacity/hugepages-1Gi", "1Mi", "are not whole pages"),
    ("status/capacity/hugepages-x", "1Mi", "is not an amount"),
    ("status/capacity", [], "is not a map"),
    ("metadata/labels", 1, "is not a map"),
    ("metadata/labels", {f"{NFD}/cpu-hardware_multithreading": "true"}, ""),
])  # fmt: skip
def test_damaged_nodes(path: str, value: Any, part: str) -> None:
    """A contradiction, or text that is not an amount, is one line with the field."""
    data = changed(NODE, path, value)
    if "~1" in path:
        data = json.loads(json.dumps(data).replace("~1", "/"))
    if not part:
        data, part = changed(data, "status/capacity/cpu", "15"), "15 CPUs are not whole cores of 2 threads"
        data = changed(data, "status/allocatable/cpu", "15")
    with pytest.raises(InputError) as error:
        described(data)
    assert str(error.value).startswith("n.json: ")
    assert "\n" not in str(error.value)
    assert part in str(error.value)


def test_zones_are_numa_nodes() -> None:
    """CPUs, memory, distances and devices of each zone; the kubelet's configuration has the attributes, and reserves
    what the zones keep from pods."""
    gpu = {"name": "nvidia.com/gpu", "capacity": 4, "allocatable": 4, "available": 4}
    second = zone(1, resources=[*zone(1)["resources"], gpu])
    found = described(changed(TOPOLOGY, "zones/1", second))
    assert layout(found.machine) == {0: (0, 1, 2, 3, 8, 9, 10, 11), 1: (4, 5, 6, 7, 12, 13, 14, 15)}
    assert [node.distances for node in found.machine.nodes] == [(10, 21), (21, 10)]
    assert [node.memory for node in found.machine.nodes] == [32 << 30] * 2
    node = started(found)
    assert node.view.config == KubeletConfig(
        cpu_manager_policy="static", topology_manager_policy="single-numa-node", topology_manager_scope="pod",
        reserved_system_cpus="0,4", eviction_hard={}, system_reserved={"memory": str(2 << 30)},
    )  # fmt: skip
    assert node.view.resources.allocatable["cpu"].value() == 14
    assert node.view.resources.allocatable["memory"].value() == 62 << 30
    assert found.devices is not None
    assert {device.numa for device in found.devices.resources[0].devices} == {(1,)}
    assert any("each NUMA node on a socket of its own" in line for line in map(str, found.assumed))
    assert any("reservedSystemCPUs 0,4" in line for line in map(str, found.settled))


@pytest.mark.parametrize(("path", "value", "fields", "part"), [
    ("attributes", [], {"topologyManagerPolicy": "none"}, "does not say"),
    ("topologyPolicies", ["RestrictedPodLevel"], {"topologyManagerPolicy": "single-numa-node"}, "says restricted"),
    ("attributes/0/name", "topologyManagerOptionPreferClosestNUMANodes",
     {"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "single-numa-node"}}, "does not say"),
    ("attributes/1", {"name": "topologyManagerMaxNUMANodes", "value": "16"},
     {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"}}, ""),
    ("attributes/1", {"name": "topologyManagerOptionTeleport", "value": "true"}, {}, "topologyManagerOptionTeleport"),
])  # fmt: skip
def test_attributes(path: str, value: Any, fields: dict[str, Any], part: str) -> None:
    """Attributes win over topologyPolicies; options are the kubelet's; what is missing or unknown is said."""
    found = described(changed(TOPOLOGY, path, value))
    assert fields.items() <= dict(found.fields).items()
    assert any(part in line for line in map(str, found.settled))


@pytest.mark.parametrize(("policies", "wanted"), [
    (["SingleNUMANode"], ("single-numa-node", "container")), (["SingleNUMANodePodLevel"], ("single-numa-node", "pod")),
    (["BestEffortPodLevel"], ("best-effort", "pod")), (["RestrictedContainerLevel"], ("restricted", "container")),
    (["None"], ("none", "container")),
])  # fmt: skip
def test_older_objects(policies: list[str], wanted: tuple[str, str]) -> None:
    """v1alpha1 gives policy and scope in one word."""
    data = {**TOPOLOGY, "apiVersion": "topology.node.k8s.io/v1alpha1", "topologyPolicies": policies, "attributes": []}
    found = described(data)
    assert (found.fields["topologyManagerPolicy"], found.fields["topologyManagerScope"]) == wanted


def test_what_pods_hold_is_said() -> None:
    """`available` below `allocatable` means pods that the object does not name."""
    found = described(changed(TOPOLOGY, "zones/0", zone(0, free=3)))
    assert "nothing runs, though pods hold 4 cpu of node-0 (--pods or --state says which)" in map(str, found.assumed)


def test_other_zones_and_missing_figures_are_said() -> None:
    """Zones of sockets or caches are ignored; memory and distances that no zone reports are assumed."""
    bare = {"name": "numa-node-0", "type": "Node", "resources": [{"name": "cpu", "capacity": "4"}]}
    data = {**TOPOLOGY, "zones": [bare, {**bare, "name": "numa-node-1"}, {"name": "socket #0", "type": "socket"}]}
    found = described(data)
    text = "\n".join(map(str, found.assumed))
    for part in ("zones of type socket", "4 GiB of memory for each CPU", "distances 10 and 20"):
        assert part in text
    assert [node.memory for node in found.machine.nodes] == [16 << 30] * 2
    assert any("one CPU reserved" in line for line in map(str, found.settled))


def test_koordinator_tells_cores() -> None:
    """Its annotations have CPUs, cores, sockets, and the CPU Manager's policy; nothing of them is assumed then."""
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // 8} for cpu in range(16)]
    policy = {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": "0-1"}
    annotations = {
        "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
        "kubelet.koordinator.sh/cpu-manager-policy": json.dumps(policy),
    }
    found = described(changed(TOPOLOGY, "metadata/annotations", annotations))
    assert layout(found.machine) == {0: tuple(range(8)), 1: tuple(range(8, 16))}
    assert (found.machine.socket_count, found.assumed) == (1, ())
    assert found.fields["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    assert started(found).reserved_cpus == found.machine.cpus.parse("0-1")


@pytest.mark.parametrize(("path", "value", "part"), [
    ("apiVersion", "topology.node.k8s.io/v1", "apiVersion: 'topology.node.k8s.io/v1' is not supported"),
    ("zones", None, "zones: none is of type Node"),
    ("zones", {}, "is not a list"),
    ("zones/0/type", "Socket", "zones[1].costs[0].name: 'node-0' is not a zone here"),
    ("zones/0/name", "left", "has no number of a NUMA node"),
    ("zones/1/name", "node-0", "is listed twice"),
    ("zones/0/costs/0/value", 0, "0 is not a distance"),
    ("zones/0/costs/0/value", "far", "is not an amount"),
    ("zones/0/costs/0/name", "node-9", "'node-9' is not a zone here (one of node-0, node-1)"),
    ("zones/0/resources/0/name", "memory", "memory is listed twice"),
    ("zones/0/resources/0/allocatable", 9, "allocatable: 9 is more than capacity, 8"),
    ("zones/0/resources/0/available", 8, "available: 8 is more than allocatable, 7"),
    ("zones/0/resources/0/capacity", None, "capacity: None is not an amount"),
    ("zones/0/resources/0/capacity", -1, "is negative"),
    ("attributes/0/value", "strict", "'strict' is unknown (one of none, best-effort"),
    ("attributes/1", {"name": "topologyManagerPolicy", "value": "none"}, "is single-numa-node and none (say it once)"),
    ("topologyPolicies", ["Whatever"], "'Whatever' is unknown"),
    ("topologyPolicies", "None", "is not a list"),
    ("metadata/annotations", {"node.koordinator.sh/cpu-topology": "{..."}, "is not JSON"),
    ("metadata/annotations", {"node.koordinator.sh/cpu-topology": '{"detail": []}'}, "lists 0 CPUs of NUMA node 0"),
])  # fmt: skip
def test_damaged_topologies(path: str, value: Any, part: str) -> None:
    """A contradiction, or unreadable text, is one line with the field."""
    with pytest.raises(InputError) as error:
        described(changed(TOPOLOGY, path, value))
    assert str(error.value).startswith("n.json: ")
    assert part in str(error.value)


_VALUES = st.one_of(
    st.none(), st.integers(-3, 3), st.text(max_size=3), st.just([]), st.just({}), st.just([{}]), st.just(1e30)
)


def _paths(data: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path for key, value in steps for path in ((*before, key), *_paths(value, (*before, key)))]


@given(st.sampled_from([NODE, TOPOLOGY]), st.data())
def test_no_damage_is_a_traceback(data: dict[str, Any], draw: st.DataObject) -> None:
    """Whatever stands in a field: a machine, or one line."""
    made = copy.deepcopy(data)
    path = draw.draw(st.sampled_from(_paths(made)))
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = draw.draw(_VALUES)
    assert "\n" not in problem(made)


def test_several_objects_are_refused_and_one_of_a_list_is_taken() -> None:
    """`kubectl get nodes` of one node is that node; several are named."""
    one = {"apiVersion": "v1", "kind": "List", "items": [NODE]}
    assert described(one) == described(NODE)
    for several in (
        {**one, "items": [NODE, changed(NODE, "metadata/name", "n8")]},
        {**one, "kind": "NodeList", "items": []},
    ):
        with pytest.raises(InputError, match="not one node"):
            described(several)
    with pytest.raises(InputError, match=r"holds 2 objects \(n7, n7\)"):
        parse_machine(f"{json.dumps(NODE)}\n---\n{json.dumps(TOPOLOGY)}")


@pytest.mark.parametrize("data", [NODE, TOPOLOGY])
def test_assumptions_stay_with_the_machine(data: dict[str, Any]) -> None:
    """Written in another form the machine still says what was assumed about it."""
    found = described(data)
    assert found.assumed
    again = parse_described(dump_machine(found.machine, "yaml"))
    assert (again.machine, again.assumed) == (found.machine, found.assumed)


def test_objects_that_others_publish(shared: Path) -> None:
    """Every NodeResourceTopology of the collected ones becomes a machine on which a node starts, or one line."""
    folder = shared / "nrt"
    if not folder.is_dir():
        pytest.skip("needs nrt in the shared folder")
    machines = 0
    for path in sorted(folder.glob("*.yaml")):
        documents = [one for one in yaml.safe_load_all(path.read_text()) if one]
        for document in documents if documents[0].get("kind") == "NodeResourceTopology" else []:
            text = problem(document)
            assert "\n" not in text
            if not text:
                started(described(document))
                machines += 1
    assert machines >= 12


def test_on_the_command_line(tmp_path: Path) -> None:
    """`--from` and `--machine` accept them; each assumption is in the first line; a given configuration wins
    over the object, and the contradiction is reported."""
    file, pod = tmp_path / "n7.json", tmp_path / "pod.yaml"
    file.write_text(json.dumps(TOPOLOGY))
    amounts = {"limits": {"cpu": "8", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": amounts}]}
    pod.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}))
    answers = [podslice("admit", str(pod), option, str(file)) for option in ("--from", "--machine")]
    assert [answer.returncode for answer in answers] == [1, 1]
    assert "single-numa-node" in answers[0].stdout
    first = answers[0].stdout.splitlines()[0]
    assert "two threads in each core" in first
    assert first.partition("assumed: ")[2].count("; ") == 4
    other = podslice("admit", str(pod), "--from", str(file), "--set", "topologyManagerPolicy=none")
    assert (other.returncode, "n7 says single-numa-node" in other.stderr) == (0, True)
    config = tmp_path / "kubelet.yaml"
    config.write_text(f"apiVersion: {API_VERSION}\nkind: KubeletConfiguration\n")
    given = podslice("admit", str(pod), "--from", str(file), "--config", str(config))
    assert "cpuManagerPolicy static" not in given.stdout
    assert "each NUMA node on a socket of its own" in given.stdout
    assert "cpuManagerPolicy static" in podslice("whatif", str(pod), "--from", str(file)).stdout
    assert podslice("admit", str(pod), "--from", str(file), "--quiet").stderr == ""
    topology = podslice("topology", "--machine", str(file))
    assert (topology.stderr, "! assumed: two threads in each core" in topology.stdout) == ("", True)
    assert "6 CPUs" not in podslice("inspect", str(pod), "--node", str(file)).stdout
    assert load_machine(file).name == "n7"


def test_lint_knows_the_told_configuration(tmp_path: Path) -> None:
    """`lint` uses the node's configuration from the object, without --config, and prints its assumptions; a plain
    machine has no configuration."""
    file, pod = tmp_path / "n7.json", tmp_path / "pod.yaml"
    file.write_text(json.dumps(TOPOLOGY))
    amounts = {"limits": {"cpu": "8", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": amounts}]}
    pod.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}))
    result = podslice("lint", str(pod), "--from", str(file))
    assert "error PS202" in result.stdout
    assert "cpuManagerPolicy static" in " ".join(result.stdout.split()).partition("assumed: ")[2]
    other = podslice("lint", str(pod), "--from", str(file), "--set", "topologyManagerPolicy=none")
    assert ("info PS202" in other.stdout, "n7 says single-numa-node" in other.stderr) == (True, True)
    plain = podslice("lint", str(pod), "--from", "pack:2 core:4 pu:2")
    assert ("PS202" in plain.stdout, "no rule checks pods against the machine" in plain.stderr) == (False, True)


@pytest.mark.parametrize("more", [(), ("--set", "cpuManagerPolicy=static")])
@pytest.mark.parametrize(("owned", "code"), [("0", 1), ("1", 0)])
def test_state_verify_knows_the_told_reservation(tmp_path: Path, owned: str, code: int, more: tuple[str, ...]) -> None:
    """A Node keeps a CPU from pods, so no kubelet starts there with a file that gives it to one. The Node does not
    report the policy, so the file's counts. A reservation by options wins over the Node's."""
    node, state = tmp_path / "n7.json", tmp_path / "cpu_manager_state"
    node.write_text(json.dumps(NODE))
    rest = format_bits(0xFFFF & ~(1 << int(owned)))
    state.write_bytes(encode(CPUCheckpoint("static", rest, {"u": {"c": owned}}), "v2"))
    found = podslice("state", "verify", str(state), "--from", str(node), *more)
    assert (found.returncode, "not all reserved cpus" in found.stdout) == (code, bool(code)), found.stdout
    assert "assumed: one NUMA node" in found.stderr
    if not more:
        other = podslice("state", "verify", str(state), "--from", str(node), "--reserved-cpus", "2")
        assert (other.returncode, other.stdout.count("not all reserved cpus")) == (0, 0)


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_a_windows_node_takes_no_pod_level_resources(profile: str) -> None:
    """The object says which operating system the machine has; other pods are admitted there, and never resized."""
    info = {"operatingSystem": "windows", "architecture": "amd64"}
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    found = described({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "win"},
        "status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": info},
    })  # fmt: skip
    assert found.machine.operating_system == "windows"
    node = Node(found.machine, config_from_dict({"apiVersion": API_VERSION, "kind": "KubeletConfiguration"}).config,
                profile=profile)  # fmt: skip
    refused = node.admit(make_pod("p", ("c", "1"), budget="2"))
    assert (refused.reason, refused.message) == (
        "PodLevelResourcesNotSupported", "pod-level resources are not supported on Windows",
    )  # fmt: skip
    assert node.admit(make_pod("q", ("c", "500m"), memory="64Mi")).admitted
    resized = node.resize(make_pod("q", ("c", "600m"), memory="64Mi"))
    assert (resized.outcome, resized.detail) == ("Infeasible", "windows")
