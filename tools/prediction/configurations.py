"""The configurations to try: each Topology Manager policy and scope, each CPU Manager option, gates on and off."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import msgspec

from tools.judge.kubelets import change_kubelet, draw_kubelet
from tools.prediction.machine import Shape

Json = dict[str, Any]
_GIB_OF_MIB = 1024
_MIB = 64 * _GIB_OF_MIB
TWO = Shape("2 sockets, 2 nodes, 16 CPUs", sockets=2, nodes=2, cores=4, mib=_MIB)
FOUR = Shape("2 sockets, 4 nodes, 32 CPUs", sockets=2, nodes=4, cores=4, mib=_MIB)
CACHES = Shape("2 nodes, 4 caches, 32 CPUs", sockets=2, nodes=2, cores=8, mib=_MIB, caches=2)
PAGES = Shape("2 nodes, 16 CPUs, huge pages", sockets=1, nodes=2, cores=4, mib=_MIB, huge_pages=512)
SINGLE_THREADS = Shape("3 nodes, 18 CPUs, no SMT", sockets=3, nodes=3, cores=6, threads=1, mib=_MIB)
TINY = Shape("2 nodes, 2 CPUs", sockets=1, nodes=2, cores=1, threads=1, mib=16 * _GIB_OF_MIB)
"""No more CPUs than any machine has: without a CPU Manager a kubelet writes all of them into a cgroup."""
SHAPES = (TWO, FOUR, CACHES, PAGES, SINGLE_THREADS)


class Configuration(msgspec.Struct, frozen=True):
    """A machine and a kubelet's configuration on it. `resizes`: the pods are there to be resized. `devices` of plugins,
    as `podslice.machine.devices.inventory_from_data` takes them."""

    name: str
    shape: Shape
    kubelet: Json
    resizes: bool = False
    devices: tuple[Json, ...] = ()


def _of(
    name: str,
    shape: Shape,
    policy: str,
    scope: str,
    *,
    options: tuple[str, ...] = (),
    gates: Json | None = None,
    **more: Any,
) -> Configuration:
    """Make a configuration: static managers with one CPU reserved, memory on the first and the last node, pod-level
    gates."""
    kubelet: Json = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "memoryManagerPolicy": "Static",
        "systemReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
            {"numaNode": shape.nodes - 1, "limits": {"memory": "100Mi"}},
        ],
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "featureGates": {"PodLevelResourceManagers": True, **(gates or {})},
    }
    if options:
        kubelet["cpuManagerPolicyOptions"] = dict.fromkeys(options, "true")
    return Configuration(name, shape, kubelet | more)


_ALPHA = {"CPUManagerPolicyAlphaOptions": True}
NAMED = (
    _of("none", TWO, "none", "container"),
    _of("best-effort, container", TWO, "best-effort", "container"),
    _of("best-effort, pod", FOUR, "best-effort", "pod"),
    _of("restricted, container", FOUR, "restricted", "container"),
    _of("restricted, pod", TWO, "restricted", "pod"),
    _of("single-numa-node, container", TWO, "single-numa-node", "container"),
    _of("single-numa-node, pod", FOUR, "single-numa-node", "pod"),
    _of("huge pages", PAGES, "restricted", "container"),
    _of("huge pages, pod", PAGES, "single-numa-node", "pod"),
    _of("no SMT", SINGLE_THREADS, "best-effort", "container"),
    _of("full-pcpus-only", CACHES, "best-effort", "container", options=("full-pcpus-only",), reservedSystemCPUs="0,16"),
    _of("full-pcpus-only, pod", TWO, "single-numa-node", "pod", options=("full-pcpus-only",), reservedSystemCPUs="0,8"),
    _of("distribute-cpus-across-numa", FOUR, "none", "container", options=("distribute-cpus-across-numa",)),
    _of("distribute-cpus-across-cores", TWO, "restricted", "pod", options=("distribute-cpus-across-cores",),
        gates=_ALPHA),
    _of("align-by-socket", FOUR, "best-effort", "container", options=("align-by-socket",), gates=_ALPHA),
    _of("strict-cpu-reservation", TWO, "restricted", "pod", options=("strict-cpu-reservation",)),
    _of("uncore caches", CACHES, "restricted", "container", options=("prefer-align-cpus-by-uncorecache",)),
    _of("closest nodes", FOUR, "best-effort", "pod",
        topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}),
    _of("quota kept", TWO, "restricted", "container", gates={"DisableCPUQuotaWithExclusiveCPUs": False}),
    _of("managers leave pod level alone", TWO, "restricted", "container", gates={"PodLevelResourceManagers": False}),
)  # fmt: skip

_EXCLUSIVE = {"InPlacePodVerticalScalingExclusiveCPUs": True, "InPlacePodVerticalScalingExclusiveMemory": True}
RESIZING = (
    Configuration("resizes without managers", TINY, {}, resizes=True),
    Configuration("resizes without quota", TINY, {"cpuCFSQuota": False}, resizes=True),
    msgspec.structs.replace(_of("resizes", TWO, "none", "container"), resizes=True),
    msgspec.structs.replace(_of("resizes, pod", FOUR, "restricted", "pod"), resizes=True),
    msgspec.structs.replace(_of("exclusive resizes", TWO, "best-effort", "container", gates=_EXCLUSIVE), resizes=True),
    msgspec.structs.replace(_of("exclusive resizes, pod", FOUR, "restricted", "pod", gates=_EXCLUSIVE), resizes=True),
)
_DEVICES: tuple[Json, ...] = (
    {"resource": "example.com/gpu", "devices": [
        {"id": "gpu0", "numa": [0]}, {"id": "gpu1", "numa": [0]}, {"id": "gpu2", "numa": [1]},
        {"id": "gpu3", "numa": [1]}, {"id": "gpu4", "numa": [1], "health": "Unhealthy"}]},
    {"resource": "example.com/nic", "devices": [
        {"id": "nic0", "numa": [0]}, {"id": "nic1", "numa": [0, 1]}, {"id": "nic2", "numa": [1]}]},
    {"resource": "example.com/license", "devices": [{"id": "one"}, {"id": "two"}]},
)  # fmt: skip
WITH_DEVICES = (
    msgspec.structs.replace(_of("devices", TWO, "none", "container"), devices=_DEVICES),
    msgspec.structs.replace(_of("devices, best-effort", TWO, "best-effort", "container"), devices=_DEVICES),
    msgspec.structs.replace(_of("devices, restricted, pod", TWO, "restricted", "pod"), devices=_DEVICES),
    msgspec.structs.replace(_of("devices, single-numa-node", FOUR, "single-numa-node", "container"), devices=_DEVICES),
)
ALL = (*NAMED, *RESIZING, *WITH_DEVICES)


def configuration(r: Random, number: int) -> Configuration:
    """Return the configuration of this number: first the named ones, then drawn ones."""
    if number < len(ALL):
        return ALL[number]
    shape = r.choice(SHAPES)
    return Configuration(f"drawn {number}", shape, _with_manager(draw_kubelet(r, machine_of(shape))))


def change_configuration(r: Random, configuration: Configuration, kubelet: Json) -> Json:
    """Draw the configuration of a later start on the same machine."""
    found = change_kubelet(r, machine_of(configuration.shape), copy.deepcopy(kubelet))
    return found if configuration.shape == TINY else _with_manager(found)


def _with_manager(kubelet: Json) -> Json:
    """Turn the CPU Manager on. Without it a kubelet writes all CPUs it sees into a cgroup, and this machine has
    fewer."""
    return {**kubelet, "cpuManagerPolicy": "static"}


def machine_of(shape: Shape) -> Json:
    """Return the machine as recordings write it, for the drawers of configurations and pods."""
    nodes = []
    for node in range(shape.nodes):
        cores = range(node * shape.cores, (node + 1) * shape.cores)
        entry: Json = {
            "id": node,
            "memory": shape.mib << 20,
            "cores": [
                {"socket": shape.socket(node), "core": core, "threads": shape.cpus_of_core(core)} for core in cores
            ],
        }
        if shape.huge_pages:
            entry["hugepages"] = [{"pageSizeKi": 2048, "numPages": shape.huge_pages}]
        nodes.append(entry)
    return {"nodes": nodes}
