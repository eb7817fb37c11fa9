"""The real kubelet that predictions are compared with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from e2e.programs import Programs
from tools.prediction.__main__ import main
from tools.prediction.configurations import NAMED
from tools.prediction.kubelet import KubeletEndedError, last_error
from tools.prediction.machine import Shape, write
from tools.prediction.node import OneNode
from tools.prediction.runtime import EXITED

from podslice import load_machine

STATIC: dict[str, Any] = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}


def pod(name: str, cpus: str) -> dict[str, Any]:
    limits = {"cpu": cpus, "memory": "64Mi"}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "app", "image": "x", "resources": {"limits": limits}}]},
    }


@pytest.mark.slow
def test_a_kubelet_decides_on_the_machine_it_is_shown(node: OneNode) -> None:
    """A real kubelet manages sixteen CPUs that this machine does not have: it gives a pod its CPUs, refuses one that is
    too large, keeps the first over a restart, and does not start with other reserved CPUs."""
    node.kubelet.start(STATIC)
    assert json.loads(node.kubelet.file("cpu_manager_state"))["defaultCpuSet"] == "0-15"
    node.create(pod("fits", "2"))
    uid = node.wait_for_decision("fits")["metadata"]["uid"]
    assert [own.resources.cpuset_cpus for own in node.runtime.of_pod(uid)] == ["1,9"]
    node.create(pod("large", "16"))
    status = node.wait_for_decision("large")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    before = node.kubelet.file("cpu_manager_state")
    node.kubelet.stop(kill=True)
    node.kubelet.start(STATIC)
    assert node.wait_for_decision("fits")["status"]["phase"] == "Running"
    assert node.kubelet.file("cpu_manager_state") == before
    node.kubelet.stop()
    with pytest.raises(KubeletEndedError, match=r'not all reserved cpus: "0-1" are present in defaultCpuSet'):
        node.kubelet.start({**STATIC, "reservedSystemCPUs": "0,1"})
    node.kubelet.start(STATIC)
    node.delete("fits")
    assert [own.state for own in node.runtime.of_pod(uid)] in ([], [EXITED])


@pytest.mark.slow
def test_a_resize_is_answered(node: OneNode) -> None:
    """A kubelet with static CPUs says that it cannot resize a Guaranteed pod, until the pod is content again."""
    node.kubelet.start(STATIC)
    node.create(pod("fits", "2"))
    before = node.wait_for_decision("fits")["spec"]["containers"]
    limits = {"cpu": "3", "memory": "64Mi"}
    found = node.resize("fits", {"containers": [{"name": "app", "resources": {"limits": limits, "requests": limits}}]})
    pending = [own for own in found["status"]["conditions"] if own["type"] == "PodResizePending"]
    assert [(own["reason"], own["message"]) for own in pending] == [
        ("Infeasible", 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"')
    ]
    again = node.resize("fits", {"containers": before})
    assert "PodResizePending" not in {own["type"] for own in again["status"]["conditions"]}


@pytest.mark.slow
def test_a_kubelet_without_managers_carries_a_resize_out(programs: Programs) -> None:
    """The runtime is told step by step what podslice's plan says, the cgroup has the new values, and both records and
    events are those that were predicted: for a container, for a whole pod, and for one that is to be restarted."""
    done = CliRunner().invoke(
        main,
        ["--seed", "7", "--pods", "3", "--first", str(len(NAMED)), "--configurations", "1"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    for counted in ("resizes carried out", "messages about resizes", "events about resizes"):
        assert re.search(rf"[1-9]\d* {counted}", done.output), done.output


def test_a_machine_that_is_written_reads_as_it_was_meant(tmp_path: Path) -> None:
    """podslice finds in the written files the sockets, NUMA nodes, cores, caches, memory and huge pages of a shape."""
    write(Shape("four nodes", sockets=2, nodes=4, cores=4, mib=1024, huge_pages=8, caches=2), tmp_path)
    machine = load_machine(str(tmp_path))
    assert (machine.cpu_count, machine.socket_count, machine.memory_capacity) == (32, 2, 4 << 30)
    second = machine.nodes[1]
    assert [tuple(sorted(core.threads)) for core in second.cores] == [(4, 20), (5, 21), (6, 22), (7, 23)]
    assert {core.socket for core in second.cores} == {0}
    assert second.memory == 1 << 30
    assert [(pages.page_size_ki, pages.num_pages) for pages in second.hugepages] == [(2048, 8)]
    assert second.distances == (12, 10, 21, 21)


def test_the_error_that_a_kubelet_ends_with_is_found_in_its_log() -> None:
    """It is the text and the error of the last line about an error, without the quotes of the log."""
    log = (
        'E1122 06:23:57.200978   15410 a.go:1] "An earlier one"\n'
        'E1122 06:23:57.203702   15410 k.go:2] "Failed to start" err="not all cpus: \\"0-1\\" are here"\n'
        'I1122 06:23:57.203702   15410 k.go:3] "Bye"\n'
    )
    assert last_error(log) == 'Failed to start: not all cpus: "0-1" are here'
    assert last_error("") == "it said nothing"
