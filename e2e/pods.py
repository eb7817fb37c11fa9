"""Pods of the scenarios, as manifests."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
MEMORY = "32Mi"
DEVICE = "example.com/device"


def gu(name: str, cpu: int | str, memory: str = MEMORY, *, sidecar: bool = False, devices: int = 0) -> Json:
    """A container whose requests equal its limits."""
    amounts = {"cpu": str(cpu), "memory": memory, **({DEVICE: str(devices)} if devices else {})}
    return _container(name, {"requests": amounts, "limits": amounts}, sidecar)


def ngu(name: str, *, sidecar: bool = False, **resources: Json) -> Json:
    """A container without resources, or with other ones."""
    return _container(name, resources, sidecar)


def burstable(name: str, cpu: str = "500m", limit: str = "1", memory: str = MEMORY) -> Json:
    """A container whose limit is above its request."""
    return _container(
        name, {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": limit, "memory": "64Mi"}}, False
    )


def _container(name: str, resources: Json, sidecar: bool) -> Json:
    return {"name": name, "resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


def pod(
    name: str,
    *containers: Json,
    init: tuple[Json, ...] = (),
    budget: tuple[Any, str] | None = None,
    limit: Any = None,
    annotations: Json | None = None,
) -> Json:
    """A pod; `budget` is its own CPUs and memory, `limit` other limits than those requests."""
    spec: Json = {"containers": list(containers)}
    if init:
        spec["initContainers"] = list(init)
    if budget is not None:
        requests = {"cpu": str(budget[0]), "memory": budget[1]}
        limits = requests if limit is None else {"cpu": str(limit[0]), "memory": limit[1]}
        spec["resources"] = {"requests": requests, "limits": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations or {}},
        "spec": spec,
    }
