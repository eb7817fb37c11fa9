"""Cgroup files of a pod and its containers with their values (pod-level-resources 8, 9)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from podslice.advise.inspect.facts import Gates, KnownNode
from podslice.advise.inspect.page import Cgroup
from podslice.advise.inspect.stages import kind_of
from podslice.api.pod.critical import is_node_critical
from podslice.api.pod.demand import BURSTABLE, container_limits, container_requests, is_pod_level_resources_set, pod_qos
from podslice.api.pod.spec import Container, Pod, is_restartable_init
from podslice.node.effects.cgroup import (
    declares_limit,
    pod_cgroup,
    pod_cgroup_path,
    pod_quota_disabled,
    pod_unified,
    quota_disabled,
)
from podslice.node.effects.container_cgroup import container_resources, container_unified
from podslice.node.effects.cpu_weight import shares_to_weight
from podslice.node.effects.files import container_files, pod_files
from podslice.node.effects.huge_pages import page_size_name
from podslice.node.effects.oom import oom_score_adjustments, remaining_memory_per_container, smallest_app_request
from podslice.values.quantity import BINARY_SI, ZERO, Quantity
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

_UID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
Owners: TypeAlias = Mapping[str, bool]
"""For each container that owns CPUs: whether its CPU limit is enforced all the same."""
_EXTREME_SIZES = (1, 1 << 62)
"""Node memory in bytes: a score that is the same for both is the same for every size."""


def pod_path(pod: Pod, gates: Gates) -> str:
    """Return the pod's cgroup below the root, with the systemd driver; `<uid>` where the pod has none yet."""
    # A pod that was never created has no UID, or a made-up one.
    uid = pod.metadata.uid if _UID.match(pod.metadata.uid) else "<uid>"
    return pod_cgroup_path(uid, pod_qos(pod, gates))


def cgroups(pod: Pod, gates: Gates, quirks: Quirks, node: KnownNode, owners: Owners) -> tuple[Cgroup, ...]:
    """Return the pod's cgroup, then those of init, app and ephemeral containers."""
    return _pod(pod, gates, node, owners), *_containers(pod, gates, quirks, node, owners)


def _pod(pod: Pod, gates: Gates, node: KnownNode, owners: Owners) -> Cgroup:
    settings = node.settings
    values = pod_cgroup(
        pod,
        gates,
        enforce_cpu_limits=settings.cfs_quota and not pod_quota_disabled(pod, gates, owners),
        period=settings.cfs_period_us,
    )
    protected = pod_unified(pod, gates, settings) if gates["MemoryQoS"] else {}
    if node.cgroup_version == 2:
        files = pod_files(values, protected, settings)
    else:
        period = values.cpu_period or settings.quota_period(gates)
        quota = (values.cpu_quota or 0, period)
        files = _v1_files(values.cpu_shares, quota, values.memory or 0, values.huge_pages, settings.page_size)
    return Cgroup("pod", "pod", pod_path(pod, gates), files)


def _containers(pod: Pod, gates: Gates, quirks: Quirks, node: KnownNode, owners: Owners) -> Iterator[Cgroup]:
    settings = node.settings
    parent = pod_path(pod, gates)
    scores = _oom_scores(pod, gates, node)
    for score, (kind, container) in zip(scores, _in_order(pod), strict=True):
        values = container_resources(
            pod,
            container,
            gates,
            settings,
            quirks,
            oom_score_adj=score or 0,
            quota_disabled=quota_disabled(gates, owns_cpus=owners.get(container.name) is False),
        )
        formula = oom_formula(pod, container, gates, node.release)
        older = ""
        if node.cgroup_version == 2:
            protected = container_unified(pod, container, gates, settings) if gates["MemoryQoS"] else {}
            values = msgspec.structs.replace(values, unified={**values.unified, **protected})
            files = container_files(values, settings)
            # Runtimes changed the conversion of shares to weights, so the same container may have either.
            older = str(shares_to_weight(values.cpu_shares))
        else:
            quota = (values.cpu_quota, values.cpu_period or settings.quota_period(gates))
            files = _v1_files(values.cpu_shares, quota, values.memory_limit, values.huge_pages, settings.page_size)
        yield Cgroup(container.name, kind, f"{parent}/<{container.name}>", files, older, score, formula)


def _in_order(pod: Pod) -> Iterator[tuple[str, Container]]:
    for container in pod.spec.init_containers:
        yield kind_of(container, init=True), container
    for container in pod.spec.containers:
        yield kind_of(container, init=False), container
    for container in pod.spec.ephemeral_containers:
        yield "ephemeral", container


