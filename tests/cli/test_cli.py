"""The commands as a person uses them: answers, exit codes, and one line for every mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from podslice.cli.main import COMMANDS
from tests.read_documents import read_document
from tests.shell import ROOT, Answer, podslice_process
from tests.shell import podslice as run

EXAMPLES = ROOT / "examples"


def admit_example(*more: str) -> Answer:
    return run("admit", "examples/pods.yaml", "--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml", *more)


def test_admit_example() -> None:
    """The example prints verdicts, CPU lists, the reason of the refusal and the map, and exits 1."""
    result = admit_example()
    assert result.returncode == 1
    for part in ("2-9,194-201", "TopologyAffinityError", "single-numa-node requires everything", "NUMA 7", "thread 1"):
        assert part in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.slow
def test_admit_json_and_yaml_agree() -> None:
    """Machine-readable outputs carry the same decisions."""
    as_json = read_document(admit_example("-o", "json").stdout, "AdmissionReport")
    assert yaml.safe_load(admit_example("-o", "yaml").stdout) == as_json
    assert [pod["admitted"] for pod in as_json["pods"]] == [True, True, True, False]
    engine = as_json["pods"][1]["containers"][1]
    assert (engine["cpus"], engine["isolation"], engine["cfsQuota"]) == ("11-14,203-206", "container", False)


def test_admit_from_stdin_on_this_machine() -> None:
    """A pod on standard input is decided on this very machine with the kubelet's defaults."""
    result = run("admit", "-", stdin=(EXAMPLES / "small.yaml").read_text())
    assert (result.returncode, result.stderr) == (0, "")
    assert "default/small" in result.stdout


def test_profile_and_set() -> None:
    """--set overrides the configuration and --profile chooses the defects."""
    result = run(
        "admit", "examples/small.yaml", "--from", "pack:1 core:4 pu:2", "--profile", "kubelet-1.36", "-o", "json",
        "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0",
    )  # fmt: skip
    assert json.loads(result.stdout)["pods"][0]["containers"][0]["cpus"] == "4"  # beside CPU 0, which is reserved


@pytest.mark.parametrize("output", ["table", "wide", "yaml", "json"])
def test_topology_outputs(output: str) -> None:
    """Every form of a machine is printed."""
    result = run("topology", "--machine", "gb200-34-nodes", "-o", output)
    assert result.returncode == 0
    assert result.stdout


@pytest.mark.process
def test_topology_converts() -> None:
    """A machine goes from one format to another and back."""
    text = run("topology", "--from", "pack:2 numa:2 core:2 pu:2", "-o", "yaml").stdout
    assert podslice_process("topology", "--from", "/dev/stdin", "-o", "synthetic", stdin=text).stdout == (
        "pack:2 numa:2(memory=1073741824) core:2 pu:2(indexes=core)\n"
    )


@pytest.mark.slow
def test_help_and_version() -> None:
    """Every command explains itself with an example."""
    assert read_document(run("version", "-o", "json").stdout, "Version")["kubernetes"] == "1.36.2"
    for command in ("admit", "topology", "replay", "version"):
        text = run(command, "--help").stdout
        assert "Example" in text


