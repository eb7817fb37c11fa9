"""CPUs that stay with pods and init containers that have ended: in state files, and in pictures of the node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice.advise.explain.command import explain
from podslice.draw.command import draw
from podslice.node.checkpoints import allocation
from podslice.node.cpu import checkpoint as checkpoint_cpu
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.cpu.ended import IdleCPUs, idle_after_init, idle_of_gone_pods
from podslice.state_files.commands.state import show

_MACHINE = ("--from", "pack:1 numa:1(memory=16GiB) core:8 pu:1", "--set", "cpuManagerPolicy=static", "--set",
            "reservedSystemCPUs=0")  # fmt: skip
_PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: leaky, namespace: default, uid: "u1"}
spec:
  initContainers:
  - {name: init, image: registry.example.com/a:1, resources: {limits: {cpu: 3, memory: 64Mi}}}
  - {name: side, restartPolicy: Always, image: registry.example.com/a:1, resources: {limits: {cpu: 1, memory: 64Mi}}}
  containers:
  - {name: app, image: registry.example.com/a:1, resources: {limits: {cpu: 1, memory: 64Mi}}}
"""


@pytest.mark.parametrize(
    ("owners", "inits", "idle"),
    [
        ({"init": 0b0110, "app": 0b0110}, {"init"}, []),
        ({"init": 0b0010, "app": 0b1100}, {"init"}, [IdleCPUs("u", "init", 0b0010)]),
        ({"init": 0b1110, "app": 0b0110}, {"init"}, [IdleCPUs("u", "init", 0b1000)]),
        ({"a": 0b0011, "b": 0b0001, "app": 0b0100}, {"a", "b"}, [IdleCPUs("u", "a", 0b0011)]),
        ({"side": 0b0001, "app": 0b0010}, set(), []),
        ({}, {"init"}, []),
    ],
)
def test_what_the_other_containers_leave_is_idle(owners: dict[str, int], inits: set[str], idle: list[IdleCPUs]) -> None:
    """CPUs of init containers count once, and only where no container that goes on has them."""
    assert list(idle_after_init({"u": owners}, {"u": inits})) == idle


def test_pods_that_nobody_knows_are_gone() -> None:
    """Their CPUs count together; a pod without any is not worth a word."""
    owners = {"a": {"x": 1, "y": 2}, "b": {"x": 4}, "c": {}}
    assert list(idle_of_gone_pods(owners, {"b"})) == [IdleCPUs("a", "", 3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir()
    entries = {"u1": {"init": "1-3", "side": "1", "app": "2"}, "gone": {"app": "4"}}
    (state / "cpu_manager_state").write_bytes(
        checkpoint_cpu.encode(CPUCheckpoint("static", "0,5-7", entries, {}), "v2")
    )
    (state / "pods" / "u1").mkdir(parents=True)
    (tmp_path / "pods.yaml").write_text(_PODS)
    return state


def test_show_says_what_runs_now_and_then(folder: Path) -> None:
    """A pod that is gone keeps its CPUs until the next admission, an init container until its pod ends."""
    result = CliRunner().invoke(show, [str(folder), "--pods", str(folder.parent / "pods.yaml")])
    assert "CPU 4 is held for pod gone, which is gone, until the next admission." in result.output
    assert "Shared containers run on 0,5-7 now, and on 0,4-7 after it." in result.output
    assert "CPU 3 is held for init container init of default/leaky, which ends before the others" in result.output
    assert "Not checked: pods (folders of pods)" in result.output
    document = json.loads(CliRunner().invoke(show, [str(folder), "-o", "json"]).stdout)["items"][0]
    assert document["idle"] == [{"pod": "gone", "container": "", "cpus": "4", "until": "next-admission"}]
    assert (document["defaultCpuSet"], document["nextSharedPool"]) == ("0,5-7", "0,4-7")


def test_show_without_anything_about_pods_says_nothing_of_them(folder: Path) -> None:
    """One file alone does not tell who is gone."""
    result = CliRunner().invoke(show, [str(folder / "cpu_manager_state")])
    assert "gone, until" not in result.output
    assert "held for" not in result.output


def test_pods_that_have_not_started_keep_their_init_containers(folder: Path) -> None:
    """While a pod is Pending its init container may run."""
    pods = folder.parent / "pods.yaml"
    pods.write_text(_PODS + "status: {phase: Pending}\n")
    assert "init container" not in CliRunner().invoke(show, [str(folder), "--pods", str(pods)]).output


def test_a_picture_of_state_files_says_what_runs_now(tmp_path: Path) -> None:
    """The picture shows the node after the next admission; two lines say what its shared containers run on now."""
    state = tmp_path / "s"
    state.mkdir()
    (state / "cpu_manager_state").write_bytes(
        checkpoint_cpu.encode(CPUCheckpoint("static", "0-3,5-7", {"bb": {"app": "4"}}, {}), "v2")
    )
    (state / "allocated_pods_state").write_bytes(allocation.encode({}))
    result = CliRunner().invoke(draw, ["--state", str(state), *_MACHINE])
    assert "CPU 4 is held for pod bb, which is gone, until the next admission" in result.output
    assert "shared containers run on 0-3,5-7 now, and on 0-7 after it" in result.output
    svg = CliRunner().invoke(draw, ["--state", str(state), *_MACHINE, "-o", "svg"]).output
    assert "shared containers run on 0-3,5-7 now" in svg


def test_a_picture_names_cpus_of_init_containers_that_have_ended(tmp_path: Path) -> None:
    """A sidecar goes on; what the init container alone has is idle."""
    (tmp_path / "pods.yaml").write_text(_PODS)
    result = CliRunner().invoke(draw, [str(tmp_path / "pods.yaml"), *_MACHINE])
    assert "held for init container init of default/leaky" in result.output
    assert "side" not in result.output.split("held for")[1].partition("\n")[0]


def test_explain_says_what_keeps_cpus_from_a_refused_pod(tmp_path: Path) -> None:
    """Nothing uses the CPUs, but only the end of the pod frees them; a pod that is evicted frees all that it owns."""
    other = _PODS.replace("leaky", "next").replace("u1", "u2").partition("  initContainers")[0]
    other += (
        "  containers: [{name: app, image: registry.example.com/a:1, resources: {limits: {cpu: 6, memory: 1Mi}}}]\n"
    )
    (tmp_path / "pods.yaml").write_text(f"{_PODS}---\n{other}")
    result = CliRunner().invoke(explain, [str(tmp_path / "pods.yaml"), *_MACHINE, "--only-refused"])
    assert result.exit_code == 1, result.output
    assert "held for init container init of default/leaky, which ends before the others start" in result.output
    assert "Delete default/leaky" in result.output
