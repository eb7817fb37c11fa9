"""`podslice state`: output, exit codes, and that no file is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from podslice import Node
from podslice.state_files.commands.state import state
from podslice.values.errors import InputError
from tests.conftest import make_pod
from tests.read_documents import read_document
from tests.state_files import samples
from tests.state_files.test_crash import CONFIG, MACHINE

_MACHINE = ["--from", f"numa:2(memory={16 * samples.GIB}) core:4 pu:2(indexes=pu)"]


def _run(*arguments: object) -> Result:
    result = CliRunner().invoke(state, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def _items(kind: str, *arguments: object) -> Any:
    return read_document(_run(*arguments, "-o", "json").stdout, kind)["items"]


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    """A kubelet's directory with intact files of 1.36 with pod-level managers."""
    files = samples.files()
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "cpu_manager_state").write_bytes(files["cpu-v3"])
    (tmp_path / "memory_manager_state").write_bytes(files["memory-v2"])
    (tmp_path / "device-plugins" / "kubelet_internal_checkpoint").write_bytes(files["device-v2"])
    return tmp_path


def test_show_names_every_owner(kubelet: Path) -> None:
    """A directory shows its three files, and who owns what in each."""
    result = _run("show", kubelet)
    assert result.exit_code == 0
    for text in ("0-3,12-15", "pod-a", "(whole pod)", "8 GiB", "example.com/gpu", "g0, g1"):
        assert text in result.output


def test_show_as_data(kubelet: Path) -> None:
    """JSON has the same members for every version of a file."""
    (shown,) = _items("StateFileList", "show", kubelet / "cpu_manager_state")
    assert shown["kind"] == "cpu"
    assert shown["version"] == "v3"
    assert shown["entries"]["pod-a"] == {"app": "4-5"}
    assert shown["podEntries"] == {"pod-b": "6-11"}


def test_verify_says_what_the_kubelet_would_do(kubelet: Path) -> None:
    """Intact files are fine for their kubelet (0) and stop an older one (1)."""
    fine = _run("verify", kubelet, "--pod-level", *_MACHINE)
    assert fine.exit_code == 0
    assert "a kubelet 1.36 with PodLevelResourceManagers starts with this state" in fine.output
    older = _run("verify", kubelet / "cpu_manager_state", "--kubelet-version", "1.35")
    assert older.exit_code == 1
    assert (
        "does not start: start cpu manager error: could not restore state from checkpoint: checkpoint is corrupted"
        in (older.output)
    )


_CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: {policy}
reservedSystemCPUs: 0-1
memoryManagerPolicy: Static
kubeReserved: {{memory: {total}Gi}}
evictionHard: {{memory.available: 0%}}
reservedMemory:
- {{numaNode: 0, limits: {{memory: 1Gi}}}}
- {{numaNode: 1, limits: {{memory: {second}Gi}}}}
"""


@pytest.mark.parametrize(
    ("policy", "second", "outcome"),
    [
        ("static", 1, "starts with this state"),
        ("static", 2, "the expected machine state is different from the real one"),
        ("none", 1, 'configured policy "none" differs from state checkpoint policy "static"'),
    ],
)
def test_verify_with_the_configuration(kubelet: Path, tmp_path: Path, policy: str, second: int, outcome: str) -> None:
    """With its configuration, the kubelet's own policies and reservations decide whether it starts."""
    config = tmp_path / "kubelet.yaml"
    config.write_text(_CONFIG.format(policy=policy, total=1 + second, second=second))
    result = _run("verify", kubelet, "--pod-level", "--config", config, *_MACHINE)
    assert outcome in result.output
    assert result.exit_code == (0 if outcome.startswith("starts") else 1)


def test_configuration_needs_a_machine(kubelet: Path, tmp_path: Path) -> None:
    """A configuration says nothing about files without a machine."""
    config = tmp_path / "kubelet.yaml"
    config.write_text(_CONFIG.format(policy="static", total=2, second=1))
    with pytest.raises(InputError, match="--config: needs a machine"):
        _run("verify", kubelet, "--config", config)


def test_the_configuration_says_whether_the_gate_is_on(kubelet: Path) -> None:
    """The gate of the configuration decides which format the kubelet reads, without --pod-level."""
    policy = ("--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0-1")
    off = _run("verify", kubelet / "cpu_manager_state", *policy, *_MACHINE)
    assert (off.exit_code, "does not start" in off.output) == (1, True)
    on = _run(
        "verify", kubelet / "cpu_manager_state", *policy, "--set", "featureGates.PodLevelResourceManagers=true",
        *_MACHINE,
    )  # fmt: skip
    assert (on.exit_code, "1.36 with PodLevelResourceManagers starts" in on.output) == (0, True)


