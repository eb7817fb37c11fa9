"""Both sides in one form: a kubelet's answers and what the runtime was told, beside podslice's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import grpc

from podslice.node.effects.container_cgroup import LinuxResources
from podslice.node.effects.cpu_weight import DEFAULT_PERIOD_US, weight_to_shares
from podslice.node.effects.huge_pages import page_size_name
from podslice.node.effects.resize_plan import LinuxValues
from podslice.node.effects.sandbox import Sandbox
from podslice.node.effects.tree import PodEffects
from podslice.values.cpuset import bits_of, format_bits, parse_bits
from tools.prediction.kubelet import RealKubelet
from tools.prediction.runtime import RUNNING, FakeRuntime, Update
from tools.prediction.runtime import Sandbox as RuntimeSandbox

Json = dict[str, Any]
_PAGE = 4096
_NO_LIMIT = {"-1", "9223372036854771712", "9223372036854775807"}


def in_order(state: bytes) -> object:
    """What a memory state file says, whatever the order of a container's blocks: a kubelet takes memory and huge pages
    from an unordered map. The checksum is of that order."""
    try:
        content = json.loads(state)
    except ValueError:
        return state
    content.pop("checksum", None)
    return _sorted_blocks(content)


def _sorted_blocks(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sorted_blocks(own) for name, own in value.items()}
    if isinstance(value, list):
        return sorted((_sorted_blocks(own) for own in value), key=repr)
    return value


def listed(kubelet: RealKubelet) -> list[Json]:
    """PodResources' List, in order of the pods' names."""
    pods = kubelet.pod_resources("List").pod_resources
    return [listing(pod) for pod in sorted(pods, key=lambda pod: str(pod.name))]


def got(kubelet: RealKubelet, name: str) -> Json:
    """PodResources' Get of a pod; where there is none, what is told instead."""
    try:
        answer = kubelet.pod_resources("Get", pod_name=name, pod_namespace="default")
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}
    return listing(answer.pod_resources)


def listing(pod: Any) -> Json:
    """A pod of PodResources. CPUs are a set, and so are memory and devices."""
    containers = {
        own.name: (format_bits(bits_of(own.cpu_ids)), sorted(_memory(block) for block in own.memory), _devices(own))
        for own in pod.containers
    }
    return {"name": pod.name, "namespace": pod.namespace, "containers": containers}


def allocatable_of(kubelet: RealKubelet) -> Json:
    """PodResources' GetAllocatableResources."""
    return allocatable(kubelet.pod_resources("GetAllocatableResources"))


def allocatable(answer: Any) -> Json:
    """GetAllocatableResources; CPUs, memory and devices are sets there."""
    memory = sorted(_memory(block) for block in answer.memory)
    return {"cpus": format_bits(bits_of(answer.cpu_ids)), "memory": memory, "devices": _devices(answer)}


def _devices(answer: Any) -> list[tuple[str, list[str], list[int]]]:
    return sorted(
        (own.resource_name, sorted(own.device_ids), [node.ID for node in own.topology.nodes]) for own in answer.devices
    )


def device_state(state: bytes) -> object:
    """What `kubelet_internal_checkpoint` says: pods, resources and devices come from unordered maps."""
    if not state:
        return {}
    content = json.loads(state)["Data"]
    registered = {name: sorted(ids or ()) for name, ids in (content["RegisteredDevices"] or {}).items()}
    entries = []
    for entry in content["PodDeviceEntries"] or ():
        ids = {node: sorted(own) for node, own in entry["DeviceIDs"].items()}
        entries.append({**entry, "DeviceIDs": ids})
    return {"registered": registered, "entries": sorted(entries, key=repr)}


def given(config: Any) -> Json:
    """What a container got with its devices."""
    mine = {own.key: own.value for own in config.envs if own.key.startswith("EXAMPLE_COM_")}
    return {"envs": mine, "devices": sorted((own.container_path, own.host_path, own.permissions)
                                            for own in config.devices)}  # fmt: skip


def _memory(block: Any) -> tuple[str, int, list[int]]:
    return block.memory_type, block.size, [node.ID for node in block.topology.nodes]


def told(runtime: FakeRuntime, uid: str) -> dict[str, Json]:
    """What the runtime knows of each running container of a pod, after all updates."""
    return {own.name: linux(own.resources) for own in runtime.of_pod(uid) if own.state == RUNNING}


