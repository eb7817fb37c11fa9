"""The fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that the resource managers read."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from podslice.core.errors import InputError


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
DEFAULT_CFS_PERIOD = "100ms"
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
    cpu_manager_reconcile_period: str = "10s"
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
    max_pods: int = 110
    pods_per_core: int = 0
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
