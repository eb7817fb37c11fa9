"""`--policy` and `--resize` of `podslice admit`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from podslice.admit.command import admit
from podslice.advise.defrag.command import defrag
from podslice.advise.explain.command import explain
from podslice.draw.command import draw

NODE = ["--from", "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)", "--set", "cpuManagerPolicy=static"]
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


def test_a_sequence_in_one_file(files: dict[str, str], tmp_path: Path) -> None:
    """The same pod may come several times in a file, and is known by its name where it runs under a UID that is not
    written."""
    running = json.loads(Path(files["4"]).read_text())
    running["metadata"]["uid"] = "5f1e"
    Path(files["4"]).write_text(json.dumps(running))
    both = tmp_path / "both.yaml"
    both.write_text(f"{Path(files['8']).read_text()}\n---\n{Path(files['3']).read_text()}")
    arguments = [files["4"], *NODE, "--policy", files["policy"], "--resize", str(both), "-o", "json"]
    resizes = json.loads(CliRunner().invoke(admit, arguments).output)["resizes"]
    assert [one["decision"]["outcome"] for one in resizes] == ["Allocated", "Infeasible"]
    assert {one["decision"]["uid"] for one in resizes} == {"5f1e"}


@pytest.mark.parametrize("command", [admit, draw, explain, defrag])
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("metadata", {"name": "dc"}, "default/dc: is not on the node (one of default/db)"),
        ("spec", {"containers": [{"name": "db", "image": "x"}]},
         "default/db: spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing"),
    ],
)  # fmt: skip
def test_a_wrong_wish(
    files: dict[str, str], command: click.Command, field: str, value: dict[str, object], message: str
) -> None:
    """An impossible request is reported with its file and its pod."""
    wish = json.loads(Path(files["8"]).read_text())
    Path(files["8"]).write_text(json.dumps({**wish, field: value}))
    pods = ["--pods", files["4"]] if command in (defrag, draw) else [files["4"]]
    arguments = [*pods, *NODE, "--policy", files["policy"], "--resize", files["8"]]
    result = CliRunner().invoke(command, arguments)
    assert str(result.exception).startswith(f"{files['8']}: {message}")


def test_without_a_policy(files: dict[str, str]) -> None:
    """Without one the answer is the kubelet's; with one in a predicting profile there is none."""
    result = CliRunner().invoke(admit, [files["4"], *NODE, "--resize", files["8"]])
    assert 'CPU Manager policy "static"' in " ".join(result.output.split())
    refused = CliRunner().invoke(admit, [files["4"], *NODE, "--policy", files["policy"], "--profile", "kubelet-1.36"])
    assert "a kubelet has no such policy" in str(refused.exception)