def _v1_files(shares: int, quota: tuple[int, int], memory: int, pages: Mapping[int, int], page: int) -> dict[str, str]:
    """Return the files of cgroup v1, whose kernel rounds memory down to whole pages. `quota` is (quota, period) in
    microseconds, a quota of 0 or less for none; `memory` is bytes, 0 for no limit; `page` is the page size in bytes."""
    return {
        "cpu.shares": str(shares),
        "cpu.cfs_quota_us": str(quota[0] if quota[0] > 0 else -1),
        "cpu.cfs_period_us": str(quota[1]),
        "memory.limit_in_bytes": str(memory // page * page if memory else -1),
        **{f"hugetlb.{page_size_name(size)}.limit_in_bytes": str(limit) for size, limit in pages.items()},
    }


def _oom_scores(pod: Pod, gates: Gates, node: KnownNode) -> list[int | None]:
    """Return scores in order of the containers; None for those that depend on an unknown memory size."""
    # A score between its bounds depends on the node's memory; one that is the same on the smallest and the largest does
    # not.
    if node.memory_capacity is not None:
        return [*oom_score_adjustments(pod, gates, node.memory_capacity, node.release)]
    small, large = (oom_score_adjustments(pod, gates, size, node.release) for size in _EXTREME_SIZES)
    return [one if one == other else None for one, other in zip(small, large, strict=True)]


def oom_formula(pod: Pod, container: Container, gates: Gates, release: Release = DEFAULT) -> str:
    """Return the formula of a container's OOM score under a release, in words and bytes."""
    qos = pod_qos(pod, gates)
    if is_node_critical(pod):
        return "system-node-critical"
    if qos != BURSTABLE:
        return qos
    share = remaining_memory_per_container(pod) if gates["PodLevelResources"] else 0
    own = container_requests(container).get("memory", ZERO).value()
    text = f"1000 - 1000 x {_amount(own + share)} / node memory"
    if share:
        text += f" ({_amount(own)} own, {_amount(share)} of the pod's rest)"
    if release.sidecars_outlive_apps and container in pod.spec.init_containers and is_restartable_init(container):
        text += f", at most 1000 - 1000 x {_amount(smallest_app_request(pod) + share)} / node memory"
    return text


def _amount(size: int) -> str:
    return Quantity.of(size, BINARY_SI).canonical()


def notes(pod: Pod, gates: Gates, quirks: Quirks, node: KnownNode, owners: Owners) -> tuple[str, ...]:
    """Return facts that the values do not show: limits taken from the pod, limits that the pod does not get, quota
    off."""
    weights = quirks.implied_limit_becomes_weight
    return (
        *_quota_notes(pod, gates, node, owners),
        *_pod_notes(pod, gates),
        *_implied_notes(pod, gates, weights=weights),
    )


def _quota_notes(pod: Pod, gates: Gates, node: KnownNode, owners: Owners) -> Iterator[str]:
    if not node.config.cpu_cfs_quota:
        yield "cpuCFSQuota is false: no CPU limit is enforced"
    elif (off := [name for name in sorted(owners) if not owners[name]]) and quota_disabled(gates, owns_cpus=True):
        whole = " and so for the pod" if pod_quota_disabled(pod, gates, owners) else ""
        yield f"CFS quota is off for {', '.join(off)} (CPUs of their own){whole}"


def _pod_notes(pod: Pod, gates: Gates) -> Iterator[str]:
    if pod_qos(pod, gates) != BURSTABLE:
        return
    for name, file in (("cpu", "cpu.max"), ("memory", "memory.max")):
        having = [c for c in (*pod.spec.init_containers, *pod.spec.containers) if not _limit(c, name).is_zero()]
        lacking = [c.name for c in (*pod.spec.init_containers, *pod.spec.containers) if _limit(c, name).is_zero()]
        if having and lacking and not declares_limit(pod, name, pod_level=gates["PodLevelResources"]):
            yield f"the pod has no {file} because {', '.join(lacking)} {_has(lacking)} no {name} limit"


def _implied_notes(pod: Pod, gates: Gates, *, weights: bool) -> Iterator[str]:
    if not gates["PodLevelResources"] or pod.spec.resources is None or not is_pod_level_resources_set(pod):
        return
    containers = [container for _, container in _in_order(pod)]
    for name, file in (("cpu", "cpu.max"), ("memory", "memory.max")):
        limit = (pod.spec.resources.limits or {}).get(name, ZERO)
        implied = [c for c in containers if _limit(c, name).is_zero()]
        # The kubelet gives containers without a limit that of the pod, which shows in their files only.
        if implied and not limit.is_zero():
            names = [c.name for c in implied]
            text = (
                f"{', '.join(names)} {_has(names)} no {name} limit and {'gets' if len(names) == 1 else 'get'} the pod's"
            )
            weighing = [c.name for c in implied if name == "cpu" and "cpu" not in container_requests(c)]
            weight = f"; cpu.weight of {', '.join(weighing)} comes from it too" if weighing and weights else ""
            yield f"{text} ({file}){weight}"


def _limit(container: Container, name: str) -> Quantity:
    return container_limits(container).get(name, ZERO)


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
