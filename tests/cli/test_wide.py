"""`-o wide`: what an operator asks for next, without reading JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice import KubeletConfig, Node
from podslice.machine.readers.synthetic import from_synthetic
from podslice.status.command import show_status
from podslice.status.status import AgentStatus, ContainerReport, PodReport
from tests.conftest import make_pod
from tests.shell import podslice as run


@pytest.mark.slow
def test_state_files_show_version_and_checksums(tmp_path: Path) -> None:
    """`state show` and `verify` print size, version, the stated checksum and what formats would need; not otherwise."""
    node = Node(from_synthetic("core:8 pu:1"), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    node.admit(make_pod("a", ("c", "2")))
    data = node.files["cpu_manager_state"]
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(data)
    for command in ("show", "verify"):
        wide, short = run("state", command, str(path), "-o", "wide"), run("state", command, str(path))
        assert wide.returncode == short.returncode == 0
        heading = next(line for line in wide.stdout.splitlines() if line.startswith("KIND"))
        assert heading.split() == ["KIND", "VERSION", "BYTES", "CHECKSUM", "IT", "WOULD", "NEED"]
        row = wide.stdout.splitlines()[wide.stdout.splitlines().index(heading) + 1].split()
        assert row[0] == "cpu"
        assert row[2] == str(len(data))
        assert f'"checksum":{row[3]}' in data.decode()
        assert "CHECKSUM" not in short.stdout


def test_findings_are_rows(tmp_path: Path) -> None:
    """`lint -o wide` has one row for a finding, with place, rule, name, field and fix."""
    path = tmp_path / "pod.yaml"
    container = "{name: c, image: i, resources: {limit: {cpu: 1}}}"
    path.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{container}]}}\n")
    result = run("lint", str(path), "-o", "wide")
    assert result.returncode == 1
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == ["PLACE", "SEVERITY", "RULE", "NAME", "OBJECT", "FIELD", "MESSAGE", "FIX"]
    row = next(line for line in rows if " PS002 " in line)
    assert row.startswith(f"{path}:4:")
    assert " spec.containers[0].resources.limit " in row


def test_inspect_names_fields_and_cgroups() -> None:
    """`inspect -o wide` names the field of each amount and the cgroup of each container."""
    result = run("inspect", "examples/small.yaml", "-o", "wide")
    assert "FIELD" in result.stdout
    assert "/kubepods.slice/kubepods-pod<uid>.slice/<app>" in result.stdout
    assert "(64Mi)" in result.stdout


def test_status_names_cgroups(capsys: pytest.CaptureFixture[str]) -> None:
    """`status -o wide` has the pod's UID, the container's id and its cgroup."""
    path = "kubepods.slice:cri-containerd:abc"
    container = ContainerReport("c", "abc", "2-3", "0", "cpuset", "off", stranger=False, cgroup_path=path)
    pod = PodReport("default", "p", "u-1", admitted=True, refused=False, containers=(container,))
    status = AgentStatus(
        node="n", machine="m", runtime="r", connected=True, observe=False, started_at=0.0, ready="", safe_mode="",
        pools=None, pods=(pod,), drift=(), map="",
    )  # fmt: skip
    show_status(status, "wide", show_map=False)
    wide = capsys.readouterr().out
    assert wide.splitlines()[-1].split()[-3:] == ["u-1", "abc", path]
    show_status(status, "table", show_map=False)
    assert "abc" not in capsys.readouterr().out
