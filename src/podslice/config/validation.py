"""Errors in the values of a KubeletConfiguration that keep a kubelet from starting, in upstream's exact texts
(cpu-topology 2.1, 3.1; memory-device 1.1.2, 3.9)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from podslice.config.kubelet import DEFAULT_CFS_PERIOD, DEFAULT_RECONCILE_PERIOD, ConfigProblem, KubeletConfig
from podslice.config.other_fields import other_problems
from podslice.config.policy_options import POLICIES, SCOPES
from podslice.values.cpuset import CPUSetError, parse_ranges
from podslice.values.duration import DurationError, format_duration, parse_duration
from podslice.values.gates import all_gates
from podslice.values.golang import quote
from podslice.values.quantity import Quantity, QuantityError
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

_MILLISECOND, _SECOND = 10**6, 10**9
_DEFAULT_CFS_PERIOD = 100 * _MILLISECOND
ENFORCEMENTS = (
    "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none",
)  # fmt: skip
"""Valid values in `enforceNodeAllocatable`."""
SWAP_BEHAVIORS = ("", "LimitedSwap", "NoSwap")


def validate(config: KubeletConfig, release: Release = DEFAULT, *, cgroup_version: int = 2) -> list[ConfigProblem]:
    """Return all errors that a kubelet of a release finds in a configuration on a host with this version of cgroups,
    sorted by text, repeated ones repeated; empty for a valid configuration."""
    # Gates of later releases are off.
    gates = defaultdict(bool, all_gates(config.feature_gates, release.minor))
    errors = (
        *_topology_problems(config),
        *_reserved_cpus_problems(config),
        *_reserved_memory_problems(config),
        *_cfs_period_problems(config, gates),
        *_reconcile_period_problems(config),
        *_enforcement_problems(config, release),
        *_pod_count_problems(config),
        *_swap_problems(config),
        *_memory_qos_problems(config, gates),
        *_qos_reserved_problems(config),
        *other_problems(config.other_fields, gates),
        *(_cgroup_v1_problems(config, release) if cgroup_version == 1 else ()),
    )
    return sorted(errors, key=str)


def _topology_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
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


def _reserved_cpus_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
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


def _reserved_memory_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
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
    """Whether an amount is 0. Unreadable amounts are reported later, when the Memory Manager starts."""
    try:
        return Quantity.parse(amount).is_zero()
    except QuantityError:
        return False


def _cfs_period_problems(config: KubeletConfig, gates: Mapping[str, bool]) -> Iterator[ConfigProblem]:
    if config.cpu_cfs_quota_period == DEFAULT_CFS_PERIOD:
        return
    try:
        period = parse_duration(config.cpu_cfs_quota_period)
    except DurationError as error:
        yield ConfigProblem("cpuCFSQuotaPeriod", f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period): {error}")
        return
    if not gates["CustomCPUCFSQuotaPeriod"] and period != _DEFAULT_CFS_PERIOD:
        yield ConfigProblem(
            "cpuCFSQuotaPeriod",
            f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{format_duration(period)}}} "
            "requires feature gate CustomCPUCFSQuotaPeriod",
        )
    # The range is checked only with the gate on; with it off every other period is refused above.
    elif not _MILLISECOND <= period <= _SECOND:
        yield ConfigProblem(
            "cpuCFSQuotaPeriod",
            f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{format_duration(period)}}} "
            "must be between 1ms and 1sec, inclusive",
        )


def _reconcile_period_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
    if config.cpu_manager_reconcile_period == DEFAULT_RECONCILE_PERIOD:
        return
    try:
        parse_duration(config.cpu_manager_reconcile_period)
    except DurationError as error:
        yield ConfigProblem(
            "cpuManagerReconcilePeriod", f"cpuManagerReconcilePeriod (--cpu-manager-reconcile-period): {error}"
        )


def _enforcement_problems(config: KubeletConfig, release: Release) -> Iterator[ConfigProblem]:
    for text in _enforcement_texts(config, release):
        yield ConfigProblem("enforceNodeAllocatable", text)


def _enforcement_texts(config: KubeletConfig, release: Release) -> Iterator[str]:
    allowed = [one for one in ENFORCEMENTS if release.enforces_compressible or not one.endswith("-compressible")]
    where = "enforceNodeAllocatable (--enforce-node-allocatable)"
    wanted = config.enforce_node_allocatable
    # Upstream reports each duplicate once, however often it is repeated (memory-device 3.9).
    for key, count in Counter(wanted).items():
        if count > 1:
            yield f"duplicated enforcements {quote(key)} in {where}"
        if key not in allowed:
            known = ", ".join(map(quote, allowed[:-1]))
            yield f"option {quote(key)} specified for {where}. Valid options are {known} or {quote(allowed[-1])}"
        elif key == "none" and len(wanted) > 1:
            yield f'{where} may not contain additional enforcements when "none" is specified'
        elif key != "none" and not config.cgroups_per_qos:
            yield f"cgroupsPerQOS (--cgroups-per-qos) must be set to true when {quote(key)} contained in {where}"
    for name, cgroup in (("system", config.system_reserved_cgroup), ("kube", config.kube_reserved_cgroup)):
        hard, soft = f"{name}-reserved", f"{name}-reserved-compressible"
        if hard in wanted and soft in wanted:
            yield f"both {quote(hard)} and {quote(soft)} cannot be specified together in {where}"
        if not cgroup and (hard in wanted or soft in wanted):
            yield (
                f"{name}ReservedCgroup (--{name}-reserved-cgroup) must be specified when {quote(hard)} or "
                f"{quote(soft)} included in {where}"
            )


def _pod_count_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
    for field, flag, number in (
        ("maxPods", "--max-pods", config.max_pods),
        ("podsPerCore", "--pods-per-core", config.pods_per_core),
    ):
        if number < 0:
            yield ConfigProblem(field, f"{field} ({flag}) {number} must not be a negative number")


def _swap_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
    behavior = config.memory_swap.get("swapBehavior", "")
    if behavior not in SWAP_BEHAVIORS:
        yield ConfigProblem(
            "memorySwap.swapBehavior",
            f'memorySwap.swapBehavior {quote(str(behavior))} must be one of: "", "LimitedSwap" or "NoSwap"',
        )


def _memory_qos_problems(config: KubeletConfig, gates: Mapping[str, bool]) -> Iterator[ConfigProblem]:
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
    if config.memory_reservation_policy == "TieredReservation" and not gates["MemoryQoS"]:
        yield ConfigProblem(
            "memoryReservationPolicy",
            'memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled',
        )


def _cgroup_v1_problems(config: KubeletConfig, release: Release) -> Iterator[ConfigProblem]:
    refused = config.other_fields.get("failCgroupV1")
    if not (refused if refused is not None else not release.runs_on_cgroup_v1):
        return
    fate = "in maintenance mode" if release.runs_on_cgroup_v1 else "unsupported and will be removed in a future release"
    text = f"kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is {fate}"
    yield ConfigProblem("failCgroupV1", text, "")


def _qos_reserved_problems(config: KubeletConfig) -> Iterator[ConfigProblem]:
    for name, text in sorted(config.qos_reserved.items()):
        problem = _percentage_problem(text)
        if name != "memory":
            yield ConfigProblem(
                "qosReserved", f"--qos-reserved value failed to parse: cannot reserve {quote(name)} resource", ""
            )
        elif problem:
            yield ConfigProblem(
                "qosReserved",
                f"--qos-reserved value failed to parse: failed to parse percentage {quote(text)} for {quote(name)} "
                f"resource: {problem}",
                "",
            )


def _percentage_problem(text: str) -> str:
    if not text.endswith("%"):
        return f"percentage expected, got '{text}'"
    number = text[:-1]
    if not (number.isascii() and number.isdigit()):
        return f"invalid number in percentage '{text}'"
    return "" if int(number) <= 100 else "percentage must be between 0 and 100"
