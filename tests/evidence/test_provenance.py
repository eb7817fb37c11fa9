"""The one line that says what an answer rests on, and the pods of a list that count."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.evidence.listed import find_node_name, sort_listed
from podslice.evidence.provenance import CountedPods, LeftOut, Origin, Provenance, from_agent, provenance_line
from podslice.machine.gallery import load_gallery
from podslice.values.assumption import Assumption


def pod(name: str, phase: str = "", node: str = "") -> Pod:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]} | ({"nodeName": node} if node else {})
    return pod_from_dict({"metadata": {"name": name, "namespace": "a"}, "spec": spec, "status": {"phase": phase}})


PODS = (
    pod("runs", "Running", "n7"),
    pod("starts", "Pending", "n7"),
    pod("waits", "Pending"),
    pod("written"),
    pod("done", "Succeeded", "n7"),
    pod("refused", "Failed", "n7"),
    pod("elsewhere", "Running", "n8"),
    pod("done-elsewhere", "Succeeded", "n8"),
)


@pytest.mark.parametrize(
    ("node", "running", "others"),
    [
        ("n7", {"runs", "starts", "written"}, ("a/elsewhere",)),
        ("n8", {"written", "elsewhere"}, ("a/runs", "a/starts")),
        ("", {"runs", "starts", "written", "elsewhere"}, ()),
    ],
)
def test_listed_pods_are_sorted(node: str, running: set[str], others: tuple[str, ...]) -> None:
    """Ended pods, those without a node yet and those of another node do not run here. A pod that the kubelet has but
    not started yet does, and so does one whose manifest has no status."""
    found = sort_listed(PODS, node)
    assert {one.metadata.name for one in found.running} == running
    assert {one.metadata.name for one in found.ended} == {"done", "refused", "done-elsewhere"}
    assert {one.reason: one.pods for one in found.left_out}.get("other-node", ()) == others
    assert {one.reason: one.pods for one in found.left_out}["pending"] == ("a/waits",)
    assert len(found.running) + sum(len(one.pods) for one in found.left_out) == len(PODS)


@pytest.mark.parametrize(
    ("asked", "machine", "name"),
    [
        ([pod("p", node="n8")], "n7", "n8"),
        ([pod("p")], "n7", "n7"),
        ([pod("p", node="n7"), pod("q", node="n8")], "xeon-6338-2s", ""),
        ([], "xeon-6338-2s", ""),
    ],
)
def test_the_node_of_an_answer(asked: list[Pod], machine: str, name: str) -> None:
    """The pods asked about say it, else the machine where pods of it are listed; the name of a kind of machine does
    not."""
    assert find_node_name(asked, machine, PODS) == name


def test_everything_is_in_the_line() -> None:
    """Machine and configuration with their sources, release, pods and assumptions; long lists of pods are cut."""
    text = provenance_line(
        Provenance(
            machine=Origin("n7, 96 CPUs, 2 NUMA nodes", "--from node.yaml", ("memory from numactl.txt",)),
            configuration=Origin("CPU manager static", "--config k.yaml"),
            profile="kubelet-1.36",
            state="/state",
            pods=CountedPods(1, (LeftOut("ended", ("a/1", "a/2", "a/3", "a/4")), LeftOut("other-node", ("b/1",)))),
            assumptions=(Assumption("nodes", "one NUMA node"), Assumption("cpus", "two threads in each core")),
        )
    )
    assert text == (
        "Machine: n7, 96 CPUs, 2 NUMA nodes (--from node.yaml; memory from numactl.txt) · "
        "configuration: CPU manager static (--config k.yaml) · Kubernetes 1.36, profile kubelet-1.36 · "
        "1 running pod counted, left out: 4 ended (a/1, a/2, a/3 …), 1 of other nodes (b/1) · state files of /state · "
        "assumed: one NUMA node; two threads in each core"
    )


def test_nothing_is_known() -> None:
    """An answer about pods alone says that it is about no node."""
    assert provenance_line(Provenance()) == "No machine and no configuration is given · Kubernetes 1.36"


def test_a_node_of_an_agent() -> None:
    """Machine and configuration of a live node come from its agent."""
    machine = load_gallery("xeon-6338-2s")
    text = provenance_line(
        from_agent(machine, KubeletConfig(cpu_manager_policy="static"), 3, "the agent of n7", "podslice-1.34")
    )
    assert text.startswith("Machine: xeon-6338-2s, 128 CPUs, 2 NUMA nodes (the agent of n7) · ")
    assert "CPU manager static, Topology manager none (the agent of n7)" in text
    assert "3 running pods counted" in text
