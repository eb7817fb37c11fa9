"""Pods and nodes for tests about resizes."""

from __future__ import annotations

from random import Random
from typing import Any

from podslice import Node, StartError
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.values.gates import FeatureGates
from tests.node.resize.histories import draw_pod, draw_setting

GATES = FeatureGates.from_overrides({})


def resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts is not None}


def pod(
    *containers: dict[str, Any],
    name: str = "p",
    init: list[dict[str, Any]] | None = None,
    pod_level: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    generation: int = 1,
    **spec: Any,
) -> Pod:
    """A defaulted pod; containers are dicts as in a manifest, named c0, c1, … where they have no name."""
    named = [{"name": f"c{index}", "image": "busybox", **one} for index, one in enumerate(containers)]
    data = {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}", "generation": generation,
            "annotations": annotations,
        },
        "spec": {"containers": named, "initContainers": init, "resources": pod_level, **spec},
        "status": {"phase": "Running"},
    }  # fmt: skip
    return default_pod(pod_from_dict(data), GATES)


def guaranteed(cpu: str, memory: str, **fields: Any) -> dict[str, Any]:
    """A container whose requests are its limits."""
    amounts = {"cpu": cpu, "memory": memory}
    return {"resources": resources(dict(amounts), dict(amounts)), **fields}


def burstable(cpu: str, memory: str = "64Mi", **fields: Any) -> dict[str, Any]:
    """A container with requests only."""
    return {"resources": resources({"cpu": cpu, "memory": memory}), **fields}


def drawn_node(random: Random, pods: int) -> Node | None:
    """A random node with so many random pods asked for; None where a kubelet would not start."""
    setting = draw_setting(random)
    try:
        here = Node(setting.machine, setting.config, predicates=setting.predicates, policy=setting.policy)
    except StartError:
        return None
    for number in range(pods):
        here.admit(draw_pod(random, f"p{number}", huge=False))
    return here
