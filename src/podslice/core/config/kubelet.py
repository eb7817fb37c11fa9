"""The fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that the resource managers read, and which errors
in them keep a kubelet from starting, in upstream's exact texts (cpu-topology 2.1, 3.1; memory-device 1.1.2, 3.9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import msgspec

from podslice.core.config.policy_options import POLICIES, SCOPES
from podslice.core.errors import InputError
from podslice.core.values.cpuset import CPUSetError, parse_ranges
from podslice.core.values.duration import DurationError, format_duration, parse_duration
from podslice.core.values.gates import FeatureGates, GateError
from podslice.core.values.golang import quote
from podslice.core.values.quantity import Quantity, QuantityError


class MemoryReservation(msgspec.Struct, frozen=True, rename="camel"):
    """One element of `reservedMemory`: quantities by resource for one NUMA node."""

    numa_node: int
    limits: dict[str, str] = {}


DEFAULT_EVICTION_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
DEFAULT_CFS_PERIOD, DEFAULT_RECONCILE_PERIOD = "100ms", "10s"
DRIFT_TOLERANCE = "memory-drift-tolerance"


class _Fields(msgspec.StructMeta):
    """Tells what is wrong with a field where it is written."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805 - a metaclass
        for name, value in fields.items():
            _check(cls, name, value)
        return super().__call__(*args, **fields)


@cache
def _kinds(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _check(cls: type, name: str, value: object) -> None:
    kinds = _kinds(cls)
    if name not in kinds:
        spelt = dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))  # type: ignore[attr-defined]
        meant = spelt.get(name) or next(iter(get_close_matches(name, kinds, 1)), "")
        remedy = f"did you mean {meant}?" if meant else f"one of {', '.join(kinds)}"
        raise InputError("is no field of KubeletConfig", path=name, remedy=remedy)
    try:
        msgspec.convert(value, kinds[name])
    except msgspec.ValidationError as error:
        raise InputError(f"{value!r}: {error}", path=name) from None


class IgnoredField(NamedTuple):
    """A field of a configuration that nobody knows. `close` is the known name that looks most like it, if one does."""

    name: str
    close: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean {self.close}?" if self.close else ""
        return f"unknown field {self.name} is ignored{hint}"


class KubeletConfig(msgspec.Struct, frozen=True, rename="camel", metaclass=_Fields):
    """A KubeletConfiguration; attribute names are the YAML names in snake_case. Defaults are the kubelet's own.

    Raises `InputError` for a field that does not exist and a value of another type; whether a kubelet starts with the
    values is for `Node` to say. Quantities and durations stay text, as in the file. `eviction_hard` None means the
    kubelet's default thresholds.
    """

    feature_gates: dict[str, bool] = {}
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = {}
    cpu_manager_reconcile_period: str = DEFAULT_RECONCILE_PERIOD
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    kube_reserved: dict[str, str] = {}
    system_reserved: dict[str, str] = {}
    kube_reserved_cgroup: str = ""
    system_reserved_cgroup: str = ""
    eviction_hard: dict[str, str] | None = None
    memory_manager_policy: str = "None"
    memory_manager_policy_options: dict[str, str] = {}
    """Not of v1.36.2: KEP-6232 has `memory-drift-tolerance` here, profile podslice reads it."""
    reserved_memory: tuple[MemoryReservation, ...] = ()
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: dict[str, str] = {}
    cpu_cfs_quota: bool = msgspec.field(default=True, name="cpuCFSQuota")
    cpu_cfs_quota_period: str = msgspec.field(default=DEFAULT_CFS_PERIOD, name="cpuCFSQuotaPeriod")
    cgroups_per_qos: bool = msgspec.field(default=True, name="cgroupsPerQOS")
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    qos_reserved: dict[str, str] = {}
    memory_throttling_factor: float | None = None
    memory_reservation_policy: str = "None"
    max_pods: Int32 = 110
    pods_per_core: Int32 = 0
    pod_pids_limit: int = -1
    fail_swap_on: bool = True
    memory_swap: dict[str, Any] = {}
    single_process_oom_kill: bool | None = msgspec.field(default=None, name="singleProcessOOMKill")

    @property
    def eviction_thresholds(self) -> dict[str, str]:
        """Hard eviction thresholds with the default filled in."""
        return DEFAULT_EVICTION_HARD if self.eviction_hard is None else self.eviction_hard

    @property
    def aligns(self) -> bool:
        """The Topology Manager has a policy other than none."""
        return self.topology_manager_policy != "none"

    @property
    def aligns_pods(self) -> bool:
        """The Topology Manager aligns pods as a whole (scope pod)."""
        return self.aligns and self.topology_manager_scope == "pod"


_MILLISECOND, _SECOND = 10**6, 10**9
ENFORCEMENTS = (
    "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none",
)  # fmt: skip
"""What `enforceNodeAllocatable` may name."""
SWAP_BEHAVIORS = ("", "LimitedSwap", "NoSwap")


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
        *_pods(config),
        *_swap(config),
        *_memory_qos(config),
        *_qos_reserved(config),
    )
    return sorted(set(errors), key=lambda problem: problem.text)


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
    if config.cpu_manager_reconcile_period == DEFAULT_RECONCILE_PERIOD:
        return
    try:
        parse_duration(config.cpu_manager_reconcile_period)
    except DurationError as error:
        yield ConfigProblem(
            "cpuManagerReconcilePeriod", f"cpuManagerReconcilePeriod (--cpu-manager-reconcile-period): {error}"
        )


def _enforcement(config: KubeletConfig) -> Iterator[ConfigProblem]:
    for text in _enforcement_problems(config):
        yield ConfigProblem("enforceNodeAllocatable", text)


def _enforcement_problems(config: KubeletConfig) -> Iterator[str]:
    where = "enforceNodeAllocatable (--enforce-node-allocatable)"
    wanted = config.enforce_node_allocatable
    for key, count in Counter(wanted).items():
        if count > 1:
            yield f"duplicated enforcements {quote(key)} in {where}"
        if key not in ENFORCEMENTS:
            known = ", ".join(map(quote, ENFORCEMENTS[:-1]))
            yield f"option {quote(key)} specified for {where}. Valid options are {known} or {quote(ENFORCEMENTS[-1])}"
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


def _pods(config: KubeletConfig) -> Iterator[ConfigProblem]:
    for field, flag, number in (
        ("maxPods", "--max-pods", config.max_pods),
        ("podsPerCore", "--pods-per-core", config.pods_per_core),
    ):
        if number < 0:
            yield ConfigProblem(field, f"{field} ({flag}) {number} must not be a negative number")


def _swap(config: KubeletConfig) -> Iterator[ConfigProblem]:
    behavior = config.memory_swap.get("swapBehavior", "")
    if behavior not in SWAP_BEHAVIORS:
        yield ConfigProblem(
            "memorySwap.swapBehavior",
            f'memorySwap.swapBehavior {quote(str(behavior))} must be one of: "", "LimitedSwap" or "NoSwap"',
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
    if config.memory_reservation_policy == "TieredReservation" and not _has_gate(config, "MemoryQoS"):
        yield ConfigProblem(
            "memoryReservationPolicy",
            'memoryReservationPolicy "TieredReservation" requires MemoryQoS feature gate to be enabled',
        )


def _has_gate(config: KubeletConfig, name: str) -> bool:
    """True too where the gates are no gates, which is said of themselves."""
    try:
        return FeatureGates.from_overrides(config.feature_gates)[name]
    except GateError:
        return True


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
