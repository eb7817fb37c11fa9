"""Nodes and pods with mixed containers, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from podslice import KubeletConfig, Node, PodslicePolicy, pod_from_dict
from podslice.api.pod.spec import Pod
from podslice.config.policy import NO_POLICY, ExclusiveResize, MixedCPUs
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import format_bits

TWO_NODES = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)"
"""CPUs 0-15 and 16-31; 0-1, 2-3, … are cores."""


USUAL = MixedCPUs()


def node(
    mixed: MixedCPUs | None = USUAL,
    *,
    machine: str = TWO_NODES,
    policy: PodslicePolicy = NO_POLICY,
    files: Mapping[str, bytes] | None = None,
    **settings: Any,
) -> Node:
    """CPUs 0 and 1 reserved, best-effort."""
    given = {"reserved_system_cpus": "0-1", "topology_manager_policy": "best-effort", **settings}
    config = KubeletConfig(cpu_manager_policy="static", **given)
    return Node(from_synthetic(machine), config, policy=replace(policy, mixed=mixed), files=files)


ELASTIC = PodslicePolicy(resize=ExclusiveResize(exclusive=True))


def pod(name: str, *cpus: str, asks: str = "", budget: str = "", init: tuple[tuple[str, bool], ...] = ()) -> Pod:
    """Guaranteed containers c0, c1, … with so many CPUs each, `init` containers i0, … with CPUs, sidecars where it says
    so; empty CPUs: no resources. `asks` is the annotation, `budget` pod-level CPUs."""
    spec: dict[str, Any] = {
        "containers": [{"name": f"c{place}", "resources": _resources(one)} for place, one in enumerate(cpus)],
        "initContainers": [
            {"name": f"i{place}", "resources": _resources(one)} | ({"restartPolicy": "Always"} if sidecar else {})
            for place, (one, sidecar) in enumerate(init)
        ],
    }
    if budget:
        spec["resources"] = _resources(budget, "8Gi")
    annotations = {"podslice.io/mixed-cpus": asks} if asks else {}
    return pod_from_dict({"metadata": {"name": name, "uid": name, "annotations": annotations}, "spec": spec})


def _resources(cpu: str, memory: str = "64Mi") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": amounts} if cpu else {}


def runs_on(of: Node, uid: str, container: str = "c0") -> str:
    """Return the CPUs that a container runs on now."""
    return format_bits(of.view.affinity(uid, container))


def owns(of: Node, uid: str, container: str = "c0") -> str:
    """Return the CPUs that a container owns."""
    return format_bits(of.view.assignment(uid, container) or 0)
