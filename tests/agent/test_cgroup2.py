"""Reading and writing cgroup v2, and finding the folder of a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from tests.agent.fakenode import FakeTree


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/kubepods/burstable/podx/abc", "kubepods/burstable/podx/abc"),
        (
            "kubepods-burstable-pod1_2.slice:cri-containerd:abc",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",
        ),
        ("system.slice:crio:abc", "system.slice/crio-abc.scope"),
        ("/kubepods.slice", "kubepods.slice"),
        ("kubepods-podx.slice", "kubepods.slice/kubepods-podx.slice"),
    ],
)
def test_paths_of_both_drivers(given: str, path: str) -> None:
    """cgroupfs paths and systemd triples lead to the same kind of folder."""
    assert cgroup_path(given) == path


@pytest.mark.parametrize(
    "given", ["", "/", "/a/../../etc", "../x", "a.scope:b:c", "-.slice/x:y:z", "a.slice:../../../etc/x:y"]
)
def test_paths_that_leave_the_root_are_refused(given: str) -> None:
    """No path of the runtime reaches a file outside the hierarchy."""
    assert cgroup_path(given) is None


def test_values_are_read(tmp_path: Path) -> None:
    """Sets, quota, limits, and what is missing."""
    fake = FakeTree(tmp_path / "cgroup")
    fake.add("a", cpuset_cpus="0-3", cpuset_mems="0-1", cpu_max="50000 100000", memory_max="1024")
    (tmp_path / "cgroup" / "a" / "cpuset.cpus.effective").write_text("0-2\n")
    tree = CgroupTree(tmp_path / "cgroup")
    values = tree.read("a")
    assert values is not None
    assert (values.cpus, values.cpus_effective, values.mems, values.mems_effective) == (15, 7, 3, None)
    assert (values.quota, values.period, values.memory_max) == (50000, 100000, 1024)
    assert tree.read("b") is None
    assert tree.usable
    assert not CgroupTree(tmp_path / "nowhere").usable


def test_values_are_written(tmp_path: Path) -> None:
    """Values are written in the form that the kernel's files take."""
    fake = FakeTree(tmp_path / "cgroup")
    fake.add("a", cpu_max="50000 100000")
    tree = CgroupTree(tmp_path / "cgroup")
    tree.write_cpus("a", 0b1011)
    tree.write_mems("a", 0b11)
    tree.write_quota("a", None, 100000)
    tree.write_memory_max("a", 4096)
    names = ("cpuset.cpus", "cpuset.mems", "cpu.max", "memory.max")
    assert [fake.text("a", name) for name in names] == ["0-1,3", "0-1", "max 100000", "4096"]
    with pytest.raises(OSError, match="No such file"):
        tree.write_cpus("gone", 1)


def test_walk_finds_every_cgroup(tmp_path: Path) -> None:
    """Depth first, in order of names, processes included."""
    fake = FakeTree(tmp_path / "cgroup")
    fake.add("b/c", procs="1\n22\n")
    fake.add("a")
    tree = CgroupTree(tmp_path / "cgroup")
    assert list(tree.walk()) == ["", "a", "b", "b/c"]
    assert tree.processes("b/c") == [1, 22]
