"""Reading pods from files: the errors and warnings of a file that is wrong, or nearly right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podslice import InputError, InputErrors, load_pods
from podslice.api.pod.field_table import API_VERSIONS, field_table
from podslice.api.pod.unknown_fields import find_unknown_fields
from tests.shell import podslice as run

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - {name: c, image: i, resources: %s}\n"
NODE = ("--from", "pack:1 numa:1(memory=8GiB) core:4 pu:1", "--set", "cpuManagerPolicy=static",
        "--set", "reservedSystemCPUs=0")  # fmt: skip
DECIDING = ("admit", "explain", "whatif", "defrag", "draw")
MISSPELT = '{limit: {cpu: "2"}, request: {cpu: "2"}}'


def written(folder: Path, text: str, name: str = "pod.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("data", "path", "suggestion"),
    [
        pytest.param({"metadata": {"lables": {}}}, "metadata.lables", "labels", id="metadata"),
        pytest.param({"spec": {"container": []}}, "spec.container", "containers", id="plural"),
        pytest.param({"spec": {"Containers": []}}, "spec.Containers", "containers", id="capital"),
        pytest.param(
            {"spec": {"containers": [{"limits": {}}]}}, "spec.containers[0].limits", "resources.limits", id="too high"
        ),
        pytest.param(
            {"spec": {"containers": [{"resource": {}}]}}, "spec.containers[0].resource", "resources", id="singular"
        ),
        pytest.param(
            {"spec": {"volumes": [{"emptyDir": {"medum": "x"}}]}}, "spec.volumes[0].emptyDir.medum", "medium", id="deep"
        ),
        pytest.param({"spec": {"xyzzy": 1}}, "spec.xyzzy", "", id="nothing near"),
        pytest.param({"spec": {"foo": None}}, "spec.foo", "", id="null"),
    ],
)
def test_unknown_field_has_a_suggestion(data: dict[str, Any], path: str, suggestion: str) -> None:
    """The path is the API server's; the suggestion is a known field below the same parent."""
    (field,) = find_unknown_fields(data)
    assert (field.path, field.suggestion) == (path, suggestion)
    assert str(field) == f'unknown field "{path}"'


def test_table_of_fields_is_closed() -> None:
    """Every type a field names is in the table, and every kind with a pod leads to PodSpec."""
    table = field_table()
    named = {below.removeprefix("[]") for fields in table.values() for below in fields.values()} - {""}
    assert named <= table.keys()
    assert API_VERSIONS.keys() <= table.keys()
    assert {"podIP", "resources"} <= table["PodStatus"].keys()


def test_fields_of_maps_are_free() -> None:
    """Labels, annotations, resource names, selectors and managed fields hold any key."""
    data = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{"fieldsV1": {"f:x": {}}}]},
        "spec": {"nodeSelector": {"e": "f"}, "overhead": {"cpu": "1"}, "resources": {"limits": {"x.y/z": "1"}}},
    }
    assert list(find_unknown_fields(data)) == []


def test_library_tells_and_refuses(tmp_path: Path) -> None:
    """Unknown fields are warnings of the pod that has them, and errors with `strict`."""
    path = written(tmp_path, POD % ("p", MISSPELT))
    (loaded,) = load_pods(path)
    place = 'unknown field "spec.containers[0].resources'
    assert loaded.warnings == (
        f'{path}: {place}.limit" (did you mean limits?)',
        f'{path}: {place}.request" (did you mean requests?)',
    )
    with pytest.raises(InputErrors) as caught:
        load_pods(path, strict=True)
    assert [error.problem for error in caught.value.errors] == [f'{place}.limit"', f'{place}.request"']


@pytest.mark.slow
@pytest.mark.parametrize("command", DECIDING)
def test_commands_warn_of_unknown_fields(command: str, tmp_path: Path) -> None:
    """Every command that decides about pods warns, with a suggestion; --strict makes it exit 2."""
    path = written(tmp_path, POD % ("p", MISSPELT))
    result = run(command, path, *NODE)
    assert result.returncode in (0, 1)
    assert 'unknown field "spec.containers[0].resources.limit" (did you mean limits?)' in result.stderr
    strict = run(command, path, *NODE, "--strict")
    assert (strict.returncode, strict.stdout) == (2, "")
    assert strict.stderr.count("podslice: error: ") == 2


@pytest.mark.slow
def test_inspect_and_lint_tell_as_well(tmp_path: Path) -> None:
    """inspect warns, lint finds errors at the lines, in templates too; running pods of --pods are looked at."""
    path = written(tmp_path, POD % ("p", MISSPELT))
    assert "did you mean limits?" in run("inspect", path).stderr
    assert run("inspect", path, "--strict").returncode == 2
    linted = run("lint", path)
    assert linted.returncode == 1
    assert f"{path}:6: error PS002 unknown-pod-field" in linted.stdout
    assert "did you mean limits?" in run("admit", "examples/small.yaml", "--pods", path, *NODE).stderr