def test_verify_finds_damage(kubelet: Path) -> None:
    """A changed owner is an error with exit code 1, also as data."""
    path = kubelet / "cpu_manager_state"
    path.write_bytes(path.read_bytes().replace(b'"4-5"', b'"4-6"'))
    result = _run("verify", path, "-o", "json")
    assert result.exit_code == 1
    (verdict,) = read_document(result.output, "StateVerificationList")["items"]
    assert {finding["code"] for finding in verdict["findings"]} == {"checksum", "owned-twice"}


def test_convert_shows_before_it_writes(kubelet: Path) -> None:
    """Without --write nothing changes; with it, the old files stay as backups and the older kubelet starts."""
    before = (kubelet / "cpu_manager_state").read_bytes()
    shown = _run("convert", kubelet, "--to", "1.35")
    assert shown.exit_code == 1
    assert "pod pod-b: that CPUs 6-11 belong to the pod as a whole" in shown.output
    assert (kubelet / "cpu_manager_state").read_bytes() == before
    assert _run("convert", kubelet, "--to", "1.35", "--write").exit_code == 0
    assert (kubelet / "cpu_manager_state.bak").read_bytes() == before
    assert _run("verify", kubelet, "--kubelet-version", "1.35", *_MACHINE).exit_code == 0
    assert not (kubelet / "device-plugins" / "kubelet_internal_checkpoint.bak").exists()


def test_convert_to_standard_output(kubelet: Path) -> None:
    """--out - gives the bytes and nothing else."""
    result = _run("convert", kubelet / "cpu_manager_state", "--to", "1.36", "--pod-level", "--out", "-")
    assert result.stdout_bytes == samples.files()["cpu-v3"]


def test_convert_to_a_pipe_or_a_link(kubelet: Path, tmp_path: Path) -> None:
    """The target of --out is written to, not replaced: a pipe (/dev/null as well), and the target of a link."""
    words = ("convert", kubelet / "cpu_manager_state", "--to", "1.36", "--pod-level", "--out")
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert _run(*words, pipe).exit_code == _run(*words, link).exit_code == 0
    expected = samples.files()["cpu-v3"]
    assert (os.read(reader, 1 << 16), target.read_bytes()) == (expected, expected)
    os.close(reader)
    assert (pipe.is_fifo(), link.is_symlink()) == (True, True)


def test_repair_with_running_pods(kubelet: Path, tmp_path: Path) -> None:
    """A damaged file is made consistent from it and the pods that run; the damaged one stays as .bak."""
    path = kubelet / "cpu_manager_state"
    damaged = path.read_bytes()[:-40]
    path.write_bytes(damaged)
    pods = tmp_path / "pods.yaml"
    pods.write_text("pods:\n- uid: pod-a\n  containers: {app: {cpus: 4-5}}\n")
    arguments = ("repair", path, "--pods", pods, *_MACHINE)
    dry = _run(*arguments)
    assert dry.exit_code == 1
    assert "entries.pod-b.one: does not run any more; dropped" in dry.output
    assert path.read_bytes() == damaged
    assert _run(*arguments, "--write").exit_code == 0
    assert (kubelet / "cpu_manager_state.bak").read_bytes() == damaged
    assert _run("verify", path, *_MACHINE).exit_code == 0
    assert _run(*arguments).exit_code == 0


