"""Both sides in one form: a kubelet's answers and what the runtime was told, beside podslice's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podslice.core.effects.huge_pages import page_size_name
from podslice.core.effects.tree import PodEffects
from podslice.core.values.cpuset import bits_of, format_bits, parse_bits
from prediction.kubelet import RealKubelet
from prediction.runtime import RUNNING, FakeRuntime

Json = dict[str, Any]
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


def listing(pod: Any) -> Json:
    """A pod of PodResources. CPUs are a set, and so is memory."""
    containers = {
        own.name: (format_bits(bits_of(own.cpu_ids)), sorted(_memory(block) for block in own.memory))
        for own in pod.containers
    }
    return {"name": pod.name, "namespace": pod.namespace, "containers": containers}


def allocatable(answer: Any) -> Json:
    """GetAllocatableResources; CPUs and memory are sets there."""
    return {"cpus": format_bits(bits_of(answer.cpu_ids)), "memory": sorted(_memory(block) for block in answer.memory)}


def _memory(block: Any) -> tuple[str, int, list[int]]:
    return block.memory_type, block.size, [node.ID for node in block.topology.nodes]


def told(runtime: FakeRuntime, uid: str) -> dict[str, Json]:
    """What the runtime knows of each running container of a pod, after all updates."""
    return {own.name: _linux(own.resources) for own in runtime.of_pod(uid) if own.state == RUNNING}


def _linux(resources: Any) -> Json:
    """NUMA nodes are told as `0,1,2`; the kernel's file shows `0-2`."""
    return {
        "cpu_period": resources.cpu_period,
        "cpu_quota": resources.cpu_quota,
        "cpu_shares": resources.cpu_shares,
        "memory": resources.memory_limit_in_bytes,
        "memory_swap": resources.memory_swap_limit_in_bytes,
        "oom_score_adj": resources.oom_score_adj,
        "cpus": resources.cpuset_cpus,
        "mems": format_bits(parse_bits(resources.cpuset_mems)),
        "huge_pages": {limit.page_size: limit.limit for limit in resources.hugepage_limits},
        "unified": dict(resources.unified),
    }


def predicted(effects: PodEffects) -> dict[str, Json]:
    """What the runtime should know of each container."""
    return {
        own.name: {
            "cpu_period": own.resources.cpu_period,
            "cpu_quota": own.resources.cpu_quota,
            "cpu_shares": own.resources.cpu_shares,
            "memory": own.resources.memory_limit,
            "memory_swap": own.resources.memory_swap_limit,
            "oom_score_adj": own.oom_score_adj,
            "cpus": own.files.get("cpuset.cpus", ""),
            "mems": own.files.get("cpuset.mems", ""),
            "huge_pages": {page_size_name(size): limit for size, limit in own.resources.huge_pages.items()},
            "unified": {name: str(value) for name, value in own.resources.unified.items()},
        }
        for own in effects.containers
    }


def as_kernel_shows(files: Mapping[str, str]) -> dict[str, str]:
    """A kernel shows no limit of memory as the largest number of whole pages."""
    return {name: "9223372036854771712" if name.startswith("memory.limit") and own in _NO_LIMIT else own
            for name, own in files.items()}  # fmt: skip
