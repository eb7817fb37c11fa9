"""Containers that a webhook adds to pods: service meshes, secret agents, file systems. Names of containers and
annotations are those of each project's documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.api.pod.spec import Pod

_ON = ("true", "enabled", "ingress")


class Injector(NamedTuple):
    """A program that adds containers. `request` is the label or annotation by which a pod asks for it; `settings` maps
    a resource to the annotations that set its request and its limit, in this order; empty where there are none."""

    title: str
    containers: tuple[str, ...]
    request: str = ""
    settings: Mapping[str, tuple[str, str]] = {}


def _pairs(prefix: str, cpu: tuple[str, str], memory: tuple[str, str]) -> dict[str, tuple[str, str]]:
    return {"cpu": (prefix + cpu[0], prefix + cpu[1]), "memory": (prefix + memory[0], prefix + memory[1])}


INJECTORS = (
    Injector(
        "Istio",
        ("istio-proxy", "istio-init", "istio-validation"),
        "sidecar.istio.io/inject",
        _pairs("sidecar.istio.io/", ("proxyCPU", "proxyCPULimit"), ("proxyMemory", "proxyMemoryLimit")),
    ),
    Injector(
        "Linkerd",
        ("linkerd-proxy", "linkerd-init", "linkerd-network-validator"),
        "linkerd.io/inject",
        _pairs(
            "config.linkerd.io/",
            ("proxy-cpu-request", "proxy-cpu-limit"),
            ("proxy-memory-request", "proxy-memory-limit"),
        ),
    ),
    Injector(
        "Vault",
        ("vault-agent", "vault-agent-init"),
        "vault.hashicorp.com/agent-inject",
        _pairs(
            "vault.hashicorp.com/",
            ("agent-requests-cpu", "agent-limits-cpu"),
            ("agent-requests-mem", "agent-limits-mem"),
        ),
    ),
    Injector(
        "Dapr",
        ("daprd",),
        "dapr.io/enabled",
        _pairs(
            "dapr.io/",
            ("sidecar-cpu-request", "sidecar-cpu-limit"),
            ("sidecar-memory-request", "sidecar-memory-limit"),
        ),
    ),
    Injector(
        "Consul",
        ("consul-dataplane", "consul-connect-inject-init"),
        "consul.hashicorp.com/connect-inject",
        _pairs(
            "consul.hashicorp.com/",
            ("sidecar-proxy-cpu-request", "sidecar-proxy-cpu-limit"),
            ("sidecar-proxy-memory-request", "sidecar-proxy-memory-limit"),
        ),
    ),
    Injector(
        "GKE's Cloud Storage FUSE driver",
        ("gke-gcsfuse-sidecar", "gke-gcsfuse-metadata-prefetch"),
        "gke-gcsfuse/volumes",
        _pairs("gke-gcsfuse/", ("cpu-request", "cpu-limit"), ("memory-request", "memory-limit")),
    ),
    Injector("Kuma", ("kuma-sidecar", "kuma-init"), "kuma.io/sidecar-injection"),
    Injector("the OpenTelemetry operator", ("otc-container",)),
)


def injector_of(container: str) -> Injector | None:
    """Return the program that adds containers of this name."""
    return next((one for one in INJECTORS if container in one.containers), None)


def expected_injectors(pod: Pod) -> tuple[Injector, ...]:
    """Return the programs that a pod asks to add containers, and that have not added any yet."""
    marks = {**(pod.metadata.labels or {}), **(pod.metadata.annotations or {})}
    present = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    return tuple(one for one in INJECTORS if marks.get(one.request) in _ON and not present & {*one.containers})
