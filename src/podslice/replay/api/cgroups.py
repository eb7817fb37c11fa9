"""Sections about cgroups, OOM scores and exclusive CPUs of one pod on the case's node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from podslice.api.pod.spec import Container, containers_with_kind
from podslice.config.kubelet import KubeletConfig
from podslice.machine.model import Core, Machine, NUMANode
from podslice.node.effects.cgroup import PodCgroup, pod_cgroup, pod_quota_disabled, pod_unified, quota_disabled
from podslice.node.effects.container_cgroup import LinuxResources, container_resources, container_unified
from podslice.node.effects.cpu_weight import shares_to_runtime_weight, shares_to_weight
from podslice.node.effects.huge_pages import page_size_from_name, page_size_name, pod_huge_page_limits
from podslice.node.effects.oom import oom_score_adjustments, remaining_memory_per_container, smallest_app_request
from podslice.node.effects.sandbox import Sandbox, sandbox, sandbox_update
from podslice.node.effects.settings import DEFAULT_HUGE_PAGES, RESERVATION_POLICIES, CgroupSettings
from podslice.node.kubelet import Kubelet
from podslice.node.topology.hint import NO_AFFINITY
from podslice.replay.api.case import ABSENT, ApiCase, Json
from podslice.replay.api.growing import add_overhead
from podslice.values.cpuset import format_bits
from podslice.values.duration import parse_duration
from podslice.values.errors import AdmissionError, UpstreamDefectError
from podslice.values.gate_table import gate_states
from podslice.values.gates import later_gates
from podslice.values.quantity import Quantity

_GI = 1 << 30


class NodeCase:
    """The case's pod on its node: settings, owners of CPUs, containers in the order of the recordings.

    `pod_cgroups` is how often the recorder computed the pod's cgroup before (see `growing`).
    """

    def __init__(self, case: ApiCase, pod_cgroups: int = 0) -> None:
        self.gates, self.node, self.quirks = case.gates, case.node, case.quirks
        # How often the recorder had asked for effective requests and limits before it came to the node's sections.
        asked = (4 + pod_cgroups, 2 + pod_cgroups) if self.gates["PodLevelResources"] else (2, 1)
        self.pod = add_overhead(case.pod, *asked)

    def settings(self, policy: str = RESERVATION_POLICIES[0]) -> CgroupSettings:
        node = self.node
        version = node.get("cgroupVersion", 2)
        allocatable = Quantity.parse((node.get("allocatable") or {"memory": "16Gi"}).get("memory", "0"))
        return CgroupSettings(
            memory_capacity=node.get("memoryCapacity", 16 * _GI),
            swap_capacity=node.get("swapCapacity", 0),
            cgroup_version=version,
            huge_pages=tuple(map(page_size_from_name, node["hugePageSizes"]))
            if "hugePageSizes" in node
            else DEFAULT_HUGE_PAGES,
            cfs_quota=node.get("cfsQuota", True),
            cfs_period_us=parse_duration(node.get("cfsPeriod", "100ms")) // 1000,
            kill_whole_container=not node.get("singleProcessOOMKill", version == 1),
            swap_controller=node.get("swapController", False),
            swap_behavior=node.get("memorySwapBehavior", ""),
            reservation_policy=policy,
            throttling_factor=node.get("memoryThrottlingFactor", 0.9),
            memory_allocatable=allocatable.value(),
        )

    @cached_property
    def exclusive(self) -> Mapping[str, str]:
        """CPU lists of the containers that own CPUs, by name."""
        if "cpuManager" in self.node:
            return {name: cpus for name, (cpus, _) in self.assignments.items() if cpus}
        return {name: cpus for name, cpus in (self.node.get("exclusiveCPUs") or {}).items() if cpus}

    @cached_property
    def assignments(self) -> Mapping[str, tuple[str, str]]:
        """CPU list and error of each container under the static policy, on one socket of single-thread cores."""
        manager = self.node["cpuManager"]
        cores = tuple(Core(socket=0, core=cpu, threads=(cpu,)) for cpu in range(manager["numCPUs"]))
        # A recording names gates of the whole binary, of which the kubelet's configuration knows only some.
        known = gate_states().keys() | set(later_gates(self.quirks))
        kubelet = Kubelet(
            Machine(nodes=(NUMANode(id=0, memory=64 * _GI, cores=cores),)),
            KubeletConfig(
                feature_gates={name: on for name, on in self.gates.items() if name in known},
                cpu_manager_policy=manager["policy"],
                reserved_system_cpus=manager["reserved"],
            ),
            self.quirks,
        )
        kubelet.start()
        pod = kubelet.admission(self.pod)
        kubelet.manager.context.activate(pod)
        cpu = kubelet.manager.cpu
        results = {}
        for container in pod.containers:
            error = ""
            try:
                cpu.allocate(pod, container, NO_AFFINITY)
            except AdmissionError as refusal:
                error = refusal.message
            results[container.name] = format_bits(cpu.exclusive_cpus(pod.uid, container.name)), error
        return results

    @property
    def pod_quota_disabled(self) -> bool:
        """Whether the pod's CPU quota is off because of the CPUs it owns."""
        return pod_quota_disabled(self.pod, self.gates, self.exclusive)

    def pod_cgroup(self) -> PodCgroup:
        settings = self.settings()
        return pod_cgroup(
            self.pod, self.gates, enforce_cpu_limits=self.enforces_cpu_limits(), period=settings.cfs_period_us
        )

    def enforces_cpu_limits(self) -> bool:
        return self.settings().cfs_quota and not self.pod_quota_disabled


def unified_to_json(values: Mapping[str, int]) -> Json | None:
    """Return cgroup v2 files as the runtime gets them: values as text, None for an empty set."""
    return {name: str(value) for name, value in values.items()} or None


