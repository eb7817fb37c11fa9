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
    """A patch for an object is not an object with errors."""
    code, output = run(tmp_path, PATCH + template)
    assert code == 0
    assert "it is a patch" in output


def test_patch_of_a_whole_object(tmp_path: Path) -> None:
    """A patch that deletes an object needs nothing but its name."""
    code, output = run(tmp_path, "$patch: delete\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n")
    assert code == 0
    assert "it is a patch" in output


NAMED = """\
apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: Job
  metadata:
    name: NAME
  spec:
    template:
      metadata: {namespace: My Space}
      spec: {containers: [{name: a, image: b}], restartPolicy: Never}
"""


def test_names_of_templates(tmp_path: Path) -> None:
    """The API server validates the name of the object, and not the metadata of its template."""
    code, output = run(tmp_path, NAMED)
    assert code == 1
    assert "file.yaml:7: error PS001 invalid-pod\n  Job/My Space/NAME items[0].metadata.name\n" in output
    assert "the API server refuses the object: metadata.name" in output
    assert "metadata.namespace" not in output
    assert run(tmp_path, NAMED.replace("NAME", "name"))[0] == 0


def test_name_of_several_templates(tmp_path: Path) -> None:
    """A wrong namespace of an object with two templates is one finding."""
    pod = "{spec: {containers: [{name: a, image: b}]}}"
    text = (
        "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: r, namespace: My Space}\nspec:\n"
        f"  headGroupSpec: {{template: {pod}}}\n  workerGroupSpecs: [{{groupName: w, replicas: 1, template: {pod}}}]\n"
    )
    code, output = run(tmp_path, text)
    assert code == 1
    assert output.count("PS001") == 1
    assert "2 pods: 1 error" in output


def test_workload_without_containers(tmp_path: Path) -> None:
    """A whole workload without containers is an error."""
    text = PATCH.replace("spec:\n", "spec:\n  selector: {matchLabels: {a: b}}\n", 1)
    code, output = run(tmp_path, text + "    spec: {serviceAccountName: manager}")
    assert code == 1
    assert "spec.containers: Required value" in output
