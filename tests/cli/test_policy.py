"""`--policy` and `--resize` of `podslice admit`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice.cli.admit import admit

NODE = ["--from", "pack:2 numa:1(memory=64GB) core:8 pu:2", "--set", "cpuManagerPolicy=static"]
NODE += ["--set", "reservedSystemCPUs=0-1"]
POLICY = "{apiVersion: podslice.io/v1alpha1, kind: PodslicePolicy, spec: {resize: {exclusive: true}}}"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A policy, and one pod in four sizes."""
    paths = {"policy": tmp_path / "policy.yaml"}
    paths["policy"].write_text(POLICY)
    for size in ("4", "8", "3"):
        amounts = {"cpu": size, "memory": "1Gi"}
        pod = {"name": "db", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
        paths[size] = tmp_path / f"{size}.json"
        paths[size].write_text(
            json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": {"containers": [pod]}})
        )
    return {name: str(path) for name, path in paths.items()}


def test_a_sequence(files: dict[str, str]) -> None:
    """Resizes are carried out in order; each answer says what the containers own then."""
    arguments = [files["4"], *NODE, "--policy", files["policy"], "--resize", files["8"], "--resize", files["3"]]
    result = CliRunner().invoke(admit, [*arguments, "-o", "json"])
    assert result.exit_code == 1
    resizes = json.loads(result.output)["resizes"]
    assert [(one["decision"]["outcome"], one["cpus"]["db"]) for one in resizes] == [
        ("Allocated", "2-9"),
        ("Infeasible", "2-9"),
    ]
    table = CliRunner().invoke(admit, [*arguments, "--no-map"]).output
    assert "default/db  Infeasible  db:2-9" in table
    assert "cannot take exclusive CPUs below the 4 promised at admission (2-5)" in table
    assert CliRunner().invoke(admit, arguments[:-2]).exit_code == 0


def test_without_a_policy(files: dict[str, str]) -> None:
    """Without one the answer is the kubelet's; with one in a predicting profile there is none."""
    result = CliRunner().invoke(admit, [files["4"], *NODE, "--resize", files["8"]])
    assert 'CPU Manager policy "static"' in " ".join(result.output.split())
    refused = CliRunner().invoke(admit, [files["4"], *NODE, "--policy", files["policy"], "--profile", "kubelet-1.36"])
    assert "a kubelet has no such policy" in str(refused.exception)
