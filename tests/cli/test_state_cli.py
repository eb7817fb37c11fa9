"""podslice state: show, verify, convert and repair."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from podslice import Node
from podslice.core.state.identify import identify
from podslice.core.values.cpuset import parse_bits
from tests.cli.test_cli import run
from tests.conftest import make_node, make_pod
from tests.state.test_crash import CONFIG
from tests.state.test_crash import MACHINE as MEMORY_MACHINE

MACHINE = ("--from", "pack:2 numa:1 core:8 pu:2")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A state directory with a pod of its own CPUs and a pod with a budget."""
    node = make_node(topology_manager_scope="pod", feature_gates={"PodLevelResourceManagers": True})
    assert node.admit(make_pod("solo", ("c", "2"))).admitted
    assert node.admit(make_pod("budget", ("a", "2"), ("b", None), budget="6")).admitted
    for name, data in node.files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_show(directory: Path) -> None:
    """show names every owner."""
    owners = {
        row.get("owner"): row.get("cpus")
        for row in json.loads(run("state", "show", str(directory), "-o", "json").stdout)
    }
    assert {"shared pool", "solo/c", "budget (pod)", "budget/a", "budget/b"} <= set(owners)
    assert parse_bits(owners["budget (pod)"] or "").bit_count() == 6
    assert "solo/c" in run("state", "show", str(directory)).stdout


def test_verify_sound(directory: Path) -> None:
    """A sound directory is called sound, and kubelets are told apart."""
    result = run("state", "verify", str(directory), *MACHINE)
    assert result.returncode == 0, result.stdout
    assert "cpu v3, sound" in result.stdout
    assert "1.36 with PodLevelResourceManagers on: starts" in result.stdout
    assert "PodLevelResourceManagers off: does not start" in result.stdout


def test_verify_damaged(directory: Path) -> None:
    """Damage is named and gives exit code 1."""
    file = directory / "cpu_manager_state"
    file.write_text(file.read_text().replace('"defaultCpuSet":"', '"defaultCpuSet":"0-31,'))
    result = run("state", "verify", str(file), *MACHINE)
    assert result.returncode == 1
    assert "fits none of its formats" in result.stdout
    assert "overlaps with the shared pool" in result.stdout
    file.write_text("{")
    assert "unexpected end of JSON input" in run("state", "verify", str(file)).stdout


@pytest.mark.parametrize("version", ["v2", "v3", "v4"])
def test_convert(directory: Path, version: str) -> None:
    """Every version is written with a valid checksum, and what v2 cannot hold is said."""
    file = directory / "cpu_manager_state"
    before = file.read_bytes()
    result = run("state", "convert", str(file), "--to", version, "--write")
    assert result.returncode == 0, result.stderr
    assert (identify(file.read_bytes()).format, file.with_name("cpu_manager_state.bak").read_bytes()) == (
        version,
        before,
    )
    assert ("one budget of the pod" in result.stderr) == (version == "v2")
    back = run("state", "convert", str(file), "--to", "v3")
    if version == "v4":
        assert back.stdout.strip() == before.decode()
    assert run("state", "verify", str(file), *MACHINE).returncode == 0


def test_repair(directory: Path) -> None:
    """A damaged file becomes a sound one, pods that are gone lose their CPUs, backups are never overwritten."""
    file = directory / "cpu_manager_state"
    file.write_text(file.read_text().replace('"defaultCpuSet":"', '"defaultCpuSet":"0-31,'))
    running = directory / "pods.yaml"
    running.write_text("kind: Pod\nmetadata: {name: solo, uid: solo}\nspec: {containers: [{name: c}]}\n")
    for backup in ("cpu_manager_state.bak", "cpu_manager_state.bak.2"):
        result = run("state", "repair", str(file), *MACHINE, "--running", str(running), "--write")
        assert result.returncode == 0, result.stderr
        assert file.with_name(backup).exists()
    assert run("state", "verify", str(file), *MACHINE).returncode == 0
    owners = {row.get("owner") for row in json.loads(run("state", "show", str(file), "-o", "json").stdout)}
    assert owners == {"shared pool", "solo/c"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("show", "/nonexistent"), "does not exist"),
        (("verify", "tests"), "holds no state files"),
        (("convert", "README.md", "--to", "v2"), "invalid character"),
    ],
)
def test_bad_targets(arguments: tuple[str, ...], problem: str) -> None:
    """Wrong files are one line and exit code 2."""
    result = run("state", *arguments)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert problem in line


def test_memory_file(tmp_path: Path) -> None:
    """A memory state file is converted and mended; the kubelet starts on both results."""
    node = Node(MEMORY_MACHINE, CONFIG)
    for uid, budget in (("solo", None), ("budget", "4")):
        assert node.admit(make_pod(uid, ("c", "2"), budget=budget)).admitted
    file = tmp_path / "memory_manager_state"
    file.write_bytes(node.files["memory_manager_state"])
    result = run("state", "convert", str(file), "--to", "v1")
    assert "pod budget: 17179869184 bytes of memory, no longer booked" in result.stderr
    older = msgspec.structs.replace(CONFIG, feature_gates={})
    assert Node(MEMORY_MACHINE, older, files={"memory_manager_state": result.stdout.strip().encode()})
    file.write_text(file.read_text().replace('"numberOfAssignments":1', '"numberOfAssignments":7'))
    assert run("state", "repair", str(file), "--write").returncode == 0
    assert file.read_bytes() == node.files["memory_manager_state"]
    assert "solo/c" in run("state", "show", str(file)).stdout
    assert "has no v3" in run("state", "convert", str(file), "--to", "v3").stderr
