"""`--kubernetes`: the release whose kubelet a command is about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podslice import KubeletConfig, Node
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.releases.table import NEWEST
from tests.shell import podslice as run
from tests.state_files import samples

MACHINE = "pack:1 numa:1(memory=8GiB) core:4 pu:2"
UNCORE = ("--set", "cpuManagerPolicyOptions.prefer-align-cpus-by-uncorecache=true")
ON = ("admit", "examples/small.yaml", "--from", MACHINE, "--set", "cpuManagerPolicy=static", "--set",
      "reservedSystemCPUs=0")  # fmt: skip
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: worker}
status:
  capacity: {cpu: "8", memory: 16Gi, pods: "110"}
  allocatable: {cpu: "7", memory: 15Gi, pods: "110"}
  nodeInfo: {architecture: amd64, operatingSystem: linux, kubeletVersion: VERSION}
"""


@pytest.mark.parametrize(
    ("release", "code", "said"),
    [
        ("1.34", 0, ""),
        ("v1.36.2", 0, ""),
        ("1.33", 2, "CPU Manager Policy Alpha-level Options not enabled"),
        ("1.31", 2, 'unknown CPU Manager Policy option: "prefer-align-cpus-by-uncorecache"'),
        ("1.29", 2, f"--kubernetes: Kubernetes 1.29 is not known here (known are 1.31 to 1.{NEWEST}; nearest is 1.31)"),
        ("soon", 2, "--kubernetes: 'soon' is not a Kubernetes version"),
    ],
)
def test_a_command_is_about_the_release(release: str, code: int, said: str) -> None:
    """An option is judged as the kubelet of the release judges it; unknown releases are refused in one line."""
    result = run(*ON, *UNCORE, "--kubernetes", release)
    assert result.returncode == code, result.stderr
    assert said in result.stderr
    assert len([line for line in result.stderr.splitlines() if ": error: " in line]) == bool(said)


@pytest.mark.parametrize(("release", "profile", "notes"), [("1.36", "podslice", 0), ("1.37", "podslice-1.37", 1)])
def test_answers_name_the_release(release: str, profile: str, notes: int) -> None:
    """An answer says which release it is about, and that it is not recorded where it is not."""
    facts = json.loads(run(*ON, "--kubernetes", release, "-o", "json").stdout)["provenance"]
    assert (facts["release"], facts["profile"]) == (release, profile)
    assert sum("it is not recorded" in one["text"] for one in facts["assumptions"]) == notes


def test_auto_takes_the_release_of_the_node(tmp_path: Path) -> None:
    """The Node object's kubelet decides; without one, auto says what it needs."""
    node = tmp_path / "node.yaml"
    node.write_text(NODE.replace("VERSION", "v1.34.9+rke2r1"))
    auto = ("admit", "examples/small.yaml", "--kubernetes", "auto", "-o", "json")
    assert json.loads(run(*auto, "--from", str(node)).stdout)["provenance"]["release"] == "1.34"
    node.write_text(NODE.replace("VERSION", "v1.30.1"))
    assert "nearest is 1.31" in run(*auto, "--from", str(node)).stderr
    assert "auto needs a Node object" in run(*auto, "--from", MACHINE).stderr


@pytest.mark.parametrize(
    ("profile", "code", "said"), [("kubelet-1.34", 0, ""), ("kubelet-1.36", 2, "use kubelet-1.34")]
)
def test_profile_and_release_agree(profile: str, code: int, said: str) -> None:
    """A kubelet's profile is of one release; another one beside it is a mistake."""
    result = run(*ON, "--profile", profile, "--kubernetes", "1.34")
    assert result.returncode == code
    assert said in result.stderr


def test_auto_takes_the_release_that_an_agent_kept(tmp_path: Path) -> None:
    """The folder of an agent's state has the version of the kubelet beside it; a Node object comes before it."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    for name, data in Node(from_synthetic(MACHINE), config, kubernetes="1.33").manager_files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "kubelet_version").write_text("v1.33.4-eks-99")
    auto = (*ON, "--state", str(tmp_path), "--kubernetes", "auto", "-o", "json")
    assert json.loads(run(*auto).stdout)["provenance"]["release"] == "1.33"
    (tmp_path / "kubelet_version").write_bytes(b"\xff")
    assert "auto needs a Node object" in run(*auto).stderr


def test_state_commands_take_it_too(tmp_path: Path) -> None:
    """`verify` and `repair` call it --kubelet-version as well; auto is the agent's folder, or a Node object."""
    for name, data in samples.files().items():
        if name == "memory-v1":
            (tmp_path / "memory_manager_state").write_bytes(data)
    named = [run("state", "verify", str(tmp_path), option, "v1.34.9+rke2r1").stdout
             for option in ("--kubernetes", "--kubelet-version")]  # fmt: skip
    assert named[0] == named[1]
    assert "1.34" in named[0]
    (tmp_path / "kubelet_version").write_text("v1.33.4")
    said = run("state", "verify", str(tmp_path), "--kubernetes", "auto").stdout
    assert "1.33" in said
    assert "Not checked: kubelet_version (the version of the kubelet beside the agent)" in said
    (tmp_path / "kubelet_version").unlink()
    alone = run("state", "repair", str(tmp_path), "--kubernetes", "auto")
    assert (alone.returncode, "auto needs a Node object" in alone.stderr) == (2, True)
