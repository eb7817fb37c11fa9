"""The first commands of a new user, and the usual first mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice import NodeStore, load_gallery, load_kubelet_config, load_pods
from tests.shell import ROOT
from tests.shell import podslice as run

NONE = ("examples/small.yaml", "--machine", "xeon-6338-2s")


def test_a_recommendation_without_reserved_cpus() -> None:
    """Where nothing is reserved, what is recommended reserves something, and the answer says so."""
    result = run("whatif", *NONE, "--recommend")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Nothing is reserved for the system now" in result.stdout
    assert "    reservedSystemCPUs: " in result.stdout


@pytest.mark.parametrize("command", ["explain", "whatif"])
def test_a_page_is_html(command: str, tmp_path: Path) -> None:
    """A page is not written to a file that is called a PDF."""
    page = tmp_path / "why.pdf"
    result = run(command, *NONE, "--out", str(page))
    assert result.returncode == 2
    assert result.stderr == f"podslice: error: --out: a page is HTML (use {tmp_path / 'why.html'})\n"
    assert not page.exists()


def test_a_pod_is_no_machine() -> None:
    """Of a file of another kind, the kind is named before its version."""
    result = run("topology", "--from", "examples/small.yaml")
    assert result.stderr == "podslice: error: examples/small.yaml: kind: 'Pod' is not Machine (write Machine)\n"


def test_numa_nodes_are_named_in_order() -> None:
    """The nodes that keep a machine from having a synthetic description are named by number, not by text."""
    result = run("topology", "--machine", "gb200-34-nodes", "-o", "synthetic")
    assert "NUMA nodes without CPUs: 2, 3, 4, " in result.stderr


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """State files of a kubelet with a static CPU Manager and CPUs that belong to pods as a whole."""
    config = load_kubelet_config(str(ROOT / "examples" / "kubelet.yaml")).config
    store = NodeStore(tmp_path, load_gallery("epyc-9654-nps4"), config)
    for one in load_pods(str(ROOT / "examples" / "pods.yaml")):
        store.admit(one.pod)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--machine", "epyc-9654-nps4"), "name the kubelet that wrote it: its configuration with --config"),
        ((), "its configuration with --config, its machine with --sysfs, --machine or --from"),
        (
            ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml", "--set", "featureGates={}"),
            "--set featureGates.PodLevelResourceManagers=true",
        ),
    ],
    ids=["configuration", "nothing", "gate"],
)
def test_state_files_without_their_kubelet(kept: Path, options: tuple[str, ...], remedy: str) -> None:
    """Without the kubelet's options the remedy is not to repair an intact file: that would take from it the CPUs
    that pods hold."""
    result = run("explain", "examples/small.yaml", "--state", str(kept), *options)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(f"{remedy})\n")
    assert "repair" not in result.stderr


def test_a_comparison_without_the_kubelet_of_the_state_files(kept: Path) -> None:
    """The kubelet's reading of the file is in the table; a warning says which option is missing."""
    result = run("whatif", "examples/small.yaml", "--machine", "epyc-9654-nps4", "--state", str(kept))
    assert result.returncode == 2
    assert "--state: name the kubelet that wrote it: its configuration with --config" in result.stderr


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_gate_that_nobody_named(kept: Path, command: str) -> None:
    """A file with CPUs of whole pods is of a kubelet with the gate; `state` asks about one without it unless it is
    told, and says so."""
    result = run("state", command, str(kept))
    (warning,) = result.stderr.splitlines()
    assert "was written with the gate PodLevelResourceManagers on" in warning
    assert "--pod-level" in warning
    assert run("state", command, str(kept), "--pod-level").stderr == ""


def test_standard_input_is_read_once() -> None:
    """The second of two options that want standard input is not told that it holds nothing."""
    pods = (ROOT / "examples" / "small.yaml").read_text()
    result = run("admit", "-", "--pods", "-", *NONE[1:], stdin=pods)
    assert result.returncode == 2
    assert result.stderr == (
        "podslice: error: stdin: is named twice, and can be read once (write one of them to a file)\n"
    )


def ran(name: str, phase: str) -> dict[str, object]:
    """A pod as an API server lists it."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def test_pods_that_have_ended_are_not_compared(tmp_path: Path) -> None:
    """A node's list has pods that have ended. `whatif` compares what runs, other commands say that they count all; a
    refused pod alone is what is asked about."""
    listed = [ran("runs", "Running"), ran("done", "Succeeded"), ran("out", "Failed")]
    (tmp_path / "running.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    (tmp_path / "out.yaml").write_text(json.dumps(listed[-1]))
    ended = f"warning: {tmp_path}/running.yaml: 2 pods have ended (default/done, default/out): "
    compared = run("whatif", str(tmp_path / "running.yaml"), *NONE[1:])
    assert "\n\n1 pod\n" in compared.stdout
    assert compared.stderr == f"{ended}they are left out\n"
    admitted = run("admit", str(tmp_path / "running.yaml"), *NONE[1:])
    assert "default/done" in admitted.stdout
    assert admitted.stderr == f"{ended}they are counted all the same\n"
    alone = run("whatif", str(tmp_path / "out.yaml"), *NONE[1:])
    assert ("\n\n1 pod\n" in alone.stdout, alone.stderr) == (True, "")


def test_guards_of_no_agent() -> None:
    """A folder that is not there says nothing about the files of the kernel."""
    result = run("guards", "--state", "/none")
    assert result.returncode == 2
    assert result.stderr == "podslice: error: /none: is not a folder (--state DIR names the agent's state directory)\n"


@pytest.mark.parametrize("command", ["admit", "explain", "whatif", "defrag", "draw"])
def test_devices_that_the_node_has_not(command: str, tmp_path: Path) -> None:
    """A pod with a GPU is not told that it fits by who left out --devices, unless with a warning."""
    pod = ran("train", "Pending")
    pod["spec"] = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}
    (tmp_path / "pod.yaml").write_text(json.dumps(pod))
    result = run(command, str(tmp_path / "pod.yaml"), *NONE[1:])
    assert result.returncode == 0
    assert result.stderr == (
        "warning: nvidia.com/gpu, which default/train asks for, is ignored: no device of the node is known to "
        "offer it (--devices FILE describes them)\n"
    )
    (tmp_path / "devices.yaml").write_text("devices: [{resource: nvidia.com/gpu, count: 2}]\n")
    assert run(command, str(tmp_path / "pod.yaml"), *NONE[1:], "--devices", str(tmp_path / "devices.yaml")).stderr == ""