def linux(told: Any) -> Json:
    """What a message says of a container. NUMA nodes are told as `0,1,2`; the kernel's file shows `0-2`."""
    return {**_amounts(told), "cpus": told.cpuset_cpus, "mems": format_bits(parse_bits(told.cpuset_mems))}


def sandbox(found: RuntimeSandbox, root: str) -> Json:
    """What the runtime was told of a pod when it made the sandbox, below a root of cgroups."""
    told = found.config.linux
    parent = told.cgroup_parent.removeprefix(f"/{root}")
    return {"cgroup_parent": parent, "overhead": _amounts(told.overhead), "resources": _amounts(told.resources)}


def _amounts(told: Any) -> Json:
    return {
        "cpu_period": told.cpu_period,
        "cpu_quota": told.cpu_quota,
        "cpu_shares": told.cpu_shares,
        "memory": told.memory_limit_in_bytes,
        "memory_swap": told.memory_swap_limit_in_bytes,
        "oom_score_adj": told.oom_score_adj,
        "huge_pages": {limit.page_size: limit.limit for limit in told.hugepage_limits},
        "unified": dict(told.unified),
    }


def sandbox_values(values: Sandbox) -> Json:
    """What the runtime should be told of a sandbox."""
    return {"overhead": resources(values.overhead), "resources": resources(values.resources)}


def update(found: Update) -> Json:
    """What the runtime was told of a sandbox or container that was there."""
    if found.container:
        return _amounts(found.message)
    return {"overhead": _amounts(found.message.overhead), "resources": _amounts(found.message.resources)}


def pins_only(found: Update) -> bool:
    """Whether it is about the CPUs of a container alone, as the CPU Manager sends it now and then."""
    return bool(found.container) and not found.message.cpu_shares and bool(found.message.cpuset_cpus)


def linux_values(files: Mapping[str, str]) -> LinuxValues:
    """Of a cgroup's files, of either version."""
    if "cpu.shares" in files:
        numbers = ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes")
        return LinuxValues(*(int(files[name]) for name in numbers))
    quota, period = files["cpu.max"].split()
    memory = files["memory.max"]
    return LinuxValues(
        weight_to_shares(int(files["cpu.weight"])),
        -1 if quota == "max" else int(quota),
        int(period),
        None if memory == "max" else int(memory),
    )


def whole_pages(memory: int | None) -> int | None:
    """A limit as the kernel keeps it."""
    return memory // _PAGE * _PAGE if memory is not None and memory > 0 else memory


def written(told: Any) -> dict[str, str]:
    """What a runtime writes of it into files of cgroup v1, as the kernel shows it; no limit of memory is -1."""
    memory = told.memory_limit_in_bytes
    return {
        "cpu.shares": str(told.cpu_shares),
        "cpu.cfs_quota_us": str(told.cpu_quota if told.cpu_quota > 0 else -1),
        "cpu.cfs_period_us": str(told.cpu_period or DEFAULT_PERIOD_US),
        "memory.limit_in_bytes": str(whole_pages(memory) if memory else -1),
        **{f"hugetlb.{limit.page_size}.limit_in_bytes": str(limit.limit) for limit in told.hugepage_limits},
    }


def predicted(effects: PodEffects) -> dict[str, Json]:
    """What the runtime should know of each container."""
    return {
        own.name: {
            **resources(own.resources),
            "cpus": own.files.get("cpuset.cpus", ""),
            "mems": own.files.get("cpuset.mems", ""),
        }
        for own in effects.containers
    }


def resources(values: LinuxResources) -> Json:
    """What the runtime should be told of a container or a sandbox, but for its CPUs and NUMA nodes."""
    return {
        "cpu_period": values.cpu_period,
        "cpu_quota": values.cpu_quota,
        "cpu_shares": values.cpu_shares,
        "memory": values.memory_limit,
        "memory_swap": values.memory_swap_limit,
        "oom_score_adj": values.oom_score_adj,
        "huge_pages": {page_size_name(size): limit for size, limit in values.huge_pages.items()},
        "unified": {name: str(value) for name, value in values.unified.items()},
    }


def as_kernel_shows(files: Mapping[str, str]) -> dict[str, str]:
    """A kernel shows no limit of memory as the largest number of whole pages."""
    return {name: "9223372036854771712" if name.startswith("memory.limit") and own in _NO_LIMIT else own
            for name, own in files.items()}  # fmt: skip
