"""`podslice explain` as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.read_documents import read_document
from tests.render.test_pictures import Validator
from tests.shell import podslice as run

NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")


@pytest.mark.slow
def test_explain_example() -> None:
    """The example has a story and a table, and lists fixes that name the fields to change."""
    result = run("explain", "examples/pods.yaml", *NODE, "-o", "wide")
    counted = "Deployment default/web asks for 2 pods, one of them is counted; --replicas counts all"
    assert (result.returncode, result.stderr) == (1, f"warning: examples/pods.yaml: {counted}\n")
    for part in (
        "container solver asks for cpu 64".capitalize(),
        "cpu needs 64, has only 48 when empty",
        "cpu: too little even when empty",
        "1. Ask for 48 instead of 64 CPUs in container solver.",
        "spec.containers[solver].resources.limits.cpu: 64 → 48",
        "topologyManagerPolicy: best-effort (now single-numa-node)",
    ):
        assert part in result.stdout


@pytest.mark.slow
def test_explain_json_names_codes() -> None:
    """Machine-readable output carries codes, hints and fixes."""
    out = run("explain", "examples/pods.yaml", *NODE, "-o", "json").stdout
    data = read_document(out, "ExplanationList")["items"]
    refused = data[-1]
    assert (refused["admitted"], refused["reason"], refused["code"]) == (False, "TopologyAffinityError", "cpu-too-big")
    assert refused["steps"][0]["answers"][0]["hints"][0] == {"nodes": "0-1", "preferred": True}
    assert refused["fixes"][0]["edits"][0] == {
        "path": "spec.containers[solver].resources.requests.cpu",
        "before": "64",
        "after": "48",
    }
    assert [pod["fixes"] for pod in data[:-1]] == [[]] * 3


@pytest.mark.slow
def test_explain_on_a_state_directory(tmp_path: Path) -> None:
    """Owners in the kubelet's files count without their pods, unless the folder shows that those are gone."""
    from podslice import KubeletConfig, Node
    from podslice.machine.readers.synthetic import from_synthetic
    from tests.conftest import make_pod

    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="restricted")
    node = Node(from_synthetic("pack:1 numa:2(memory=8GB) core:4 pu:2"), config)
    assert node.admit(make_pod("a", ("c", "5"))).admitted
    assert node.admit(make_pod("b", ("c", "5"))).admitted
    for name, data in node.files.items():
        (tmp_path / name).write_bytes(data)
    arguments = (
        "explain", "-", "--from", "pack:1 numa:2(memory=8GB) core:4 pu:2", "--state", str(tmp_path),
        "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0",
        "--set", "topologyManagerPolicy=restricted",
    )  # fmt: skip
    pod = """{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [
        {name: c, resources: {limits: {cpu: "4", memory: 1Gi}}}]}}"""
    result = run(*arguments, stdin=pod)
    assert (result.returncode, result.stderr) == (1, "")
    assert "(cpu-scattered)" in result.stdout
    assert "Delete (state)/a" in result.stdout
    assert "0   4/2" in " ".join(result.stdout.split("  "))
    (tmp_path / "pods/b").mkdir(parents=True)
    assert run(*arguments, stdin=pod).returncode == 0, "a live kubelet has a folder for each pod"
    (tmp_path / "pods/b").rmdir()
    (tmp_path / "pods").rmdir()
    granted = dict(node.files)["allocated_pods_state"]
    node.remove("a")
    (tmp_path / "allocated_pods_state").write_bytes(node.files["allocated_pods_state"])
    assert run(*arguments, stdin=pod).returncode == 0, "a kubelet grants nothing to pods that it refuses"
    (tmp_path / "allocated_pods_state").write_bytes(granted)
    assert run(*arguments, stdin=pod).returncode == 1
    (tmp_path / "ended.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: a, uid: a}, spec: {containers: [{name: c}]}, "
        "status: {phase: Succeeded}}"
    )
    assert run(*arguments, "--pods", str(tmp_path / "ended.yaml"), stdin=pod).returncode == 0


