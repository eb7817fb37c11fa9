"""Every command that takes pods reads the same files, and says the same about what it passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shell import podslice

NODE = ("--from", "pack:1 numa:1(memory=8GiB) core:4 pu:1", "--set", "cpuManagerPolicy=static",
        "--set", "reservedSystemCPUs=0")  # fmt: skip
COMMANDS = ("admit", "defrag", "draw", "explain", "inspect", "lint", "whatif")
CONTAINER = "{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Gi}}}"
FILE = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: train}}
spec:
  replicatedJobs:
  - name: w
    replicas: 2
    template: {{spec: {{parallelism: 3, template: {{spec: {{containers: [{CONTAINER}]}}}}}}}}
---
apiVersion: example.com/v1
kind: Database
metadata: {{name: db}}
spec: {{numberOfInstances: 2}}
"""
LINE = "passed over: Database db: no pod template is in it"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "all.yaml"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_what_they_pass_over(command: str, file: str) -> None:
    """A template in an operator's object is a pod everywhere; an object without any is a warning, or with --strict an
    error that decides nothing."""
    answer = podslice(command, file, *NODE)
    assert answer.returncode == 0, answer.stderr
    assert f"warning: {file}: {LINE}" in answer.stderr
    strict = podslice(command, file, *NODE, "--strict")
    assert strict.returncode == 2
    assert f"podslice: error: {file}: {LINE}" in strict.stderr


@pytest.mark.parametrize("command", ["admit", "defrag", "explain", "inspect", "lint", "whatif"])
def test_documents_name_what_was_passed_over(command: str, file: str) -> None:
    """The provenance in `-o json` has the same line."""
    found = json.loads(podslice(command, file, *NODE, "-o", "json").stdout)
    provenance = found["provenance"]
    one = provenance[0] if isinstance(provenance, list) else provenance
    assert one["passedOver"] == [f"{file}: {LINE}"]


def test_running_pods_are_read_the_same_way(file: str) -> None:
    """Also those that run already, of which --replicas counts all."""
    answer = podslice("admit", "examples/small.yaml", *NODE, "--pods", file, "--replicas")
    assert f"warning: {file}: {LINE}" in answer.stderr
    assert "train-3 runs, but this node refuses it" in answer.stdout + answer.stderr


def test_many_workloads_are_one_line(file: str) -> None:
    """Of a whole cluster's workloads not each has a line of its own."""
    text = FILE.partition("---")[0]
    Path(file).write_text("---\n".join(text.replace("train", f"t{number}") for number in range(5)), encoding="utf-8")
    answer = podslice("admit", file, *NODE)
    line = f"warning: {file}: 5 workloads ask for 30 pods (JobSet default/t0, JobSet default/t1, JobSet default/t2, …)"
    assert answer.stderr.startswith(line)
    assert answer.stderr.count(" ask for ") == 1


def test_findings_have_the_lines_of_the_template(file: str) -> None:
    """lint leads into the operator's object."""
    Path(file).write_text(FILE.replace("cpu: 1,", "cpu: 1500m,"), encoding="utf-8")
    found = podslice("lint", file, "--fail-on", "info")
    assert found.returncode == 1
    assert f"{file}:8: info PS102 fractional-cpus" in found.stdout
    assert "spec.replicatedJobs[0].template.spec.template.spec.containers[0].resources.limits[cpu]" in found.stdout


def test_a_folder_of_files(file: str) -> None:
    """A folder is all its files, for lint too."""
    folder = str(Path(file).parent)
    (Path(folder) / "README.md").write_text("no manifest")
    assert "1 pod: no findings" in podslice("lint", folder).stdout
    assert podslice("admit", folder, *NODE).returncode == 0
