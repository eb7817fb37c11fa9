"""`podslice lint` as a person, a pipeline and a pre-commit hook use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.advise.lint.registry import RULES
from podslice.reading.yaml import Positions
from tests.read_documents import read_document
from tests.shell import Answer, podslice

ROOT = Path(__file__).parents[2]
POD = """\
# a comment
kind: ConfigMap
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers:
        - name: web
          resources:
            limits:
              memory: "512"
              cpu: 1
"""
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0,2"
"""


def run(*arguments: str, stdin: str = "", columns: int = 100) -> Answer:
    return podslice("lint", *arguments, stdin=stdin, COLUMNS=str(columns))


def test_table(tmp_path: Path) -> None:
    """A finding names file and line, severity, rule, object, field, reason and fix; the exit code is 1."""
    path = tmp_path / "web.yaml"
    path.write_text(POD)
    result = run(str(path))
    assert result.returncode == 1
    assert f"{path}:14: error PS305 memory-unit" in result.stdout
    for part in (
        "Deployment/shop/web spec.template.spec.containers[0].resources.limits[memory]",
        "512 bytes",
        "fix: did",
    ):
        assert part in result.stdout
    assert "\n1 pod: 1 error\n" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_table_fits(columns: int) -> None:
    """No line of text is wider than the terminal, apart from places and fields that cannot be broken."""
    result = run(
        "examples/pods.yaml", "--config", "examples/kubelet.yaml", "--machine", "epyc-9654-nps4", columns=columns
    )
    assert result.returncode == 1
    assert all(len(line) <= columns for line in result.stdout.splitlines())


@pytest.mark.slow
def test_json_and_yaml() -> None:
    """Machine-readable findings carry the same facts in every form."""
    as_json = read_document(run("-", "-o", "json", stdin=POD).stdout, "LintReport")
    assert yaml.safe_load(run("-", "-o", "yaml", stdin=POD).stdout) == as_json
    (finding,) = as_json["findings"]
    assert finding["object"] == {"kind": "Deployment", "namespace": "shop", "name": "web"}
    assert (finding["source"], finding["document"], finding["line"], finding["column"]) == ("stdin", 1, 14, 15)


def sarif(*arguments: str) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(run(*arguments, "-o", "sarif").stdout)
    return log


@pytest.mark.slow
def test_sarif(tmp_path: Path) -> None:
    """The SARIF log has what version 2.1.0 requires: rules by index, levels, messages, artifacts and regions."""
    pod, kubelet = tmp_path / "a pod.yaml", tmp_path / "kubelet.yaml"
    pod.write_text(POD)
    kubelet.write_text(KUBELET)
    log = sarif(str(pod), str(kubelet), "--from", "pack:1 core:4 pu:2")
    assert (log["version"], log["$schema"].rsplit("/", 1)[1]) == ("2.1.0", "sarif-2.1.0.json")
    (only,) = log["runs"]
    driver = only["tool"]["driver"]
    assert driver["name"] == "podslice"
    assert [rule["id"] for rule in driver["rules"]] == [rule.id for rule in RULES]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    results = only["results"]
    assert [(result["ruleId"], result["level"]) for result in results] == [("PS305", "error"), ("PS403", "warning")]
    for result in results:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    regions = [result["locations"][0]["physicalLocation"] for result in results]
    assert regions[0]["artifactLocation"]["uri"] == f"file://{tmp_path}/a%20pod.yaml"
    assert [region["region"] for region in regions] == [
        {"startLine": 14, "startColumn": 15},
        {"startLine": 4, "startColumn": 1},
    ]


@pytest.mark.slow
def test_configuration_is_linted_with_the_machine(tmp_path: Path) -> None:
    """A configuration is checked as --config and as a file of its own, and --config turns on its rules about pods."""
    path = tmp_path / "kubelet.yaml"
    path.write_text(KUBELET)
    machine = ("--from", "pack:1 core:4 pu:2")
    for arguments in (("--config", str(path), *machine), (str(path), *machine)):
        findings = read_document(run(*arguments, "-o", "json").stdout, "LintReport")["findings"]
        assert [finding["id"] for finding in findings] == ["PS403"]
    whole = POD.replace('memory: "512"', "memory: 1Gi").replace("cpu: 1", "cpu: 2500m")
    out = run("-", "--config", str(path), "-o", "json", stdin=whole).stdout
    findings = read_document(out, "LintReport")["findings"]
    assert [(finding["id"], finding["severity"]) for finding in findings] == [("PS102", "warning")]