@pytest.mark.slow
def test_explain_page(tmp_path: Path) -> None:
    """--out writes a valid page with verdicts, fixes and a picture for each pod; the reason of a refusal is at the top,
    and the picture says what is in the way."""
    page = tmp_path / "why.html"
    assert run("explain", "examples/pods.yaml", *NODE, "--out", str(page)).returncode == 1
    text = page.read_text().rstrip("\n")
    Validator().check(text)
    assert text.count('class="picture"') == 4
    refused = text.partition("default/too-wide <")[2]
    parts = ("Refused with", "What makes it fit", "At the price", "What is in its way", "Needs 64 CPUs", "The story")
    places = [refused.index(part) for part in parts]
    assert places == sorted(places)
    assert "NUMA distances" not in text
    assert "would be refused: TopologyAffinityError" in text
    assert "Ask for 48 instead of 64 CPUs in container solver" in text


def test_explain_mistakes_are_one_line(tmp_path: Path) -> None:
    """An empty state directory is a mistake of one line, and so is one that does not exist."""
    for folder, problem in ((tmp_path, "holds no state file"), (tmp_path / "none", "does not exist")):
        result = run("explain", "examples/small.yaml", "--state", str(folder))
        assert result.returncode == 2
        assert result.stderr.count("\n") == 1
        assert problem in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["admit", "explain"])
@pytest.mark.parametrize(
    ("name", "content"), [("cpu_manager_state", "garbage"), ("memory_manager_state", "{"), ("cpu_manager_state", "{}")]
)
def test_a_damaged_copy_is_named(tmp_path: Path, command: str, name: str, content: str) -> None:
    """A kubelet's error about its own file names the file that was given, with a remedy that fits a copy."""
    (tmp_path / name).write_text(content)
    settings = ("--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0")
    result = run(command, "examples/small.yaml", *NODE[:2], *settings, "--state", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr.startswith(f"podslice: error: {tmp_path / name}: a kubelet would not start with it: ")
    assert "podslice state repair" in result.stderr
    assert "/var/lib/kubelet" not in result.stderr
    assert "delete" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) - len(str(tmp_path)) < 300


@pytest.mark.slow
def test_pods_as_kubectl_lists_them(tmp_path: Path) -> None:
    """Ended pods hold nothing; pods of several nodes are counted, with a warning that names the nodes."""

    def pod(name: str, phase: str, node: str) -> str:
        limits = '{cpu: "6", memory: 1Gi}'
        return (
            f"- {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, uid: {name}}}, status: {{phase: {phase}}}, "
            f"spec: {{nodeName: {node}, containers: [{{name: c, resources: {{limits: {limits}}}}}]}}}}\n"
        )

    listed = tmp_path / "pods.yaml"
    new = tmp_path / "new.yaml"
    new.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: x},"
        ' spec: {containers: [{name: c, resources: {limits: {cpu: "6"}}}]}}'
    )
    arguments = ("explain", str(new), "--machine", "laptop-i5-8250u", "--set", "cpuManagerPolicy=static",
                 "--set", "reservedSystemCPUs=0", "--pods", str(listed))  # fmt: skip
    listed.write_text(
        "apiVersion: v1\nkind: List\nitems:\n" + pod("done", "Succeeded", "n1") + pod("lost", "Failed", "n1")
    )
    result = run(*arguments)
    assert (result.returncode, result.stderr) == (0, "")
    listed.write_text("apiVersion: v1\nkind: List\nitems:\n" + pod("a", "Running", "n1") + pod("b", "Pending", "n2"))
    result = run(*arguments)
    assert "--pods names 2 nodes (n1, n2); all its pods count as running on this one" in result.stderr
    assert "Contradiction: default/b runs, but this node refuses it with " in result.stdout


def test_a_pod_that_runs_already_is_one_more(tmp_path: Path) -> None:
    """A pod of FILE with the UID of a running one counts as a second such pod, and a warning says so."""
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: db, uid: a-1}\n"
        "spec: {containers: [{name: c, image: c, resources: {limits: {cpu: 2, memory: 1Gi}}}]}\n"
    )
    static = ("--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0")
    node = ("--from", "pack:1 numa:1(memory=8GiB) core:4 pu:1", *static)
    result = run("explain", str(pod), "--pods", str(pod), *node)
    assert result.returncode == 1
    assert result.stderr == f"warning: {pod}: default/db runs on the node already; this is one more such pod\n"
    assert run("explain", str(pod), *node).stderr == ""
