"""Cgroup files of a pod and its containers with their values (spec pod-level-resources 8, 9)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.core.effects.cgroup import declares_limit, pod_cgroup, pod_unified
from podslice.core.effects.container_cgroup import container_resources, container_unified
from podslice.core.effects.cpu_weight import shares_to_runtime_weight, shares_to_weight
from podslice.core.effects.huge_pages import applied, page_size_name
from podslice.core.effects.oom import oom_score_adjustments, remaining_memory_per_container, smallest_app_request
from podslice.core.effects.settings import CgroupSettings
from podslice.core.inspect.facts import Gates, NodeView
from podslice.core.inspect.page import Cgroup
from podslice.core.inspect.written import kind_of
from podslice.core.pod.critical import is_node_critical
from podslice.core.pod.demand import is_pod_level_resources_set, own_limits, own_requests
from podslice.core.pod.qos import BEST_EFFORT, BURSTABLE, GUARANTEED, pod_qos
from podslice.core.pod.spec import Container, Pod, is_restartable_init
from podslice.core.values.quantity import BINARY_SI, ZERO, Quantity

_UID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_PARENTS = {GUARANTEED: "kubepods", BURSTABLE: "kubepods/burstable", BEST_EFFORT: "kubepods/besteffort"}
_EXTREME_SIZES = (1, 1 << 62)
"""Node memory in bytes; what is the same for both is the same for all."""
_V1_FILES = {"cpu.weight": "cpu.shares", "memory.max": "memory.limit_in_bytes"}


class QuotaOff(NamedTuple):
    """Who runs without CFS quota because of exclusive CPUs: the pod's cgroup, and containers by name."""

    pod: bool = False
    containers: frozenset[str] = frozenset()


def pod_path(pod: Pod, gates: Gates) -> str:
    """The pod's cgroup below the root, with the cgroupfs driver; `<uid>` where the pod has none yet."""
    uid = pod.metadata.uid if _UID.match(pod.metadata.uid) else "<uid>"
    return f"{_PARENTS[pod_qos(pod, gates)]}/pod{uid}"


def cgroups(pod: Pod, gates: Gates, node: NodeView, quota_off: QuotaOff) -> tuple[Cgroup, ...]:
    """The pod's cgroup, then those of init, app and ephemeral containers."""
    return _pod(pod, gates, node, quota_off), *_containers(pod, gates, node, quota_off)


def _pod(pod: Pod, gates: Gates, node: NodeView, quota_off: QuotaOff) -> Cgroup:
    settings = node.settings
    values = pod_cgroup(
        pod,
        gates,
        enforce_cpu_limits=settings.cfs_quota and not quota_off.pod,
        period=settings.cfs_period_us,
    )
    files = _files(
        node.cgroup_version,
        weight=(values.cpu_shares, shares_to_weight(values.cpu_shares)),
        quota=(values.cpu_quota or 0, values.cpu_period or settings.quota_period(gates)),
        memory=values.memory or 0,
        pages=applied(values.huge_pages, settings.huge_pages),
    )
    if gates["MemoryQoS"] and node.cgroup_version == 2:
        files |= _texts(pod_unified(pod, gates, settings))
    return Cgroup("pod", "pod", pod_path(pod, gates), files)


def _containers(pod: Pod, gates: Gates, node: NodeView, quota_off: QuotaOff) -> Iterator[Cgroup]:
    settings = node.settings
    parent = pod_path(pod, gates)
    scores = _oom_scores(pod, gates, node)
    for index, (kind, container) in enumerate(_in_order(pod)):
        score = scores[index]
        values = container_resources(
            pod,
            container,
            gates,
            settings,
            oom_score_adj=score or 0,
            quota_disabled=container.name in quota_off.containers,
        )
        files = _files(
            node.cgroup_version,
            weight=(values.cpu_shares, shares_to_runtime_weight(values.cpu_shares)),
            quota=(values.cpu_quota, values.cpu_period or settings.quota_period(gates)),
            memory=values.memory_limit,
            pages=values.huge_pages,
        )
        files |= _texts(values.unified)
        if gates["MemoryQoS"]:
            files |= _texts(container_unified(pod, container, gates, settings))
        older = str(shares_to_weight(values.cpu_shares)) if node.cgroup_version == 2 else ""
        formula = oom_formula(pod, container, gates)
        yield Cgroup(container.name, kind, f"{parent}/<{container.name}>", files, older, score, formula)


def _in_order(pod: Pod) -> Iterator[tuple[str, Container]]:
    for container in pod.spec.init_containers:
        yield kind_of(container, init=True), container
    for container in pod.spec.containers:
        yield kind_of(container, init=False), container
    for container in pod.spec.ephemeral_containers:
        yield "ephemeral", container