def test_machine_alone_is_pointed_out() -> None:
    """A machine without a configuration changes nothing for pods, and the command says so."""
    result = run("-", "--from", "pack:1 core:4 pu:2", stdin=POD)
    assert result.stderr == "podslice: note: without --config no rule checks pods against the machine\n"
    assert "PS305" in result.stdout


@pytest.mark.slow
def test_select_ignore_and_fail_on() -> None:
    """Rules are chosen by id, prefix or name; --fail-on sets the severity that gives exit code 1."""
    assert run("-", "--ignore", "PS3", stdin=POD).returncode == 0
    assert run("-", "--select", "memory-unit", stdin=POD).returncode == 1
    assert run("-", "--select", "PS101,PS102", stdin=POD).returncode == 0
    requests = POD.replace("limits:", "requests:")
    assert run("-", stdin=requests).returncode == 0
    assert run("-", "--fail-on", "warning", stdin=requests).returncode == 1
    assert run("-", "--fail-on", "never", stdin=POD).returncode == 0
    wrong = run("-", "--select", "memory-units", stdin=POD)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "podslice: error: 'memory-units' is not a rule (did you mean memory-unit?)\n",
    )


@pytest.mark.slow
def test_explain_and_list() -> None:
    """A rule's page can be printed by id or name, and all rules be listed."""
    page = run("--explain", "PS101").stdout
    assert page == run("--explain", "nearly-guaranteed").stdout
    assert "Guaranteed but for one field" in page
    listed = run("--rules").stdout
    assert all(rule.id in listed and rule.name in listed for rule in RULES)


def test_bad_files_do_not_stop_the_others(tmp_path: Path) -> None:
    """An unreadable file is one line on standard error and exit code 2; the other files are still linted."""
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text("a: {{ .Values.a }\n")
    good.write_text(POD)
    result = run(str(bad), str(good))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "bad.yaml" in result.stderr
    assert "PS305" in result.stdout


def test_a_configuration_that_is_none() -> None:
    """A file of another kind for --config is bad input: the pods would be linted without a configuration."""
    result = run("examples/small.yaml", "--config", "examples/pods.yaml")
    assert result.returncode == 2
    assert "examples/pods.yaml: holds Pod, Deployment, but no configuration of a kubelet" in result.stderr


def test_other_yaml_is_passed_over() -> None:
    """Files that hold no Kubernetes objects are not an error, so that the hook can see all YAML files."""
    result = run("-", stdin="services: {web: {image: web}}\n---\n- just\n- a list\n")
    assert (result.returncode, result.stdout.splitlines()[0]) == (0, "0 pods: no findings")


def test_no_file_is_bad_input() -> None:
    """Without any file the command says what to give it."""
    result = run()
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)


def test_hook_calls_the_command() -> None:
    """The pre-commit hook runs a command that exists, on YAML files."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "podslice lint"
    assert (hook["language"], hook["types"]) == ("python", ["yaml"])


def test_documentation_lists_the_rules() -> None:
    """docs/lint.md has one row per rule, with its name and severity."""
    text = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| PS")]
    assert [(row[0].strip("| "), row[1].strip("`"), row[2]) for row in rows] == [
        (rule.id, rule.name, rule.severities) for rule in RULES
    ]


def test_positions() -> None:
    """A field's place is its key; what is not written is at the nearest parent; empty documents do not count."""
    positions = Positions("---\n---\nspec:\n  a: [{b: 1}, {c.d/e: 2}]\n")
    assert positions.find(0, "spec.a[1].limits[c.d/e]") == (4, 15)
    assert positions.find(0, "spec.a[1][c.d/e]") == (4, 16)
    assert positions.find(0, "spec.missing[3].x") == (3, 1)


