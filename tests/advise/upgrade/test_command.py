"""`podslice upgrade` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host import bundles
from tests.read_documents import read_document
from tests.shell import podslice

NODE = ("--machine", "xeon-6338-2s", "--config", "examples/upgrade/kubelet.yaml")
CACHES = ("--machine", "epyc-9654-nps4", "--config", "examples/upgrade/caches.yaml")
PODS = ("--pods", "examples/upgrade/pods.yaml")
ODD = ("--pods", "examples/upgrade/odd.yaml")
NODE_OBJECT = """\
apiVersion: v1
kind: Node
metadata: {name: n7}
status:
  capacity: {cpu: "16", memory: 64Gi}
  allocatable: {cpu: "15", memory: 62Gi}
  nodeInfo: {kubeletVersion: v1.33.5, architecture: amd64, operatingSystem: linux}
"""


def test_the_first_line_is_the_answer() -> None:
    """Exit code 0 where nobody is harmed, and the sentence says so."""
    answer = podslice("upgrade", "--from", "1.33", "--to", "1.34", *CACHES, *ODD)
    assert answer.returncode == 0
    assert answer.stdout.splitlines()[2] == (
        "Kubernetes 1.33 to 1.34: the kubelet starts; all running pods stay as they are."
    )


def test_a_kubelet_that_does_not_start() -> None:
    """Exit code 1, the gate, and what the pods meet without it."""
    answer = podslice("upgrade", "--from", "1.32", "--to", "1.36", *NODE, *PODS)
    assert answer.returncode == 1
    assert "the kubelet does not start as it is; without these settings 1 of 2 running pods changes" in answer.stdout
    assert "featureGates.CPUManager: 1.36 does not know this gate (remove it" in answer.stdout


def test_every_minor_release_on_the_way() -> None:
    """`--all` tells one step after the other; `-o wide` adds the rows of the page."""
    said = podslice("upgrade", "--from", "1.33", "--to", "1.36", "--all", "-o", "wide", *CACHES, *ODD).stdout
    steps = [line.partition(":")[0] for line in said.splitlines() if line.startswith("Kubernetes 1.")]
    assert steps == ["Kubernetes 1.33 to 1.34", "Kubernetes 1.34 to 1.35", "Kubernetes 1.35 to 1.36"]
    assert "gates that need others: not checked before 1.35, does not start since" in " ".join(said.split())


def test_the_document() -> None:
    """JSON has every change with its cause."""
    answer = podslice("upgrade", "--from", "1.32", "--to", "1.33", *NODE, *PODS, "-o", "json")
    document = read_document(answer.stdout, "UpgradeReport")
    (step,) = document["steps"]
    assert (step["before"], step["after"], document["pods"], document["harms"]) == ("1.32", "1.33", 2, True)
    assert {one["subject"] for one in step["running"]} == {"shop/db"}
    assert all(one["cause"].startswith("gate DisableCPUQuotaWithExclusiveCPUs") for one in step["running"])


def test_a_node_object_states_the_release(tmp_path: Path) -> None:
    """Beside a Node object `--from VERSION` may be left out."""
    path = tmp_path / "node.yaml"
    path.write_text(NODE_OBJECT)
    said = podslice("upgrade", "--from", str(path), "--to", "1.34").stdout
    assert "Kubernetes 1.33 to 1.34: the kubelet starts; no pods were given." in said


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--to", "1.36"), "--from: names no release (--from 1.33: the release that runs now)"),
        (("--from", "1.33", "--from", "1.34", "--to", "1.36"), "--from: 1.33 and 1.34 are two releases"),
        (("--from", "1.33", "--to", "1.99"), "--to: Kubernetes 1.99 is not known here"),
        (("--from", "1.20", "--to", "1.33"), "--from: Kubernetes 1.20 is not known here"),
        (("--from", "1.33", "--to", "1.33.2"), "--to: the kubelet is one of 1.33 already"),
        (("--from", "1.33", "--to", "next"), "--to: "),
        (("--from", "1.33"), "missing option '--to'"),
    ],
)
def test_bad_input(words: tuple[str, ...], error: str) -> None:
    """One line that names the option, the value and the remedy; exit code 2."""
    answer = podslice("upgrade", *words, "--machine", "xeon-6338-2s")
    assert answer.returncode == 2
    assert error in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""


def test_a_configuration_that_does_not_run_now() -> None:
    """The kubelet that runs now must start: an upgrade from nowhere is bad input."""
    answer = podslice("upgrade", "--from", "1.33", "--to", "1.36", *NODE, *PODS)
    assert answer.returncode == 2
    assert "unrecognized feature gate: CPUManager" in answer.stderr


@pytest.mark.parametrize("named", [(), ("--from", "1.36")])
def test_a_bundle_is_the_node_with_and_without_a_version(tmp_path: Path, named: tuple[str, ...]) -> None:
    """`--from VERSION` beside a bundle leaves its machine, configuration and pods as they are."""
    bundle = bundles.write(tmp_path / "n7.tar.gz")
    said = podslice("upgrade", "--node", str(bundle), *named, "--to", "1.37").stdout
    assert "n7.tar.gz" in said.splitlines()[0]
    assert "Kubernetes 1.36 to 1.37: the kubelet starts" in said