def linux_resources_to_json(resources: LinuxResources) -> Json:
    shown: Json = {
        "cpuPeriod": resources.cpu_period,
        "cpuQuota": resources.cpu_quota,
        "cpuShares": resources.cpu_shares,
        "memoryLimitInBytes": resources.memory_limit,
        "oomScoreAdj": resources.oom_score_adj,
        "hugepageLimits": [
            {"pageSize": page_size_name(size), "limit": limit} for size, limit in resources.huge_pages.items()
        ],
        "unified": unified_to_json(resources.unified),
    }
    if resources.memory_swap_limit:
        shown["memorySwapLimitInBytes"] = resources.memory_swap_limit
    return shown


def _scores(node: NodeCase) -> list[int]:
    return oom_score_adjustments(node.pod, node.gates, node.settings().memory_capacity)


def _section(show: Callable[[NodeCase], Any], pod_cgroups: int = 0) -> Callable[[ApiCase], Any]:
    """Return a function that makes the section of a case, or the name of upstream's defect where the kubelet
    crashes."""

    def run(case: ApiCase) -> Any:
        try:
            return show(NodeCase(case, pod_cgroups))
        except UpstreamDefectError as defect:
            return {"defect": defect.name}

    return run


def _oom_score_adj(node: NodeCase) -> Any:
    return [
        {"name": container.name, "kind": kind, "oomScoreAdj": score}
        for (kind, container), score in zip(containers_with_kind(node.pod), _scores(node), strict=True)
    ]


def _oom_detail(node: NodeCase) -> Any:
    return {
        "remainingPerContainer": remaining_memory_per_container(node.pod),
        "minRegularContainerMemory": smallest_app_request(node.pod),
    }


def _pod_cgroup(node: NodeCase) -> Any:
    cgroup = node.pod_cgroup()
    gate = node.gates["PodLevelResources"]
    settings = node.settings()
    weight = shares_to_weight(cgroup.cpu_shares)
    v2 = settings.cgroup_version == 2
    return {
        "resourceConfig": {
            "cpuShares": cgroup.cpu_shares,
            "cpuQuota": cgroup.cpu_quota,
            "cpuPeriod": cgroup.cpu_period,
            "memory": cgroup.memory,
            "hugePageLimit": {str(size): limit for size, limit in cgroup.huge_pages.items()},
            "unified": None,
        },
        "applied": {
            "cpuShares": 0 if v2 else cgroup.cpu_shares,
            "cpuWeight": weight if v2 else 0,
            "cpuQuota": cgroup.cpu_quota or 0,
            "cpuPeriod": cgroup.cpu_period or 0,
            "memory": cgroup.memory or 0,
            "hugetlb": {
                page_size_name(size): limit
                for size, limit in pod_huge_page_limits(cgroup.huge_pages, settings.huge_pages).items()
            },
            "unified": None,
        },
        "cpuWeight": weight,
        "enforceCPULimits": node.enforces_cpu_limits(),
        **{
            f"unifiedMemoryQoS{key}": unified_to_json(
                pod_unified(add_overhead(node.pod, asked * gate, 0), node.gates, node.settings(policy))
            )
            for asked, (key, policy) in enumerate(_POLICY_KEYS, 1)
        },
    }


_POLICY_KEYS = tuple(zip(("None", "Tiered"), RESERVATION_POLICIES, strict=True))


def _container_cgroups(node: NodeCase) -> Any:
    return [
        _container(node, kind, container, score)
        for (kind, container), score in zip(containers_with_kind(node.pod), _scores(node), strict=True)
    ]


def _container(node: NodeCase, kind: str, container: Container, score: int) -> Json:
    pod, gates, settings = node.pod, node.gates, node.settings()
    owns = container.name in node.exclusive
    disabled = quota_disabled(gates, owns_cpus=owns)
    resources = container_resources(
        pod, container, gates, settings, node.quirks, oom_score_adj=score, quota_disabled=disabled
    )
    shown: Json = {
        "name": container.name,
        "kind": kind,
        "resources": linux_resources_to_json(resources),
        "runtimeWeight": shares_to_runtime_weight(resources.cpu_shares),
        "hasExclusiveCPUs": owns,
    }
    if settings.cgroup_version == 2:
        for key, policy in _POLICY_KEYS:
            added = container_unified(pod, container, gates, node.settings(policy))
            shown[f"unifiedMemoryQoS{key}"] = unified_to_json({**resources.unified, **added})
    return shown


def _sandbox(case: ApiCase) -> Any:
    node, before = NodeCase(case, pod_cgroups=3), NodeCase(case)
    created = sandbox(node.pod, node.gates, node.settings(), node.quirks, quota_disabled=node.pod_quota_disabled)
    update = sandbox_update(node.pod, before.pod_cgroup(), node.gates, node.settings())
    return {**_sandbox_to_json(created), "updateSandbox": _sandbox_to_json(update)}


def _sandbox_to_json(one: Sandbox) -> Json:
    return {
        "resources": linux_resources_to_json(one.resources),
        "overhead": linux_resources_to_json(one.overhead),
    }


def _cpu_manager(node: NodeCase) -> Any:
    return {
        name: {"cpus": cpus, "error": error} if error else {"cpus": cpus}
        for name, (cpus, error) in node.assignments.items()
    }


def _cpu_manager_of(case: ApiCase) -> Any:
    return _section(_cpu_manager)(case) if "cpuManager" in case.node else ABSENT


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {
    "oomScoreAdj": _section(_oom_score_adj),
    "oomDetail": _section(_oom_detail),
    "podCgroup": _section(_pod_cgroup),
    "containerCgroups": _section(_container_cgroups, pod_cgroups=3),
    "cpuManager": _cpu_manager_of,
    "sandbox": _sandbox,
}