@pytest.mark.slow
def test_shared_manifests(shared: Path) -> None:
    """Real manifests give no error but pods that v1.36.2 indeed refuses, and fields it does not know."""
    files = sorted(str(path) for path in (shared / "manifests" / "files").rglob("*.yaml"))
    findings = read_document(run(*files, "-o", "json").stdout, "LintReport")["findings"]
    errors = {
        (finding["id"], Path(finding["source"]).parts[-2]) for finding in findings if finding["severity"] == "error"
    }
    refused = {"6063-pod-pid-limit", "5419-pod-level-resources-in-place-resize", "vitess"}
    assert {folder for rule, folder in errors if rule == "PS001"} == refused
    unknown = {finding["path"] for finding in findings if finding["id"] == "PS002"}
    assert {"spec.template.spec.nodeSelectors", "spec.volumes[0].rbd.imageformat", "spec.serviceName"} <= unknown
    assert len(unknown) < 20
    assert len(findings) < len(files) / 4


def test_documentation_shows_the_findings() -> None:
    """The findings in docs/lint.md are what the command prints."""
    text = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    command, _, shown = text.split("```text\n$ podslice lint ")[1].split("```")[0].partition("\n")
    assert run(*command.split()).stdout == shown


def test_claims() -> None:
    """The amounts of claims are read from claims and from templates; a file of another kind is refused."""
    pods, claims, slices = (str(ROOT / "examples" / "dra" / f"{name}.yaml") for name in ("pods", "claims", "slices"))
    result = run(pods, "--claims", claims, "--select", "PS110", "-o", "json")
    found = read_document(result.stdout, "LintReport")["findings"]
    assert [one["fix"].partition(",")[0] for one in found] == [
        "request cpu: 32", "request cpu: 16", "request memory: 64Gi"]  # fmt: skip
    assert result.returncode == 0
    wrong = run(pods, "--claims", slices)
    assert (wrong.returncode, "give it with --slices" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("given", [("kubelet.json",), ("--config", "kubelet.json")], ids=["file", "option"])
def test_what_a_running_kubelet_answers_is_a_configuration(tmp_path: Path, given: tuple[str, ...]) -> None:
    """`configz` leaves kind and version out; its configuration is linted all the same."""
    served = {key: value for key, value in yaml.safe_load(KUBELET).items() if key not in ("kind", "apiVersion")}
    path = tmp_path / "kubelet.json"
    path.write_text(json.dumps({"kubeletconfig": served}))
    result = run(*(str(path) if one == path.name else one for one in given), "--machine", "xeon-6338-2s")
    assert "PS403" in result.stdout
    assert "1 kubelet configuration" in result.stdout


@pytest.mark.parametrize("live", [True, False])
def test_a_running_pod_may_be_debugged(tmp_path: Path, live: bool) -> None:
    """A pod of a cluster may have a container of `kubectl debug`, which a create request may not; `inspect` says the
    same."""
    status = "status: {phase: Running}\n" if live else ""
    path = tmp_path / "pod.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n"
        f"  ephemeralContainers: [{{name: debugger, image: busybox}}]\n{status}"
    )
    said = run(str(path)).stdout
    assert ("spec.ephemeralContainers: Forbidden: cannot be set on create" in said) != live


@pytest.mark.parametrize(
    ("head", "indent", "errors"),
    [
        ("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "", 1),
        ("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n", "      ", 0),
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: x}\n"
            "spec:\n  kubeletConfig:\n",
            "    ",
            0,
        ),
    ],
)
def test_reserved_memory_beside_what_a_platform_reserves(tmp_path: Path, head: str, indent: str, errors: int) -> None:
    """Where a platform reserves memory itself, nobody can say without the machine that reservedMemory does not add
    up."""
    file = tmp_path / "config.yaml"
    lines = "memoryManagerPolicy: Static", "reservedMemory: [{numaNode: 0, limits: {memory: 1124Mi}}]"
    file.write_text(head + "".join(f"{indent}{line}\n" for line in lines))
    assert run("lint", file).stdout.count("error PS402") == errors
