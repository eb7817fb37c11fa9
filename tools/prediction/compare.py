"""One form for both sides: a kubelet's answers and messages to the runtime, and podslice's predictions."""

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


def normalise_memory_state(state: bytes) -> object:
    """Decode a memory state file and sort each container's blocks: a kubelet takes memory and huge pages from an
    unordered map. The checksum depends on that order and is left out."""
    try:
        content = json.loads(state)
    except ValueError:
        return state
    content.pop("checksum", None)
    return _sort_blocks(content)


def _sort_blocks(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sort_blocks(own) for name, own in value.items()}
    if isinstance(value, list):
        return sorted((_sort_blocks(own) for own in value), key=repr)
    return value


def read_listed_pods(kubelet: RealKubelet) -> list[Json]:
    """Call List of PodResources; the pods in order of their names."""
    pods = kubelet.pod_resources("List").pod_resources
    return [normalise_pod(pod) for pod in sorted(pods, key=lambda pod: str(pod.name))]


def read_pod(kubelet: RealKubelet, name: str) -> Json:
    """Call Get of PodResources for a pod; code and details of the error where there is none."""
    try:
        answer = kubelet.pod_resources("Get", pod_name=name, pod_namespace="default")
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}
    return normalise_pod(answer.pod_resources)


def normalise_pod(pod: Any) -> Json:
    """Normalise a pod of PodResources: CPUs, memory and devices are sets."""
    containers = {
        own.name: (format_bits(bits_of(own.cpu_ids)), sorted(_memory(block) for block in own.memory), _devices(own))
        for own in pod.containers
    }
    return {"name": pod.name, "namespace": pod.namespace, "containers": containers}


def allocatable_of(kubelet: RealKubelet) -> Json:
    """Call GetAllocatableResources of PodResources."""
    return allocatable(kubelet.pod_resources("GetAllocatableResources"))


def allocatable(answer: Any) -> Json:
    """Normalise an answer of GetAllocatableResources: CPUs, memory and devices are sets."""
    memory = sorted(_memory(block) for block in answer.memory)
    return {"cpus": format_bits(bits_of(answer.cpu_ids)), "memory": memory, "devices": _devices(answer)}


def _devices(answer: Any) -> list[tuple[str, list[str], list[int]]]:
    return sorted(
        (own.resource_name, sorted(own.device_ids), [node.ID for node in own.topology.nodes]) for own in answer.devices
    )


def device_state(state: bytes) -> object:
    """Decode `kubelet_internal_checkpoint` and sort pods, resources and devices, which come from unordered maps."""
    if not state:
        return {}
    content = json.loads(state)["Data"]
    registered = {name: sorted(ids or ()) for name, ids in (content["RegisteredDevices"] or {}).items()}
    entries = []
    for entry in content["PodDeviceEntries"] or ():
        ids = {node: sorted(own) for node, own in entry["DeviceIDs"].items()}
        entries.append({**entry, "DeviceIDs": ids})
    return {"registered": registered, "entries": sorted(entries, key=repr)}


def device_options(config: Any) -> Json:
    """Return the environment and device files that a container got with its devices."""
    mine = {own.key: own.value for own in config.envs if own.key.startswith("EXAMPLE_COM_")}
    return {"envs": mine, "devices": sorted((own.container_path, own.host_path, own.permissions)
                                            for own in config.devices)}  # fmt: skip


def _memory(block: Any) -> tuple[str, int, list[int]]:
    return block.memory_type, block.size, [node.ID for node in block.topology.nodes]


def read_containers(runtime: FakeRuntime, uid: str) -> dict[str, Json]:
    """Return the resources of each running container of a pod at the runtime, after all updates."""
    return {own.name: normalise_linux(own.resources) for own in runtime.of_pod(uid) if own.state == RUNNING}


def normalise_linux(message: Any) -> Json:
    """Normalise the resources of a container in a message. A kubelet writes NUMA nodes as `0,1,2`, the kernel as
    `0-2`."""
    return {**_amounts(message), "cpus": message.cpuset_cpus, "mems": format_bits(parse_bits(message.cpuset_mems))}


def normalise_sandbox(found: RuntimeSandbox, root: str) -> Json:
    """Normalise the message with which a sandbox was created, below a root of cgroups."""
    message = found.config.linux
    parent = message.cgroup_parent.removeprefix(f"/{root}")
    return {"cgroup_parent": parent, "overhead": _amounts(message.overhead), "resources": _amounts(message.resources)}


def _amounts(message: Any) -> Json:
    return {
        "cpu_period": message.cpu_period,
        "cpu_quota": message.cpu_quota,
        "cpu_shares": message.cpu_shares,
        "memory": message.memory_limit_in_bytes,
        "memory_swap": message.memory_swap_limit_in_bytes,
        "oom_score_adj": message.oom_score_adj,
        "huge_pages": {limit.page_size: limit.limit for limit in message.hugepage_limits},
        "unified": dict(message.unified),
    }


def sandbox_values(values: Sandbox) -> Json:
    """Return the predicted message for a sandbox."""
    return {"overhead": resources(values.overhead), "resources": resources(values.resources)}


def normalise_update(found: Update) -> Json:
    """Normalise an update of an existing sandbox or container."""
    if found.container:
        return _amounts(found.message)
    return {"overhead": _amounts(found.message.overhead), "resources": _amounts(found.message.resources)}


def pins_only(found: Update) -> bool:
    """Whether an update is about a container's CPUs alone; the CPU Manager sends such updates periodically."""
    return bool(found.container) and not found.message.cpu_shares and bool(found.message.cpuset_cpus)


def linux_values(files: Mapping[str, str]) -> LinuxValues:
    """Read the values in a cgroup's files, of either version."""
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
    """Round a limit in bytes down to whole pages, as the kernel does."""
    return memory // _PAGE * _PAGE if memory is not None and memory > 0 else memory


def cgroup_v1_files(message: Any) -> dict[str, str]:
    """Return the files of cgroup v1 that a runtime writes for these resources, as the kernel shows them; -1 stands for
    no memory limit."""
    memory = message.memory_limit_in_bytes
    return {
        "cpu.shares": str(message.cpu_shares),
        "cpu.cfs_quota_us": str(message.cpu_quota if message.cpu_quota > 0 else -1),
        "cpu.cfs_period_us": str(message.cpu_period or DEFAULT_PERIOD_US),
        "memory.limit_in_bytes": str(whole_pages(memory) if memory else -1),
        **{f"hugetlb.{limit.page_size}.limit_in_bytes": str(limit.limit) for limit in message.hugepage_limits},
    }


def predict_containers(effects: PodEffects) -> dict[str, Json]:
    """Return the predicted resources of each container at the runtime."""
    return {
        own.name: {
            **resources(own.resources),
            "cpus": own.files.get("cpuset.cpus", ""),
            "mems": own.files.get("cpuset.mems", ""),
        }
        for own in effects.containers
    }


def resources(values: LinuxResources) -> Json:
    """Return the predicted resources of a container or sandbox, without its CPUs and NUMA nodes."""
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
    """Write the absence of a memory limit as the kernel shows it: the largest number of whole pages."""
    return {name: "9223372036854771712" if name.startswith("memory.limit") and own in _NO_LIMIT else own
            for name, own in files.items()}  # fmt: skip