def _files(
    version: int, *, weight: tuple[int, int], quota: tuple[int, int], memory: int, pages: Mapping[int, int]
) -> dict[str, str]:
    """`weight`: shares and weight; `quota`: quota (0 or less for none) and period; `memory` 0 for no limit."""
    limited = quota[0] > 0
    if version == 1:
        files = {
            _V1_FILES["cpu.weight"]: str(weight[0]),
            "cpu.cfs_quota_us": str(quota[0] if limited else -1),
            "cpu.cfs_period_us": str(quota[1]),
            _V1_FILES["memory.max"]: str(memory or -1),
        }
        pattern = "hugetlb.{}.limit_in_bytes"
    else:
        files = {
            "cpu.weight": str(weight[1]),
            "cpu.max": f"{quota[0] if limited else 'max'} {quota[1]}",
            "memory.max": str(memory) if memory else "max",
        }
        pattern = "hugetlb.{}.max"
    return files | {pattern.format(page_size_name(size)): str(limit) for size, limit in pages.items()}


def _texts(values: Mapping[str, int]) -> dict[str, str]:
    return {file: str(value) for file, value in values.items()}


def _oom_scores(pod: Pod, gates: Gates, node: NodeView) -> list[int | None]:
    """Scores in order of the containers; None for those that depend on a memory size that nobody gave."""
    if node.memory_capacity is not None:
        return [*oom_score_adjustments(pod, gates, node.memory_capacity)]
    small, large = (oom_score_adjustments(pod, gates, size) for size in _EXTREME_SIZES)
    return [one if one == other else None for one, other in zip(small, large, strict=True)]


def oom_formula(pod: Pod, container: Container, gates: Gates) -> str:
    """How the score of a container comes about, in words and bytes."""
    qos = pod_qos(pod, gates)
    if is_node_critical(pod):
        return "system-node-critical"
    if qos != BURSTABLE:
        return qos
    share = remaining_memory_per_container(pod) if gates["PodLevelResources"] else 0
    own = own_requests(container).get("memory", ZERO).value()
    text = f"1000 - 1000 x {_amount(own + share)} / node memory"
    if share:
        text += f" ({_amount(own)} own, {_amount(share)} of the pod's rest)"
    if container in pod.spec.init_containers and is_restartable_init(container):
        text += f", at most 1000 - 1000 x {_amount(smallest_app_request(pod) + share)} / node memory"
    return text


def _amount(size: int) -> str:
    return Quantity.of(size, BINARY_SI).canonical()


def notes(pod: Pod, gates: Gates, settings: CgroupSettings, quota_off: QuotaOff) -> tuple[str, ...]:
    """What the values do not say themselves: limits taken from the pod, limits the pod does not get, quota off."""
    return (*_quota_notes(settings, quota_off), *_pod_notes(pod, gates), *_implied_notes(pod, gates))


def _quota_notes(settings: CgroupSettings, quota_off: QuotaOff) -> Iterator[str]:
    if not settings.cfs_quota:
        yield "cpuCFSQuota is false: no CPU limit is enforced"
    elif quota_off.containers:
        pod = " and so for the pod" if quota_off.pod else ""
        yield f"CFS quota is off for {', '.join(sorted(quota_off.containers))} (CPUs of their own){pod}"


def _pod_notes(pod: Pod, gates: Gates) -> Iterator[str]:
    if pod_qos(pod, gates) != BURSTABLE:
        return
    for name, file in (("cpu", "cpu.max"), ("memory", "memory.max")):
        having = [c for c in (*pod.spec.init_containers, *pod.spec.containers) if not _limit(c, name).is_zero()]
        lacking = [c.name for c in (*pod.spec.init_containers, *pod.spec.containers) if _limit(c, name).is_zero()]
        if having and lacking and not declares_limit(pod, name, gates["PodLevelResources"]):
            yield f"the pod has no {file} because {', '.join(lacking)} {_has(lacking)} no {name} limit"


def _implied_notes(pod: Pod, gates: Gates) -> Iterator[str]:
    if not gates["PodLevelResources"] or pod.spec.resources is None or not is_pod_level_resources_set(pod):
        return
    containers = [container for _, container in _in_order(pod)]
    for name, file in (("cpu", "cpu.max"), ("memory", "memory.max")):
        limit = (pod.spec.resources.limits or {}).get(name, ZERO)
        implied = [c for c in containers if _limit(c, name).is_zero()]
        if implied and not limit.is_zero():
            names = [c.name for c in implied]
            text = (
                f"{', '.join(names)} {_has(names)} no {name} limit and {'gets' if len(names) == 1 else 'get'} the pod's"
            )
            weighing = [c.name for c in implied if name == "cpu" and "cpu" not in own_requests(c)]
            weight = f"; cpu.weight of {', '.join(weighing)} comes from it too" if weighing else ""
            yield f"{text} ({file}){weight}"


def _limit(container: Container, name: str) -> Quantity:
    return own_limits(container).get(name, ZERO)


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
