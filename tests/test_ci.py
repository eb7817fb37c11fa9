"""What CI systems run: the hook, the action and the snippets of docs/ci.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
GOOD = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: x, resources: {limits: {cpu: CPUS, memory: 1Gi}}}]}
"""


def run_action(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action as GitHub does: `bash -e`, inputs as variables."""
    step = ACTION["runs"]["steps"][-1]
    defaults = {name: str(one["default"]) for name, one in ACTION["inputs"].items()}
    given = {**defaults, **{name.replace("_", "-"): value for name, value in inputs.items()}}
    expression = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
    variables = {name: expression.sub(lambda found: given[found[1]], text) for name, text in step["env"].items()}
    bin_folder = folder / "podslice" / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    tool = bin_folder / "podslice"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m podslice "$@"\n')
    tool.chmod(0o755)
    return subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=folder, capture_output=True, text=True,
        env={**os.environ, **variables, "RUNNER_TEMP": str(folder)},
    )  # fmt: skip


@pytest.mark.process
def test_the_action(tmp_path: Path) -> None:
    """Good manifests pass; a finding and a refused pod fail the job, and the findings are there as SARIF."""
    (tmp_path / "a.yaml").write_text(GOOD.replace("CPUS", '"2"'))
    (tmp_path / "b.yaml").write_text(GOOD.replace("CPUS", '"2"').replace("name: p", "name: q"))
    node = f"--machine laptop-i5-8250u --config {tmp_path / 'kubelet.yaml'}"
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'cpuManagerPolicy: static\nreservedSystemCPUs: "0,4"\n'
    )
    good = run_action(tmp_path, lint="*.yaml", admit="a.yaml b.yaml", options=node, sarif="out.sarif")
    assert (good.returncode, good.stderr) == (0, ""), good.stdout
    assert '"version": "2.1.0"' in (tmp_path / "out.sarif").read_text(encoding="utf-8")
    (tmp_path / "b.yaml").write_text(GOOD.replace("CPUS", '"64"'))
    assert run_action(tmp_path, admit="a.yaml b.yaml", options=node).returncode == 1
    assert run_action(tmp_path, lint="b.yaml", options=node).returncode == 1
    assert run_action(tmp_path, lint="b.yaml", options=node, fail_on="never").returncode == 0


def snippets() -> list[Any]:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def test_the_snippets_name_what_there_is() -> None:
    """Hook, inputs and options of the page exist."""
    hook, action, gitlab = snippets()
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert {one["id"] for one in hook["repos"][0]["hooks"]} == {one["id"] for one in hooks}
    (used,) = [step for step in action["jobs"]["manifests"]["steps"] if "podslice" in step.get("uses", "")]
    assert set(used["with"]) <= set(ACTION["inputs"])
    rows = set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert rows == set(ACTION["inputs"])
    from tests.test_docs_commands import parse

    for line in gitlab["manifests"]["script"]:
        if line.startswith("podslice "):
            parse(line)
