"""A real kubelet with its own managers, observed: what the service and kube-scheduler send there it takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from e2e.programs import Programs
from e2e.scheduling import eventually, pod

from tests.prediction.kubelets import ALONE, OURS, Kubelets, gone, playing, state

pytestmark = pytest.mark.timeout(900)


def scene(found: Kubelets) -> None:
    pods = found.pods

    def runs(name: str, cpus: str, scheduler: str = OURS) -> None:
        pods.create(pod(name, scheduler, cpus=cpus))
        eventually(lambda: state(pods, name) == "Running", f"{name} does not run")

    runs("first", "5")
    runs("second", "5")
    pods.create(pod("third", OURS, cpus="5"))
    text = "0/1 nodes are available: 1 no NUMA node has 5 exclusive CPUs free."
    eventually(lambda: text in pods.unscheduled("third").get("message", ""), "nobody says why it waits")
    runs("small", "3")
    gone(pods, "first")
    eventually(lambda: state(pods, "third") == "Running", "there is room, and it does not run")
    eventually(lambda: found.has("podslice_cluster_holds 0.0"), "something is still held")
    for fate in ("disputed", "refused"):
        assert found.has(f'podslice_cluster_placements_total{{fate="{fate}"}} 0.0')
    gone(pods, "small")
    pods.create(pod("blind", ALONE, cpus="5"))
    eventually(lambda: state(pods, "blind") == "TopologyAffinityError", "the kubelet does not refuse it")


@pytest.mark.slow
def test_a_kubelet_takes_what_it_is_sent(programs: Programs) -> None:
    """Two pods of 5 CPUs leave 2 and 3 on two NUMA nodes: a third waits and is told why, one of 3 runs, and the third
    runs once there is room. Nothing is refused or disputed. The scheduler alone sends the same pod there, which the
    kubelet refuses."""
    with tempfile.TemporaryDirectory(prefix="podslice-") as folder:
        playing(programs, Path(folder), ("k0",), scene)