def test_running_pods_as_kubectl_gives_them(kubelet: Path, tmp_path: Path) -> None:
    """A pod list names what runs; pods that have ended do not count."""
    pods = tmp_path / "pods.json"
    items = [
        {"metadata": {"uid": "pod-a"}, "spec": {"containers": [{"name": "app"}]}},
        {"metadata": {"uid": "pod-b"}, "spec": {"containers": [{"name": "one"}]}, "status": {"phase": "Failed"}},
    ]
    pods.write_text(json.dumps({"kind": "List", "items": items}))
    (change,) = _items("StateRepairList", "repair", kubelet / "cpu_manager_state", "--pods", pods)
    assert json.loads(change["content"])["entries"] == {"pod-a": {"app": "4-5"}}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("show", "{dir}/empty"), "holds no state file"),
        (("show", "{dir}/none"), "does not exist"),
        (("show", "{dir}/broken"), "unexpected end of JSON input"),
        (("verify", "{dir}", "--kubelet-version", "x"), "not a Kubernetes version"),
        (("verify", "{dir}", "--reserved-cpus", "1-"), "--reserved-cpus"),
        (("convert", "{dir}/broken", "--to", "1.35"), "unexpected end of JSON input"),
        (("repair", "{dir}/broken"), "is not recognisable"),
        (("repair", "{dir}", "--out", "x"), "works for one file"),
        (("repair", "{dir}", "--pods", "{dir}/broken"), "broken"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(kubelet: Path, arguments: tuple[str, ...], problem: str) -> None:
    """Unusable input is an `InputError` that says where and what, which the command prints with exit code 2."""
    (kubelet / "empty").mkdir()
    (kubelet / "broken").write_text('{"a":')
    with pytest.raises(InputError) as caught:
        _run(*(argument.format(dir=kubelet) for argument in arguments))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_node_starts_with_converted_and_repaired_files(tmp_path: Path) -> None:
    """The files of a live node, converted for an older kubelet or repaired after damage, is good for a node's start."""
    node = Node(MACHINE, CONFIG)
    for uid, budget in (("solo", None), ("budget", "4")):
        assert node.admit(make_pod(uid, ("c", "2"), budget=budget)).admitted
    for name, data in node.files.items():
        (tmp_path / name).write_bytes(data)
    assert _run("convert", tmp_path, "--to", "1.36", "--write").exit_code == 0
    converted = {name: (tmp_path / name).read_bytes() for name in node.files}
    assert Node(MACHINE, msgspec.structs.replace(CONFIG, feature_gates={}), files=converted)
    memory = tmp_path / "memory_manager_state"
    memory.write_bytes(
        node.files["memory_manager_state"].replace(b'"numberOfAssignments":1', b'"numberOfAssignments":7')
    )
    assert _run("repair", memory, "--pod-level", "--write").exit_code == 0
    assert memory.read_bytes() == node.files["memory_manager_state"]


def test_repair_ledger_what_the_configuration_reserves(kubelet: Path, tmp_path: Path) -> None:
    """With a configuration, a memory file that lost its reservations is repaired to one its kubelet starts with."""
    config = tmp_path / "kubelet.yaml"
    config.write_text(_CONFIG.format(policy="static", total=2, second=1))
    path = kubelet / "memory_manager_state"
    path.write_bytes(path.read_bytes().replace(f'"systemReserved":{samples.GIB}'.encode(), b'"systemReserved":0'))
    arguments = ("--pod-level", "--config", config, *_MACHINE)
    assert _run("verify", path, *arguments).exit_code == 1
    assert _run("repair", path, "--write", *arguments).exit_code == 0
    assert _run("verify", path, *arguments).exit_code == 0


_GRANTED = (
    '{"entries":{"u1":{"ContainerResources":{"c":{"requests":{"cpu":"1"}}},'
    '"PodLevelResources":{"limits":{"memory":"1Gi"}}},"u2":{"ContainerResources":{},"PodLevelResources":null}}}'
)


def test_granted_resources(kubelet: Path) -> None:
    """The records of granted resources beside the managers' files are shown and verified, and left alone otherwise."""
    path = kubelet / "allocated_pods_state"
    path.write_text(json.dumps({"data": _GRANTED, "checksum": 2858198257}))
    shown = _run("show", path)
    assert shown.exit_code == 0
    assert [line.split() for line in shown.output.splitlines()[2:]] == [
        ["u1", "(whole", "pod)", "-", "memory", "1Gi"],
        ["u1", "c", "cpu", "1", "-"],
    ]
    (content,) = _items("StateFileList", "show", path)
    assert content["entries"]["u1"]["pod"] == {"requests": {}, "limits": {"memory": "1Gi"}}
    assert "starts with this state" in _run("verify", path).output
    assert str(path) in _run("show", kubelet).output
    assert str(path) not in _run("convert", kubelet, "--to", "1.35").output
    for command in ("convert", "repair"):
        with pytest.raises(InputError, match=r"granted resources|nothing to repair"):
            _run(command, path)


def test_granted_resources_that_are_damaged(kubelet: Path) -> None:
    """A record that contradicts itself or its checksum is a finding, and the kubelet's own words say what follows."""
    path = kubelet / "allocated_pods_state"
    data = '{"entries":{"u":{"ContainerResources":{"c":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}}}}}'
    path.write_text(json.dumps({"data": data, "checksum": 1}))
    result = _run("verify", path, "-o", "json")
    assert result.exit_code == 1
    (verdict,) = read_document(result.output, "StateVerificationList")["items"]
    assert {finding["code"] for finding in verdict["findings"]} == {"checksum", "over-limit"}
    assert "delete pod resource information checkpoint file" in verdict["start"]