@pytest.mark.slow
def test_all_errors_of_all_documents(tmp_path: Path) -> None:
    """Three wrong documents give three lines and exit code 2; nothing is decided about the good one."""
    bad = [POD % ("Web", "{}"), POD % ("b", "{limits: {cpu: '-1'}, requests: {cpu: '0'}}"), "kind: Pod\n"]
    path = written(tmp_path, "---\n".join([POD % ("good", "{}"), *bad]))
    for command in DECIDING:
        result = run(command, path, *NODE)
        assert (result.returncode, result.stdout) == (2, "")
        lines = result.stderr.splitlines()
        assert [line.split(": ")[2].split(" ")[-1] for line in lines if "limits" not in line] == ["2", "3", "4"]
        assert all(line.startswith(f"podslice: error: {path} document ") for line in lines)
    assert 'metadata.name: Invalid value: "Web": a lowercase RFC 1123 subdomain must consist' in result.stderr
    assert "document 4: apiVersion not set (apiVersion: v1)" in result.stderr


def test_errors_of_several_files(tmp_path: Path) -> None:
    """The errors of all files are reported, not only those of the first."""
    paths = [written(tmp_path, POD % (name, "{}"), name) for name in ("A", "B")]
    result = run("admit", *paths, *NODE)
    assert [line.split(": ")[2] for line in result.stderr.splitlines()] == paths


@pytest.mark.slow
def test_all_errors_of_a_configuration(tmp_path: Path) -> None:
    """Wrong values of two fields are two lines."""
    config = written(
        tmp_path,
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: x\ncpuCFSQuota: 1\n",
    )
    result = run("admit", "examples/small.yaml", "--config", config)
    assert (result.returncode, result.stderr.count("podslice: error: ")) == (2, 2)
    result = run("admit", "examples/small.yaml", "--set", "topologyManagerPolicy=x", "--set", "topologyManagerScope=y")
    assert (result.returncode, result.stderr.count("podslice: error: ")) == (2, 2)


OVER_BUDGET = """\
apiVersion: v1
kind: Pod
metadata: {name: exceed}
spec:
  resources: {requests: {cpu: "4", memory: 4Gi}, limits: {cpu: "4", memory: 4Gi}}
  containers:
  - {name: a, image: x, resources: {limits: {cpu: "3", memory: 1Gi}}}
  - {name: b, image: x, resources: {limits: {cpu: "2", memory: 1Gi}}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", DECIDING)
def test_pods_the_api_server_refuses(command: str, tmp_path: Path) -> None:
    """A pod that cannot exist is an error of one line in the API server's words; --no-validate decides about it."""
    path = written(tmp_path, OVER_BUDGET)
    result = run(command, path, *NODE)
    assert result.returncode == 2
    assert result.stderr == (
        f'podslice: error: {path}: spec.resources.requests[cpu]: Invalid value: "4": must be greater than or equal to '
        "aggregate container requests of 5 (the API server refuses this pod)\n"
    )
    assert run(command, path, *NODE, "--no-validate").returncode in (0, 1)
    with pytest.raises(InputError, match="aggregate container requests of 5"):
        load_pods(path)
    assert load_pods(path, validate=False)[0].pod.metadata.name == "exceed"


WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: i, resources: {limits: {cpu: "1", memory: 1Gi}}}]}
"""


@pytest.mark.slow
def test_replicas_are_not_silent(tmp_path: Path) -> None:
    """A workload counts as one pod with a warning, and as all of them with --replicas, also where pods run."""
    path = written(tmp_path, WORKLOAD)
    new = written(tmp_path, POD % ("new", "{limits: {cpu: '2', memory: 1Gi}}"), "new.yaml")
    expected_warning = (
        f"warning: {path}: Deployment default/web asks for 3 pods, one of them is counted; --replicas counts all\n"
    )
    for command in ("admit", "explain", "defrag", "draw"):
        result = run(command, new, "--pods", path, *NODE)
        assert (result.returncode, result.stderr) == (0, expected_warning), command
    assert run("admit", new, "--pods", path, *NODE, "--replicas").returncode == 1
    assert run("defrag", new, "--pods", path, *NODE, "--replicas").returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds nothing"),
        ("hello", "expected an object, got text"),
        ("3", "got a number"),
        ("kind: pod", "mean Pod?"),
    ],
)
def test_lint_refuses_what_holds_nothing(text: str, problem: str, tmp_path: Path) -> None:
    """An empty file, a lone scalar and a kind that is nearly one are errors, not `no findings`."""
    result = run("lint", written(tmp_path, text))
    assert result.returncode == 2
    assert problem in result.stderr


@pytest.mark.slow
def test_lint_passes_over_yaml_of_other_programs(tmp_path: Path) -> None:
    """A mapping or a list without kind belongs to another program."""
    assert run("lint", written(tmp_path, "on: push\njobs: {}\n")).returncode == 0
    assert run("lint", written(tmp_path, "- hosts: all\n")).returncode == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param("namespace: Bad_NS", 'metadata.namespace: Invalid value: "Bad_NS": a lowercase RFC 1123 label',
                     id="namespace"),
        pytest.param("labels: {'bad key!': v}", 'metadata.labels: Invalid value: "bad key!": name part must consist',
                     id="label"),
        pytest.param("labels: {k: bad value}", 'metadata.labels: Invalid value: "bad value": a valid label must be',
                     id="label value"),
        pytest.param("annotations: {'a b': v}", 'metadata.annotations: Invalid value: "a b": name', id="annotation"),
        pytest.param("uid: ../../etc", "metadata.uid: '../../etc' is not a UID", id="uid"),
        pytest.param('name: "x\\e[2J"', 'metadata.name: Invalid value: "x\\x1b[2J": a lowercase', id="escape"),
    ],
)  # fmt: skip
def test_names_as_the_api_server_wants_them(change: str, sentence: str, tmp_path: Path) -> None:
    """Names, labels and annotations are refused in the API server's words, quoted as it quotes."""
    text = (POD % ("p", "{}")).replace("{name: p}", f"{{{change}}}")
    with pytest.raises(InputError) as caught:
        load_pods(written(tmp_path, text))
    assert sentence in str(caught.value)


