"""`podslice state migrate`: adapts files to a changed machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice import Hotplug, InputError, KubeletConfig, Node, PodslicePolicy, without_cpus
from podslice.host.machine_files import dump_machine
from podslice.machine.readers.synthetic import from_synthetic
from tests.cli.test_state import _run
from tests.node.resize.helpers import guaranteed, pod
from tests.read_documents import read_document

BEFORE = "pack:1 numa:1(memory=64GiB) core:8 pu:2(indexes=pu)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """a has 2-5."""
    node = Node(from_synthetic(BEFORE), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1"))
    assert node.admit(pod(guaranteed("4", "1Gi"), name="a")).admitted
    for name, data in node.manager_files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def renumber(folder: Path) -> Path:
    """The same hardware; second threads come after all first ones."""
    machine = from_synthetic(BEFORE)
    (node,) = machine.nodes
    cores = tuple(replace(core, threads=tuple(cpu // 2 + 8 * (cpu % 2) for cpu in core.threads)) for core in node.cores)
    file = folder / "after.yaml"
    file.write_text(dump_machine(replace(machine, nodes=(replace(node, cores=cores),)), "yaml"))
    return file


def test_renumbered(folder: Path) -> None:
    """All owners keep their cores under the new numbers; `--write` keeps the old file, and a second look finds nothing
    to do."""
    after, old = renumber(folder), (folder / "cpu_manager_state").read_bytes()
    words = ("migrate", folder, "--before", BEFORE, "--after", after)
    result = _run(*words)
    assert result.exit_code == 0
    assert "entries.uid-a.c0: 2-5 becomes 1-2,9-10" in result.output
    assert (folder / "cpu_manager_state").read_bytes() == old
    document = read_document(_run(*words, "--write", "-o", "json").output, "StateMigration")
    assert (document["outcome"], document["written"], document["lost"]) == ("renumbered", True, [])
    assert document["aside"] == ["cpu_manager_state.before-reboot"]
    assert (folder / "cpu_manager_state.before-reboot").read_bytes() == old
    assert '"c0":"1-2,9-10"' in (folder / "cpu_manager_state").read_text()
    assert _run("migrate", folder, "--before", after, "--after", after).output.startswith("unchanged")


def test_nothing_assigned_yet(folder: Path) -> None:
    """A file without any CPU, as a repair without a machine writes it, stays: a kubelet fills it in when it starts."""
    after = renumber(folder)
    (folder / "cpu_manager_state").write_text("garbage")
    assert _run("repair", folder / "cpu_manager_state", "--write").exit_code == 0
    assert _run("migrate", folder, "--before", BEFORE, "--after", after).output.startswith("unchanged")
    assert _run("verify", folder / "cpu_manager_state", "--from", after).exit_code == 0


def test_lost(folder: Path) -> None:
    """Where an owner's CPU is gone, the output lists what each owner loses, with exit code 1; `--write` renames the
    files."""
    after = folder / "after.yaml"
    after.write_text(dump_machine(without_cpus(from_synthetic(BEFORE), 1 << 5), "yaml"))
    words = ("migrate", folder, "--before", BEFORE, "--after", after)
    result = _run(*words)
    assert result.exit_code == 1
    assert "CPUs 5 of 2-5 are not there any more" in result.output
    assert "lost entries.uid-a.c0: CPUs 2-5" in result.output
    assert (folder / "cpu_manager_state").exists()
    assert _run(*words, "--write").exit_code == 0
    assert not (folder / "cpu_manager_state").exists()
    assert (folder / "cpu_manager_state.before-reboot").exists()


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    """A machine, an amount or a folder that is none is said with its option."""
    for words, text in (
        (("--before", "no such", "--after", BEFORE), "--before"),
        (("--before", BEFORE, "--after", BEFORE, "--drift-tolerance", "much"), "--drift-tolerance"),
        (("--before", BEFORE, "--after", BEFORE, "--drift-tolerance", "auto"), "auto is for the machine itself"),
    ):
        with pytest.raises(InputError, match=text):
            _run("migrate", folder, *words)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no state file"):
        _run("migrate", tmp_path / "empty", "--before", BEFORE, "--after", BEFORE)


def test_verify_and_repair_an_owner_of_offline_cpus(folder: Path) -> None:
    """`verify` names who owns CPUs that are offline, and that a kubelet would not start; `repair` writes the files
    without them."""
    machine = folder / "now.yaml"
    machine.write_text(dump_machine(without_cpus(from_synthetic(BEFORE), 1 << 5), "yaml"))
    options = ("--from", machine, "--reserved-cpus", "0-1")
    found = _run("verify", folder / "cpu_manager_state", *options)
    assert found.exit_code == 1
    assert "warning degraded: entries.uid-a.c0: CPUs 5 are offline" in found.output
    assert "does not start" in found.output
    assert "unknown-cpus" not in found.output
    assert "CPUs 5 are offline; written without them" in _run("repair", folder, *options, "--write").output
    assert _run("verify", folder / "cpu_manager_state", *options).exit_code == 0
    assert '"c0":"2-4"' in (folder / "cpu_manager_state").read_text()


def test_a_node_takes_what_was_migrated(folder: Path) -> None:
    """The files are those a node on the new machine starts with."""
    after = renumber(folder)
    _run("migrate", folder, "--before", BEFORE, "--after", after, "--write")
    from podslice import load_machine

    files = {"cpu_manager_state": (folder / "cpu_manager_state").read_bytes()}
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0,8")
    node = Node(load_machine(after), config, files=files, policy=PodslicePolicy(hotplug=Hotplug()))
    assert not node.readmit([pod(guaranteed("4", "1Gi"), name="a")])
    assert str(node.shared_cpus) == "0,3-8,11-15"
