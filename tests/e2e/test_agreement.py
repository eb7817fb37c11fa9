"""The comparison of a node with what the agent says of it, on made-up nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from e2e.agreement import cgroup_owner, disagreements

Json = dict[str, Any]


def container(name: str, cpus: str, isolation: str, *, quota: str = "off") -> Json:
    return {
        "name": name, "id": f"id-{name}", "cpus": cpus, "memoryNodes": "0", "isolation": isolation, "quota": quota,
        "stranger": False,
    }  # fmt: skip


def group(cpus: str, quota: str = "max 100000") -> Json:
    processes = [{"pid": "7", "cpus": cpus, "mems": "0"}]
    return {"cpuset.cpus": cpus, "cpuset.mems": "0", "cpu.max": quota, "processes": processes}


STATUS: Json = {
    "pools": {"shared": "0,6-7", "reserved": "0", "exclusive": "1-5"},
    "pods": [
        {"name": "gu", "containers": [container("a", "1-2", "container")]},
        {
            "name": "level",
            "containers": [container("b", "3", "container"), container("c", "4-5", "pod", quota="on")],
        },
        {"name": "ngu", "containers": [container("d", "0,6-7", "host", quota="on")]},
    ],
}
CGROUPS: Json = {
    "/kubepods/pod1": group("", "max 100000") | {"processes": []},
    "/kubepods/pod1/id-a": group("1-2"),
    "/kubepods/pod2": group("", "300000 100000") | {"processes": []},
    "/kubepods/pod2/id-b": group("3"),
    "/kubepods/pod2/cri-containerd-id-c.scope": group("4-5", "200000 100000"),
    "/kubepods/besteffort/pod3": group("") | {"processes": []},
    "/kubepods/besteffort/pod3/id-d": group("0,6-7"),
}
RUNNING = {f"id-{name}": name for name in "abcd"}


def test_a_node_that_does_what_it_says() -> None:
    """A pod with its own shared CPUs keeps its quota; nothing is found."""
    assert disagreements(STATUS, CGROUPS, RUNNING) == []


CHANGES: dict[str, tuple[Callable[[Json, Json, Json], Any], str]] = {
    "another set": (
        lambda status, groups, running: groups["/kubepods/pod1/id-a"].update({"cpuset.cpus": "1-3"}),
        "gu/a: cpuset.cpus is '1-3', the status says 1-2",
    ),
    "a process elsewhere": (
        lambda status, groups, running: groups["/kubepods/pod2/id-b"]["processes"][0].update(mems="0-1"),
        "level/b: process 7 has mems 0-1, the status says 0",
    ),
    "a container with a quota": (
        lambda status, groups, running: groups["/kubepods/pod2/id-b"].update({"cpu.max": "100000 100000"}),
        "level/b: cpu.max is 100000 100000, the status says the quota is off",
    ),
    "a pod with a quota": (
        lambda status, groups, running: groups["/kubepods/pod1"].update({"cpu.max": "200000 100000"}),
        "the pod of gu/a: cpu.max is 200000 100000, the status says the quota is off",
    ),
    "not in the status": (
        lambda status, groups, running: running.update({"id-x": "x"}),
        "x runs and is not in the status",
    ),
    "no cgroup": (
        lambda status, groups, running: groups.pop("/kubepods/besteffort/pod3/id-d"),
        "ngu/d has no cgroup",
    ),
    "a stranger": (
        lambda status, groups, running: status["pods"][2]["containers"][0].update(stranger=True),
        "ngu/d is a stranger",
    ),
    "not the shared pool": (
        lambda status, groups, running: status["pools"].update(shared="0,7"),
        "ngu/d shares 0,6-7, the shared pool is 0,7",
    ),
    "owned twice": (
        lambda status, groups, running: status["pools"].update(reserved="0-1"),
        "gu/a owns 1-2, of which others have some",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_disagreement_is_a_line(what: str) -> None:
    """One thing is otherwise, and one line says what."""
    change, line = CHANGES[what]
    status, groups, running = copy.deepcopy((STATUS, CGROUPS, RUNNING))
    change(status, groups, running)
    assert disagreements(status, groups, running) == [line]


def test_a_pod_that_was_made_without_the_agent() -> None:
    """Of a pod that is known to be a stranger only the rest is looked at."""
    status, groups, running = copy.deepcopy((STATUS, CGROUPS, RUNNING))
    status["pods"][2]["containers"][0].update(stranger=True)
    assert disagreements(status, groups, running, {"ngu"}) == []
    groups.pop("/kubepods/besteffort/pod3/id-d")
    assert disagreements(status, groups, running, {"ngu"}) == ["ngu/d has no cgroup"]


def test_whose_cgroup_it_is() -> None:
    """Both cgroup drivers' names say it."""
    top = "/kubepods.slice/kubepods-burstable.slice"
    assert cgroup_owner("/kubepods/burstable/pod1-2/3f") == "3f"
    assert cgroup_owner("/kubepods/burstable/pod1-2") == "pod1-2"
    assert cgroup_owner(f"{top}/kubepods-burstable-pod1_2.slice") == "pod1-2"
    assert cgroup_owner(f"{top}/kubepods-burstable-pod1_2.slice/cri-containerd-3f.scope") == "3f"
