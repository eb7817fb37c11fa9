"""Every command says what its answer rests on: in the terminal, in documents, on pages and in pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podslice.cli.options.config import ConfigSource
from podslice.cli.provenance import configuration_origin, machine_origin
from podslice.config.kubelet import KubeletConfig
from podslice.config.kubelet_file import LoadedConfig
from podslice.machine.gallery import load_gallery
from tests.read_documents import read_document
from tests.shell import podslice

MACHINE = ("--machine", "epyc-9654-nps4")
CONFIG = ("--config", "examples/kubelet.yaml")
DOCUMENTS = {
    "admit": "AdmissionReport",
    "explain": "ExplanationList",
    "inspect": "InspectionList",
    "lint": "LintReport",
    "defrag": "LargestPod",
    "whatif": "Comparison",
    "reserve": "ReservationAdvice",
}
WITHOUT_PODS = {"defrag": (), "reserve": ()}


def node(memory_numa: bool = False) -> dict[str, Any]:
    labels = {"feature.node.kubernetes.io/memory-numa": "true"} if memory_numa else {}
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }  # fmt: skip


def pod(name: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"containers": [container], **spec}, "status": {"phase": phase},
    }  # fmt: skip


@pytest.mark.parametrize("command", DOCUMENTS)
def test_terminal_and_document(command: str) -> None:
    """The line and the field have machine, configuration and release, each with its source."""
    files = WITHOUT_PODS.get(command, ("examples/pods.yaml",))
    text = podslice(command, *files, *MACHINE, *CONFIG)
    assert text.returncode in (0, 1), text.stderr
    shown = (
        "Machine: epyc-9654-nps4, 384 CPUs, 8 NUMA nodes (--machine epyc-9654-nps4) · configuration: CPU manager static"
    )
    line = " ".join(text.stdout.split())
    assert line.count(shown) == 1
    assert line.count("(--config examples/kubelet.yaml) · Kubernetes 1.36") == 1
    found = read_document(podslice(command, *files, *MACHINE, *CONFIG, "-o", "json").stdout, DOCUMENTS[command])
    provenance = found["provenance"][0] if command == "whatif" else found["provenance"]
    assert provenance["machine"]["source"] == "--machine epyc-9654-nps4"
    assert provenance["configuration"]["source"] == "--config examples/kubelet.yaml"
    assert provenance["release"] == "1.36"


@pytest.mark.parametrize("command", ["admit", "explain", "reserve", "draw", "whatif"])
def test_this_machine_is_named(command: str) -> None:
    """Without an option for the machine the answer says that it is about this one, and about which defaults."""
    files = ("examples/pods.yaml",) if command not in ("reserve", "draw") else ()
    text = podslice(command, *files).stdout
    assert "(this machine, because no option names another) · configuration: CPU manager none" in text
    assert "(a kubelet's defaults, because no option names a configuration)" in text


def test_pages_and_pictures(tmp_path: Path) -> None:
    """A page and a picture that are passed on say it too."""
    for command, file in (("explain", "why.html"), ("whatif", "w.html"), ("draw", "d.svg"), ("draw", "d.html"),
                          ("draw", "d.txt"), ("admit", "a.svg")):  # fmt: skip
        out = tmp_path / file
        podslice(command, "examples/pods.yaml", *MACHINE, *CONFIG, "--out", str(out))
        text = out.read_text(encoding="utf-8")
        assert text.count("(--machine epyc-9654-nps4)") == 1, file
        assert "Kubernetes 1.36" in text


def test_pods_that_do_not_count(tmp_path: Path) -> None:
    """Ended pods, one that waits for a node, and pods of other nodes than that of the pod asked about are left out,
    named, and hold nothing. The pod asked about says which node it is."""
    listed = [
        pod("here", nodeName="n7"), pod("there", nodeName="n8"), pod("done", "Succeeded", nodeName="n7"),
        pod("waits", "Pending"),
    ]  # fmt: skip
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    asked = pod("asked", "Failed", nodeName="n7")
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    arguments = ("explain", str(tmp_path / "asked.json"), "--pods", str(tmp_path / "pods.json"), *MACHINE, *CONFIG)
    answer = podslice(*arguments)
    assert (
        "1 running pod counted, left out: 1 ended (default/done), 1 Pending without a node (default/waits), "
        "1 of other nodes (default/there)"
    ) in answer.stdout
    assert "names 2 nodes" not in answer.stderr
    provenance = read_document(podslice(*arguments, "-o", "json").stdout, "ExplanationList")["provenance"]
    assert provenance["pods"] == {
        "counted": 1,
        "leftOut": [
            {"reason": "ended", "pods": ["default/done"]},
            {"reason": "pending", "pods": ["default/waits"]},
            {"reason": "other-node", "pods": ["default/there"]},
        ],
    }


def test_a_node_object_says_whose_pods_count(tmp_path: Path) -> None:
    """Without a bound pod the name of the Node object tells its pods from others; where nothing does, all count and a
    warning says so."""
    listed = [pod("here", nodeName="n7"), pod("there", nodeName="n8")]
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": listed}))
    (tmp_path / "new.json").write_text(json.dumps(pod("new", "")))
    (tmp_path / "node.json").write_text(json.dumps(node()))
    arguments = ("admit", str(tmp_path / "new.json"), "--pods", str(tmp_path / "pods.json"))
    known = podslice(*arguments, "--from", str(tmp_path / "node.json"))
    assert "1 running pod counted, left out: 1 of other nodes (default/there)" in known.stdout
    unknown = podslice(*arguments, *MACHINE)
    assert "2 running pods counted ·" in unknown.stdout or "2 running pods counted\n" in unknown.stdout
    assert "--pods names 2 nodes (n7, n8)" in unknown.stderr


def test_errors_say_what_is_assumed(tmp_path: Path) -> None:
    """A Node object has no NUMA nodes, so one is assumed. An error about the second is followed by that assumption."""
    (tmp_path / "node.json").write_text(json.dumps(node()))
    (tmp_path / "k.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
        'memoryManagerPolicy: Static\nsystemReserved: {cpu: "1", memory: 1Gi}\n'
        "evictionHard: {memory.available: 100Mi}\n"
        "reservedMemory:\n- {numaNode: 0, limits: {memory: 562Mi}}\n- {numaNode: 1, limits: {memory: 562Mi}}\n"
    )
    given = ("--from", str(tmp_path / "node.json"), "--config", str(tmp_path / "k.yaml"))
    for command in ("admit", "explain", "inspect", "defrag"):
        files = () if command == "defrag" else ("examples/pods.yaml",)
        answer = podslice(command, *files, *given)
        assert answer.returncode == 2
        error, *notes = answer.stderr.splitlines()
        assert error.startswith("podslice: error: "), command
        assert "podslice: note: assumed: one NUMA node, because no label says otherwise " \
            "(feature.node.kubernetes.io/memory-numa)" in notes, command  # fmt: skip


def test_forms_of_others_have_assumptions_as_warnings(tmp_path: Path) -> None:
    """A NodeResourceTopology or a KubeletConfiguration has no place for them."""
    (tmp_path / "node.json").write_text(json.dumps(node()))
    for arguments in (("admit", "examples/pods.yaml", "-o", "nrt"), ("reserve", "-o", "kubelet"),
                      ("lint", "examples/pods.yaml", "-o", "sarif", "--set", "maxPods=9")):  # fmt: skip
        answer = podslice(*arguments, "--from", str(tmp_path / "node.json"))
        assert "warning: assumed: one NUMA node" in answer.stderr, arguments
        assert "Machine: " not in answer.stdout
    assert "assumed" not in podslice("admit", "examples/pods.yaml", "--from", str(tmp_path / "node.json")).stderr


def test_origins() -> None:
    """Options are shown as they were given; a long description is cut, and one with spaces is quoted."""
    machine = load_gallery("xeon-6338-2s")
    assert machine_origin(machine, source=("a.txt", "b.txt")).source == "--from a.txt, --from b.txt"
    assert machine_origin(machine, sysfs="n7.tar").source == "--sysfs n7.tar"
    assert machine_origin(machine, source=("nodes:\n  - x",)).source == "--from nodes:…"
    assert len(machine_origin(machine, source=("pack:2 " * 50,)).source) < 100
    config, file = LoadedConfig(KubeletConfig(), ()), ConfigSource("k.yaml")
    assert configuration_origin(config, None, ("a=1", "b=2")).source == "a kubelet's defaults with --set a=1 --set b=2"
    assert configuration_origin(config, file, ("a=1",)).source == "--config k.yaml and --set a=1"
    several = configuration_origin(config, ConfigSource("k.yaml", "conf.d", "--max-pods=5")).source
    assert several == "--config k.yaml and --config-dir conf.d and --kubelet-args --max-pods=5"
    reported = configuration_origin(config, None, (), {"maxPods": 250}).source
    assert reported == "maxPods as the node reports, else a kubelet's defaults"
    assert configuration_origin(config, file, (), {"maxPods": 250}).source == "--config k.yaml"


def test_a_written_machine_keeps_its_assumptions(tmp_path: Path) -> None:
    """A machine that was assumed is not known better after it was written and read again."""
    text = "pack:2 numa:1(memory=8GiB) core:4 pu:2"
    machine = tmp_path / "machine.json"
    machine.write_text(podslice("topology", "--from", text, "-o", "json").stdout)
    document = read_document(machine.read_text(), "Machine")
    assert [one["about"] for one in document["assumptions"]] == ["cpus"]
    answers = [podslice("admit", "examples/small.yaml", "--from", one, "-o", "json") for one in (text, str(machine))]
    first, second = (read_document(one.stdout, "AdmissionReport")["provenance"]["assumptions"] for one in answers)
    assert first == second == document["assumptions"]


@pytest.mark.parametrize(("command", "kind"), [("verify", "StateVerificationList"), ("repair", "StateRepairList")])
def test_state_files_say_which_machine(command: str, kind: str, tmp_path: Path) -> None:
    """An answer about state files on a machine names it, where it comes from, and what is assumed of it."""
    (tmp_path / "cpu_manager_state").write_text('{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')
    text = "pack:2 numa:1(memory=8GiB) core:4 pu:2"
    words = ("state", command, str(tmp_path), "--from", text)
    assert podslice(*words).stdout.startswith("Machine: 16 CPUs, 2 NUMA nodes (--from 'pack:2")
    provenance = read_document(podslice(*words, "-o", "json").stdout, kind)["provenance"]
    assert provenance["machine"]["source"] == f"--from '{text}'"
    assert [one["about"] for one in provenance["assumptions"]] == ["cpus"]
    assert not podslice("state", command, str(tmp_path)).stdout.startswith("Machine")
