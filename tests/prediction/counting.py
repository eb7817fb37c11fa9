"""A real kubelet whose scheduler counts claims with requests (gate DRANodeAllocatableResources)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.controlplane import ControlPlane, Settings
from e2e.programs import Programs
from tools.prediction.machine import Shape
from tools.prediction.node import NODE, OneNode, node_of

PODS = "/api/v1/namespaces/default/pods"
GATES = {"DRANodeAllocatableResources": True}
CONFIG: dict[str, Any] = {
    "featureGates": GATES,
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
}
"""Without CPU Manager a kubelet writes the CPUs of the machine that it sees into a real cgroup. What else runs here may
have taken all memory: nobody is evicted for that."""


@contextmanager
def counting_node(programs: Programs) -> Iterator[tuple[ControlPlane, OneNode, Path]]:
    """Two NUMA nodes of eight CPUs each, and a folder."""
    options = Settings(nodes=(NODE,), gates=GATES, api_server=("--disable-admission-plugins=ServiceAccount",))
    shape = Shape("two nodes", sockets=2, nodes=2, cores=4)
    with (
        tempfile.TemporaryDirectory(prefix="podslice-") as name,
        ControlPlane(programs, Path(name, "plane"), options) as plane,
        node_of(plane, programs, Path(name), shape) as node,
    ):
        node.kubelet.start(CONFIG)
        yield plane, node, Path(name)
