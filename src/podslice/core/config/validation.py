"""Errors of KubeletConfiguration that make a kubelet refuse to start, with upstream's exact texts
(cpu-topology 2.1, 3.1; memory-device 1.1.2, 3.9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from podslice.core.config.kubelet import DEFAULT_CFS_PERIOD, KubeletConfig
from podslice.core.config.policy_options import POLICIES, SCOPES
from podslice.core.values.cpuset import CPUSetError, parse_ranges
from podslice.core.values.duration import DurationError, format_duration, parse_duration
from podslice.core.values.golang import quote
from podslice.core.values.quantity import Quantity, QuantityError

_MILLISECOND, _SECOND = 10**6, 10**9


class ConfigProblem(NamedTuple):
    """One error of a configuration: the field, and upstream's text about it. Prints as the kubelet tells it."""

    field: str
    text: str

    def __str__(self) -> str:
        return f"invalid configuration: {self.text}"


def validate(config: KubeletConfig) -> list[ConfigProblem]:
    """All configuration errors, sorted by text; empty for a valid configuration."""
    errors = (
        *_topology(config),
        *_reserved_cpus(config),
        *_reserved_memory(config),
        *_cfs_period(config),
        *_reconcile_period(config),
        *_enforcement(config),
        *_memory_qos(config),
        *_qos_reserved(config),
    )
    return sorted(errors, key=lambda problem: problem.text)


def _topology(config: KubeletConfig) -> Iterator[ConfigProblem]:
    if config.topology_manager_policy not in POLICIES:
        allowed = " ".join(map(quote, POLICIES))
        yield ConfigProblem(
            "topologyManagerPolicy",
            f"topologyManagerPolicy (--topology-manager-policy) {quote(config.topology_manager_policy)} "
            f"must be one of: [{allowed}]",
        )
    if config.topology_manager_scope not in SCOPES:
        yield ConfigProblem(
            "topologyManagerScope",
            f"topologyManagerScope (--topology-manager-scope) {quote(config.topology_manager_scope)} "
            'must be one of: "container", or "pod"',
        )


def _reserved_cpus(config: KubeletConfig) -> Iterator[ConfigProblem]:
    text = config.reserved_system_cpus
    if not text:
        return
    if config.system_reserved_cgroup or config.kube_reserved_cgroup:
        yield ConfigProblem(
            "reservedSystemCPUs",
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) "
            "or kubeReservedCgroup (--kube-reserved-cgroup)",
        )
    try:
        parse_ranges(text)
    except CPUSetError as error:
        yield ConfigProblem(
            "reservedSystemCPUs", f"unable to parse reservedSystemCPUs (--reserved-cpus) {text}, error: {error}"
        )


def _reserved_memory(config: KubeletConfig) -> Iterator[ConfigProblem]:
    seen: set[tuple[int, str]] = set()
    for reservation in config.reserved_memory:
        for name, amount in sorted(reservation.limits.items()):
            node = reservation.numa_node
            if name != "memory" and not name.startswith("hugepages-"):
                yield ConfigProblem(
                    "reservedMemory",
                    f"the limit type {quote(name)} for NUMA node {node} is not supported, "
                    "only [memory hugepages-<HugePageSize>] is accepted",
                )
            if _is_zero(amount):
                yield ConfigProblem(
                    "reservedMemory", f"reserved memory may not be zero for NUMA node {node} and resource {quote(name)}"
                )
            if (node, name) in seen:
                yield ConfigProblem(
                    "reservedMemory",
                    f"the reserved memory has a duplicate value for NUMA node {node} and resource {quote(name)}",
                )
            seen.add((node, name))


def _is_zero(amount: str) -> bool:
    try:
        return Quantity.parse(amount).is_zero()
    except QuantityError:
        return False


def _cfs_period(config: KubeletConfig) -> Iterator[ConfigProblem]:
    if config.cpu_cfs_quota_period == DEFAULT_CFS_PERIOD:
        return
    try:
        period = parse_duration(config.cpu_cfs_quota_period)
    except DurationError as error:
        yield ConfigProblem("cpuCFSQuotaPeriod", f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period): {error}")
        return
    if not _MILLISECOND <= period <= _SECOND:
        yield ConfigProblem(
            "cpuCFSQuotaPeriod",
            f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{format_duration(period)}}} "
            "must be between 1ms and 1sec, inclusive",
        )


def _reconcile_period(config: KubeletConfig) -> Iterator[ConfigProblem]:
    try:
        parse_duration(config.cpu_manager_reconcile_period)
    except DurationError as error:
        yield ConfigProblem(
            "cpuManagerReconcilePeriod", f"cpuManagerReconcilePeriod (--cpu-manager-reconcile-period): {error}"
        )


def _enforcement(config: KubeletConfig) -> Iterator[ConfigProblem]:
    for key, count in Counter(config.enforce_node_allocatable).items():
        if count > 1:
            yield ConfigProblem(
                "enforceNodeAllocatable",
                f"duplicated enforcements {quote(key)} in enforceNodeAllocatable (--enforce-node-allocatable)",
            )
        if key != "none" and not config.cgroups_per_qos:
            yield ConfigProblem(
                "enforceNodeAllocatable",
                f"cgroupsPerQOS (--cgroups-per-qos) must be set to true when {quote(key)} contained in "
                "enforceNodeAllocatable (--enforce-node-allocatable)",
            )


def _memory_qos(config: KubeletConfig) -> Iterator[ConfigProblem]:
    factor = config.memory_throttling_factor
    if factor is not None and not 0 < factor <= 1:
        yield ConfigProblem(
            "memoryThrottlingFactor",
            f"memoryThrottlingFactor {factor:g} must be greater than 0 and less than or equal to 1.0",
        )
    if config.memory_reservation_policy not in ("None", "TieredReservation"):
        yield ConfigProblem(
            "memoryReservationPolicy",
            f"option {quote(config.memory_reservation_policy)} specified for memoryReservationPolicy. "
            'Valid options are "None" or "TieredReservation"',
        )


def _qos_reserved(config: KubeletConfig) -> Iterator[ConfigProblem]:
    for name, text in sorted(config.qos_reserved.items()):
        problem = _percentage_problem(text)
        if name != "memory":
            yield ConfigProblem(
                "qosReserved", f"--qos-reserved value failed to parse: cannot reserve {quote(name)} resource"
            )
        elif problem:
            yield ConfigProblem(
                "qosReserved",
                f"--qos-reserved value failed to parse: failed to parse percentage {quote(text)} for {quote(name)} "
                f"resource: {problem}",
            )


def _percentage_problem(text: str) -> str:
    if not text.endswith("%"):
        return f"percentage expected, got '{text}'"
    number = text[:-1]
    if not (number.isascii() and number.isdigit()):
        return f"invalid number in percentage '{text}'"
    return "" if int(number) <= 100 else "percentage must be between 0 and 100"