def test_the_help_lists_commands_by_where_they_are_used() -> None:
    """Every command stands once, under the place where it is used: any machine, a node, a cluster, scripts."""
    text = run("--help").stdout
    parts = re.split(
        r"^(Anywhere, no cluster needed|On a node|For clusters|For scripts and developers):$", text, flags=re.M
    )
    named = {
        heading: re.findall(r"^  ([a-z]+) +[A-Z]", part, re.M)
        for heading, part in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert sorted(name for names in named.values() for name in names) == sorted(COMMANDS)
    assert {"why", "explain", "whatif"} <= set(named["Anywhere, no cluster needed"])
    assert {"agent", "capture", "state"} <= set(named["On a node"])
    assert set(named["For scripts and developers"]) == {"replay", "schema", "man", "version"}


@pytest.mark.slow
@pytest.mark.parametrize("group", ["state", "fleet"])
def test_a_group_alone_shows_its_help(group: str) -> None:
    """A group without a command prints its help, laid out, with exit code 2."""
    result = run(group)
    assert result.returncode == 2
    assert f"Usage: podslice {group} [OPTIONS] COMMAND [ARGS]...\n" in result.stderr
    assert "\nCommands:\n" in result.stderr


def test_replay(tmp_path: Path) -> None:
    """replay prints outcomes, and --check compares and exits 1 on a difference."""
    case = {"type": "cpuset", "in": "0-3,8"}
    facts = {"isEmpty": False, "list": [0, 1, 2, 3, 8], "size": 5, "string": "0-3,8"}
    result = {"in": "0-3,8", "type": "cpuset", "result": facts}
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(json.dumps({"case": case, "result": result}))
    bad.write_text(json.dumps({"case": case, "result": {**result, "type": "x"}}))
    assert json.loads(run("replay", str(good)).stdout)["result"] == result
    checked = run("replay", "--check", str(good))
    assert checked.returncode == 0
    assert checked.stdout == "good.jsonl: 1 cases, 1 identical, 0 declared deviations, 0 different\n"
    checked = run("replay", "--check", str(bad))
    assert checked.returncode == 1
    assert 'type: expected "x", found "cpuset"' in checked.stdout


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
STATIC = ("--set", "cpuManagerPolicy=static")
BAD = [
    pytest.param("a: [", (), "is not valid YAML: line", id="malformed YAML"),
    pytest.param("kind: Service", (), "holds no pods, only Service", id="wrong kind"),
    pytest.param("just text", (), "expected an object, got text", id="no object"),
    pytest.param("a: 1\na: 2", (), "duplicate key 'a' in line 2", id="duplicate key"),
    pytest.param("apiVersion: v1\nkind: Pod", (), "spec: is missing", id="no spec"),
    pytest.param(
        "apiVersion: v1\nkind: Pod\nspec: {containers: []}", (), "spec.containers: Required value", id="no containers"
    ),
    pytest.param("apiVersion: apps/v1\nkind: Deployment\nspec: {}", (), "spec.template: is missing", id="no template"),
    pytest.param("kind: Pod\nspec: {}", (), "apiVersion not set (apiVersion: v1)", id="no version"),
    pytest.param(
        "apiVersion: apps/v1beta9\nkind: Pod\nspec: {}", (),
        'no kind "Pod" is registered for version "apps/v1beta9" (apiVersion: v1)', id="wrong version",
    ),
    pytest.param(
        "apiVersion: v1\nkind: pod\nspec: {}", (),
        'no kind "pod" is registered for version "v1" (did you mean Pod?)', id="kind in lower case",
    ),
    pytest.param(
        POD + "  - {name: c, resources: {requests: {cpu: '-1'}}}", (),
        'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        id="negative",
    ),
    pytest.param(
        POD + "  - {name: c, resources: {limits: {cpu: 1x}}}", (), "'1x' is not a quantity", id="not a quantity"
    ),
    pytest.param(
        POD + "  - {name: c, resources: {limits: {memory: 1e30}}}", (), "is beyond 64 bits", id="absurd quantity"
    ),
    pytest.param(
        POD + "  - {name: c, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}", (),
        'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        id="request above limit",
    ),
    pytest.param(
        POD + "  - {name: c}\n  - {name: c}", (),
        'spec.containers[1].name: Duplicate value: "c"', id="duplicate container",
    ),
    pytest.param(
        POD + "  - {name: 3}", (), "containers[0].name: expected text, got a whole number (put it in quotes)",
        id="wrong type",
    ),
    pytest.param(
        POD + "".join(f"  - {{name: c{i}}}\n" for i in range(10000)), (), "10000 containers", id="10 000 containers"
    ),
    pytest.param(
        POD + "  - {name: c}", (*STATIC, "--set", "reservedSystemCPUs=0-99"),
        "reserved-cpus: 0-99 is not a subset of online-cpus: 0-7", id="reserved CPUs",
    ),
    pytest.param(
        POD + "  - {name: c}",
        (*STATIC, "--set", "reservedSystemCPUs=0", "--set", "cpuManagerPolicyOptions={align-by-socket: 'true'}"),
        'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided', id="gate",
    ),
    pytest.param(POD + "  - {name: c}", ("--set", "cpuManagerPolicy=fast"), 'unknown policy: "fast"', id="policy"),
    pytest.param(
        POD + "  - {name: c}", ("--set", "topologyManagerPolicy=best"),
        'topologyManagerPolicy (--topology-manager-policy) "best" must be one of', id="configuration",
    ),
    pytest.param(POD + "  - {name: c}", ("--set", "oops"), "'oops' is not FIELD=VALUE", id="set"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("text", "options", "problem"), BAD)
def test_bad_input_is_one_line(text: str, options: tuple[str, ...], problem: str) -> None:
    """Every mistake is one line on standard error with the place and the value, and exit code 2."""
    result = run("admit", "-", "--from", "numa:1(memory=8GiB) core:4 pu:2(indexes=core)", *options, stdin=text)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("podslice: error: ")
    assert problem in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param(("--machine", "nonesuch-9000"), "unknown machine 'nonesuch-9000'", id="machine"),
        pytest.param(("--sysfs", "/nonexistent"), "/nonexistent: does not exist", id="snapshot"),
        pytest.param(("--sysfs", str(ROOT / "tests")), "has no sys directory", id="empty snapshot"),
        pytest.param(("--from", "nonesuch"), "does not exist", id="file"),
        pytest.param(("--machine", "a", "--from", "b"), "name a machine twice", id="twice"),
        pytest.param(
            ("--config", "examples/pods.yaml"), "but no configuration of a kubelet", id="not a configuration"
        ),
        pytest.param(
            ("--from", "pack:9 numa:1(memory=1GiB) core:1 pu:1(indexes=pu)", "--profile", "kubelet-1.36",
             "--set", "topologyManagerPolicy=restricted"),
            "unsupported on machines with more than 8 NUMA Nodes", id="too many NUMA nodes",
        ),
    ],
)  # fmt: skip
def test_bad_options_are_one_line(options: tuple[str, ...], problem: str) -> None:
    """Wrong machines and files are named."""
    result = run("admit", "examples/small.yaml", *options)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("podslice: error: ")
    assert problem in line


@pytest.mark.slow
def test_unknown_configuration_fields_are_reported(tmp_path: Path) -> None:
    """A misspelt field of the configuration is a warning, not silence."""
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cpuManagerPolcy: static\nclusterDomain: x\n"
    )
    result = run("admit", "examples/small.yaml", "--config", str(config))
    assert result.stderr == "warning: unknown field cpuManagerPolcy is ignored; did you mean cpuManagerPolicy?\n"


@pytest.mark.parametrize("text", ["08", "1e3", "yes", "null", "0x10", "12:30", "2026-01-01", ".5", "~", ""])
def test_yaml_quotes_what_it_would_misread(text: str) -> None:
    """Text that looks like something else comes back as text."""
    from podslice.reading.yaml import dump, load_documents

    assert load_documents(dump({"a": text, "b": 8, "c": 1.5, "d": None, "e": True})) == [
        {"a": text, "b": 8, "c": 1.5, "d": None, "e": True}
    ]
