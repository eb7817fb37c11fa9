"""Findings about a file as text, and files that hold no whole object."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice.advise.lint.command import lint

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec:
  containers:
  - name: app
    image: one
    image: two
"""
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 10
maxPods: 20
"""
PATCH = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager}
spec:
  template:
"""


def run(tmp_path: Path, text: str, *arguments: str) -> tuple[int, str]:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    result = CliRunner().invoke(lint, [str(path), *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param(POD, 8, "Pod/shop/a", id="pod"),
        pytest.param(f"# nothing\n---\n{POD}", 10, "Pod/shop/a", id="after-an-empty-document"),
        pytest.param(f"{CONFIG}---\n{POD}", 13, "Pod/shop/a", id="second-document"),
        pytest.param(CONFIG, 4, "KubeletConfiguration", id="kubelet"),
        pytest.param('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "name": "b"},\n "spec": '
                     '{"containers": [{"name": "c"}]}}', 1, "Pod/b", id="json"),
    ],
)  # fmt: skip
def test_duplicate_key(tmp_path: Path, text: str, line: int, says: str) -> None:
    """The place of the second value is named, the rest of the file is read, and the exit code is 1."""
    code, output = run(tmp_path, text, "--fail-on", "warning")
    assert code == 1
    assert f"file.yaml:{line}: warning PS003 duplicate-key\n  {says}" in output


def test_the_last_value_counts(tmp_path: Path) -> None:
    """Other rules see the last value."""
    text = POD.replace("    image: two\n", "    resources: {limits: {cpu: 10m}}\n    resources: {limits: {cpu: 5m}}\n")
    _, output = run(tmp_path, text, "--select", "PS301")
    assert "cpu limit 5m" in output
    assert "PS003" not in output


@pytest.mark.parametrize(
    "template",
    [
        "    spec: {serviceAccountName: manager}",
        "    spec: {initContainers: [{name: setup}]}",
        "    metadata: {annotations: {role: a}}",
        "    spec: {containers: [{name: sidecar, $patch: delete}]}",
    ],
)
def test_patch(tmp_path: Path, template: str) -> None:
    """A patch for an object is no object with errors."""
    code, output = run(tmp_path, PATCH + template)
    assert code == 0
    assert "it is a patch" in output


def test_workload_without_containers(tmp_path: Path) -> None:
    """A whole workload without containers is an error."""
    text = PATCH.replace("spec:\n", "spec:\n  selector: {matchLabels: {a: b}}\n", 1)
    code, output = run(tmp_path, text + "    spec: {serviceAccountName: manager}")
    assert code == 1
    assert "spec.containers: Required value" in output
