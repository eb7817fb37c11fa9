"""`podslice inspect` as a person sees it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml

from tests.read_documents import read_document
from tests.shell import Answer, podslice

ROOT = Path(__file__).parents[2]
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop}
spec:
  resources: {requests: {memory: 3Gi}, limits: {cpu: "2", memory: 4Gi}}
  containers:
    - name: postgres
      resources: {requests: {cpu: 500m, memory: 1.5Gi}, limits: {hugepages-2Mi: 4Mi, memory: 2Gi}}
    - name: exporter-of-metrics
"""
LIMITS = """\
kind: List
items:
  - {kind: ConfigMap}
  - kind: LimitRange
    metadata: {name: small}
    spec: {limits: [{type: Container, default: {memory: 2Gi}, max: {cpu: "1"}}]}
"""


def run(*arguments: str, stdin: str = POD, columns: int = 100) -> Answer:
    return podslice("inspect", *arguments, stdin=stdin, COLUMNS=str(columns))


@pytest.mark.slow
def test_page() -> None:
    """The page has every section; what was filled in is marked; no colours go into a pipe."""
    result = run("-", "--node", "memory=16Gi")
    assert (result.returncode, result.stderr) == (0, "")
    for part in (
        "Pod shop/db",
        "QoS Burstable: not Guaranteed, because spec.resources has cpu request 500m below its limit 2",
        "API server: accepts its resources",
        "→ 500m *",
        "1.5Gi",
        "* filled in by the API server's defaulting",
        "spec.resources.requests 3Gi (containers together: 1536Mi)",
        "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice",
        "4294967296 (4Gi)",
        "hugetlb.2MB.max",
        "scheduler: filter",
        "Cluster Autoscaler",
    ):
        assert part in result.stdout
    assert "\x1b" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 100, 120])
def test_page_fits(columns: int) -> None:
    """The page stays within the terminal and loses nothing: every name and score is still there."""
    result = run("-", "--node", "memory=16Gi", columns=columns)
    assert all(len(line) <= columns for line in result.stdout.splitlines())
    joined = "".join(line.strip() for line in result.stdout.splitlines())
    for part in ("exporter-of-metrics", "OOM SCORE", "860", "954"):
        assert part in joined


@pytest.mark.slow
def test_json_and_yaml() -> None:
    """Machine-readable pages carry the same facts."""
    as_json = read_document(run("-", "-o", "json").stdout, "InspectionList")
    assert yaml.safe_load(run("-", "-o", "yaml").stdout) == as_json
    (page,) = as_json["items"]
    assert (page["kind"], page["namespace"], page["name"]) == ("Pod", "shop", "db")
    assert page["qos"]["qosClass"] == "Burstable"
    assert page["cgroups"][1]["oomScoreAdj"] is None


@pytest.mark.slow
def test_limit_range(tmp_path: Path) -> None:
    """LimitRange objects fill in defaults and refuse; then the exit code is 1."""
    path = tmp_path / "limits.yaml"
    path.write_text(LIMITS)
    result = run("-", "--limit-range", str(path))
    assert result.returncode == 1
    assert "→ 2Gi +" in result.stdout
    assert "+ filled in from a LimitRange" in result.stdout
    refused = run("-", "--limit-range", str(path), stdin=POD.replace("hugepages-2Mi: 4Mi", "cpu: 2"))
    assert "small: maximum cpu usage per Container is 1, but limit is 2" in refused.stdout


@pytest.mark.slow
def test_node_object_and_gates(tmp_path: Path) -> None:
    """A Node object gives memory and allocatable; gates change what is computed."""
    path = tmp_path / "node.yaml"
    path.write_text("kind: Node\nstatus: {capacity: {cpu: 1, memory: 8Gi, pods: 9}}\n")
    result = run("-", "--node", str(path), "--gates", "MemoryQoS=true", "-o", "json")
    page = read_document(result.stdout, "InspectionList")["items"][0]
    assert page["cgroups"][1]["oomScoreAdj"] == 719
    assert page["cgroups"][1]["files"]["memory.high"] == "2093793280"
    assert page["counts"][0]["note"] == "does not fit the empty node: Insufficient hugepages-2Mi (4Mi of 0)"


@pytest.mark.slow
def test_machine_and_configuration() -> None:
    """With a machine the kubelet's managers decide as well, and exclusive CPUs have no quota."""
    result = run("examples/pods.yaml", "--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
    assert "Kubelet: admits it on the empty node, CPUs postgres 2-9,194-201" in result.stdout
    assert "Kubelet: refuses it, TopologyAffinityError" in result.stdout
    assert "CFS quota is off for postgres (CPUs of their own) and so for the pod" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gates", "MemoryQoS"), "'MemoryQoS' is not NAME=true or NAME=false"),
        (("--gates", "NoSuchGate=true"), "NoSuchGate"),
        (("--gates", "PodLevelResources=false"), "depends on features that are disabled"),
        (("--node", "memory=much"), "'much' is not a quantity"),
        (("--node", "cgroup=3"), "not a cgroup version"),
        (("--node", "examples/small.yaml"), "is not a Node object"),
        (("--limit-range", "examples/small.yaml"), "holds no LimitRange"),
        (("no-such-file.yaml",), "cannot be read"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], says: str) -> None:
    """Every mistake is one line and exit code 2."""
    result = run("-", *arguments)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert says in result.stderr


def test_refused_pod_is_shown() -> None:
    """A pod that the API server refuses is a page with the errors, not bad input."""
    result = run("-", stdin=POD.replace("memory: 3Gi", "memory: 5Gi"))
    assert result.returncode == 1
    assert "API server: refuses it" in result.stdout
    assert (
        'spec.resources.requests: Invalid value: "5Gi": must be less than or equal to memory limit of' in result.stdout
    )


def test_documentation_shows_the_page() -> None:
    """The page in docs/inspect.md is what the command prints."""
    text = (ROOT / "docs" / "inspect.md").read_text(encoding="utf-8")
    shown = text.split("```text\n$ podslice inspect ")[1].split("```")[0]
    command, _, page = shown.partition("\n")
    assert run(*command.split()).stdout == page


def test_devices_of_the_machine() -> None:
    """`--devices` puts devices on the machine: the managers allocate them, and the scheduler counts the healthy ones;
    without a machine it is bad input."""
    devices = "[{resource: a.b/gpu, devices: [{id: g0, numa: [1]}, {id: g1, numa: [0], health: Unhealthy}]}]"
    pod = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 2, "memory": "1Gi", "a.b/gpu": 1}}}]},
        }
    )
    settings = ("cpuManagerPolicy=static", "reservedSystemCPUs=0", "topologyManagerPolicy=single-numa-node")
    node = ("--machine", "xeon-8380-2s", *(word for own in settings for word in ("--set", own)), "-o", "json")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(devices)
        file.flush()
        one = run("-", *node, "--devices", file.name, stdin=pod)
        two = run("-", *node, "--devices", file.name, stdin=pod.replace("a.b/gpu: 1", "a.b/gpu: 2"))
        bad = run("-", "--devices", file.name, stdin=pod)
    fits = read_document(one.stdout, "InspectionList")["items"][0]
    assert fits["placement"]["cpus"] == {"c": "40,120"}  # beside the device, on NUMA node 1
    assert "Insufficient" in two.stdout
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
    assert "--devices: no machine to put these devices on" in bad.stderr
