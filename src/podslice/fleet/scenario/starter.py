"""Starter scenarios: commented files with a small synthetic trace, so that they run as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from random import Random
from typing import Any

from podslice.fleet.engine.streams import draw_below, stream
from podslice.fleet.traces.trace import TraceNode, TracePod

KINDS = {
    "openb": "a list of nodes and pods with GPUs in the form of the trace openb, under four kubelet configurations",
    "compare": "what pod-level resources save: the same pods with sidecars, written in three ways",
    "capacity": "how many nodes a workload needs (podslice fleet plan)",
    "live": "a cluster as podslice fleet import finds it",
}
_GI = 1 << 30
_NODES = ((48, 96, 384, 8, "G2"), (32, 104, 512, 2, "T4"), (24, 96, 512, 0, ""), (16, 32, 128, 4, "V100M16"))
_PODS = (
    (26, 3152, 6, 1, 810),
    (20, 11300, 48, 1, 1000),
    (14, 11908, 46, 1, 470),
    (10, 12500, 56, 0, 0),
    (9, 8000, 30, 1, 470),
    (8, 32000, 48, 0, 0),
    (6, 18708, 63, 1, 1000),
    (4, 64000, 240, 8, 1000),
    (3, 23000, 96, 2, 1000),
)
"""Weight, millicores, GiB, GPUs and milli of each: chosen to resemble published traces."""
_COUNT = 700
_SECONDS = 90


def starter_files(kind: str) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the files of a starter, except its trace."""
    folder = files("podslice.fleet").joinpath("data", "starters", kind)
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        yield file.name, file.read_text(encoding="utf-8")


def sample_nodes() -> Iterator[TraceNode]:
    """Yield the nodes of the synthetic trace."""
    number = 0
    for count, cpus, memory, gpus, model in _NODES:
        for _ in range(count):
            yield TraceNode(f"node-{number:03}", cpus * 1000, memory * _GI, gpus, model)
            number += 1


def sample_pods() -> Iterator[TracePod]:
    """Yield the pods of the synthetic trace: they arrive over a day and run for some hours."""
    chance = stream(1, "sample")
    shapes = [shape for weight, *shape in _PODS for _ in range(weight)]
    arrival = 0
    for number in range(_COUNT):
        cpu, memory, gpus, milli = shapes[draw_below(chance, len(shapes))]
        arrival += draw_below(chance, 2 * _SECONDS) * 1000
        length = (1 + draw_below(chance, 12)) * 3_600_000
        yield TracePod(
            f"pod-{number:04}", cpu, memory * _GI, gpus, milli, qos=("LS", "BE")[draw_below(chance, 2)],
            arrival=arrival, end=arrival + length,
        )  # fmt: skip


def sample_cluster() -> tuple[str, str]:
    """Return a synthetic cluster as kubectl prints it: nodes and pods."""
    chance = stream(2, "sample")
    amounts = {"cpu": "64", "memory": f"{256 * _GI}", "pods": "110"}
    labels = {"feature.node.kubernetes.io/memory-numa": "true", "kubernetes.io/arch": "amd64"}
    nodes = [
        {
            "kind": "Node", "apiVersion": "v1", "metadata": {"name": f"worker-{number}", "labels": labels},
            "status": {"capacity": amounts, "allocatable": {**amounts, "cpu": "62", "memory": f"{254 * _GI}"}},
        }
        for number in range(8)
    ]  # fmt: skip
    pods = [_cluster_pod(number, chance) for number in range(90)]
    return _list(nodes), _list(pods)


def _cluster_pod(number: int, chance: Random) -> dict[str, Any]:
    cpus = (1, 2, 3, 5, 9)[draw_below(chance, 5)]
    resources = {"requests": {"cpu": str(cpus), "memory": f"{4 * cpus}Gi"}}
    resources["limits"] = resources["requests"]
    spec: dict[str, Any] = {"containers": [{"name": "app", "resources": resources}]}
    if number < 80:
        spec["nodeName"] = f"worker-{number % 8}"
    metadata = {"name": f"app-{number}", "namespace": "default", "ownerReferences": [{"kind": "ReplicaSet"}]}
    since = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    status = {"phase": "Running" if number < 80 else "Pending", "startTime": since}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}


def _list(items: list[dict[str, Any]]) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": items}, indent=1)