def test_container_names(tmp_path: Path) -> None:
    """Too long, upper case, dots, missing and twice: all of them at once."""
    names = ["X", "a" * 64, "a.b", "''", "c", "c"]
    text = (POD % ("p", "{}")).replace("  - {name: c, image: i, resources: {}}\n", "") + "".join(
        f"  - {{name: {name}, image: i}}\n" for name in names
    )
    with pytest.raises(InputErrors) as caught:
        load_pods(written(tmp_path, text))
    found = {error.path: error.problem for error in caught.value.errors}
    assert found["spec.containers[1].name"].endswith("must be no more than 63 characters")
    assert found["spec.containers[2].name"] == 'Invalid value: "a.b": must not contain dots'
    assert found["spec.containers[3].name"] == "Required value"
    assert found["spec.containers[5].name"] == 'Duplicate value: "c"'
    assert "a lowercase RFC 1123 label" in found["spec.containers[0].name"]


LIVE = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  uid: 5c0e6d6a-6c0b-4a4f-9a53-7f5a0c8d7f00
  creationTimestamp: "2026-01-01T00:00:00Z"
  resourceVersion: "12"
  managedFields: [{manager: kubectl, operation: Update, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]
spec:
  nodeName: n1
  containers: [{name: c, image: i}]
  ephemeralContainers: [{name: debug, image: busybox, targetContainerName: c}]
status: {phase: Running, qosClass: BestEffort, podIP: 10.0.0.1}
"""


@pytest.mark.slow
def test_live_pod_is_read_as_one(tmp_path: Path) -> None:
    """A field that only a create request may not have is no error in a pod as kubectl prints it."""
    path = written(tmp_path, LIVE)
    result = run("inspect", path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "cannot be set on create" not in result.stdout
    assert load_pods(path)[0].pod.spec.ephemeral_containers[0].name == "debug"
    created = LIVE.replace('creationTimestamp: "2026-01-01T00:00:00Z"', "creationTimestamp: null").replace(
        '  resourceVersion: "12"\n', ""
    )
    created = created[: created.index("status:")]
    assert "cannot be set on create" in run("inspect", written(tmp_path, created)).stdout


@pytest.mark.parametrize("text", ['{"kind": "PodList", "items": null}', '{"kind": "List", "items": []}'])
def test_a_list_of_no_pods(text: str, tmp_path: Path) -> None:
    """An empty list means that nothing runs on the node, also as a kubelet's own API writes it; a file for one pod may
    not be empty."""
    path = written(tmp_path, text)
    assert load_pods(path, none_is_fine=True) == []
    with pytest.raises(InputError, match="holds no pods"):
        load_pods(path)


@pytest.mark.parametrize(
    ("kind", "spec", "pods"),
    [
        ("Deployment", "replicas: null", 1),
        ("Job", "parallelism: 4, completions: null", 4),
        ("Job", "parallelism: 4, completions: 2", 2),
        ("Job", "completions: 5", 1),
        ("CronJob", "parallelism: 3", 3),
    ],
)
def test_how_many_pods_a_workload_asks_for(kind: str, spec: str, pods: int, tmp_path: Path) -> None:
    """A job runs no more pods at a time than are to complete; null is what a field is that was left out."""
    inner = f"{{{spec}, template: {{spec: {{containers: [{{name: c, image: i}}]}}}}}}"
    outer = f"{{jobTemplate: {{spec: {inner}}}}}" if kind == "CronJob" else inner
    version = "apps/v1" if kind == "Deployment" else "batch/v1"
    path = written(tmp_path, f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w}}\nspec: {outer}\n")
    assert len(load_pods(path, replicas=True)) == pods


@pytest.mark.parametrize(
    ("spec", "problem"), [("", "is missing"), ("hello", "expected an object, got text"), ("[1]", "got a list")]
)
def test_a_spec_that_is_none(spec: str, problem: str, tmp_path: Path) -> None:
    """A spec of another kind is not said to be missing."""
    with pytest.raises(InputError, match=problem):
        load_pods(written(tmp_path, f"apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec: {spec}\n"))
