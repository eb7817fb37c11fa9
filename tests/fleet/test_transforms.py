"""The cost of the same pod with its sidecars written in four ways (docs/development/fleet-engine.md)."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numpy", reason="simulations need numpy: pip install '.[fleet]'")

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.workload import Workload
from tests.fleet.fleets import fleet_class, fleet_of, shape_of_pod

MIB = 1 << 20
TWO_SOCKETS = "pack:2 numa:1(memory=512GiB) core:56 pu:2"
EIGHT_NUMA = "pack:2 numa:4(memory=128GiB) core:24 pu:2"
FORMS = ("burstable", "fractional", "padded", "pod-level")


def pod_with_sidecars(cpus: int, sidecar: int, form: str) -> Pod:
    """An app container of whole CPUs and two sidecars of so many milli-CPUs, written in one of the forms."""
    small: dict[str, Any] = {"cpu": f"{sidecar if form != 'padded' else 1000}m", "memory": "256Mi"}
    app = {"cpu": str(cpus), "memory": "1Gi"}
    resources: dict[str, Any] = {"burstable": {"requests": small}, "pod-level": {}}.get(
        form, {"requests": small, "limits": small}
    )
    spec: dict[str, Any] = {
        "containers": [{"name": "app", "resources": {"requests": app, "limits": app}}],
        "initContainers": [{"name": f"s{i}", "restartPolicy": "Always", "resources": resources} for i in range(2)],
    }
    if form == "pod-level":
        whole = {"cpu": str(cpus + -(-2 * sidecar // 1000)), "memory": "1536Mi"}
        spec["resources"] = {"requests": whole, "limits": whole}
    return pod_from_dict({"metadata": {"name": f"{form}-{cpus}", "uid": form}, "spec": spec})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "cpus", "sidecar", "pods"),
    [
        (TWO_SOCKETS, 3, 200, (65, 65, 44, 55)),
        (TWO_SOCKETS, 7, 200, (30, 30, 24, 27)),
        (TWO_SOCKETS, 15, 500, (13, 13, 12, 13)),
        (EIGHT_NUMA, 3, 200, (111, 111, 71, 95)),
        (EIGHT_NUMA, 7, 200, (51, 48, 39, 47)),
        (EIGHT_NUMA, 15, 500, (23, 23, 16, 23)),
    ],
)
def test_pods_on_one_node(machine: str, cpus: int, sidecar: int, pods: tuple[int, ...]) -> None:
    """So many pods fit on one node with single-numa-node, memory Static and scope `pod`."""
    found = []
    for form in FORMS:
        kind = fleet_class(
            machine,
            reserved_system_cpus="0-1" if machine == TWO_SOCKETS else "0-3",
            topology_manager_scope="pod",
            memory_manager_policy="Static",
            max_pods=500,
            feature_gates={"PodLevelResourceManagers": True},
        )
        shape = shape_of_pod(pod_with_sidecars(cpus, sidecar, form))
        workload = Workload.of([shape], [0] * 130, range(130))
        found.append(run_cell(fleet_of(1, kind), workload, CellOptions(retry="never"), 1).summary["bound"])
    assert tuple(found) == pods
