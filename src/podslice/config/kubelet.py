"""The fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that the resource managers read (cpu-topology 2.1;
memory-device 1.1.2, 3.9)."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import msgspec

from podslice.config.schema import later_fields
from podslice.values.errors import InputError
from podslice.values.releases.release import Release


class MemoryReservation(msgspec.Struct, frozen=True, rename="camel"):
    """An element of `reservedMemory`: quantities by resource for one NUMA node."""

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
    """Checks names and types of the constructor's keyword arguments, so that a mistake is reported where it is
    written."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805 - a metaclass
        for name, value in fields.items():
            _check_field(cls, name, value)
        return super().__call__(*args, **fields)


@cache
def _field_types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _check_field(cls: type, name: str, value: object) -> None:
    kinds = _field_types(cls)
    if name not in kinds:
        spelt = dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))  # type: ignore[attr-defined]
        meant = spelt.get(name) or next(iter(get_close_matches(name, kinds, 1)), "")
        remedy = f"did you mean {meant}?" if meant else f"one of {', '.join(kinds)}"
        raise InputError("is not a field of KubeletConfig", path=name, remedy=remedy)
    try:
        msgspec.convert(value, kinds[name])
    except msgspec.ValidationError as error:
        raise InputError(f"{value!r}: {error}", path=name) from None


class IgnoredField(NamedTuple):
    """A part of a configuration that a kubelet ignores: an unknown field, with `close`, the most similar known name, if
    any; or a field, or the whole file, about which `problem` says why. `remedy`: what to do, where that is known."""

    name: str
    close: str = ""
    problem: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name} {self.problem}".strip()
        hint = f"; did you mean {self.close}?" if self.close else ""
        return f"unknown field {self.name} is ignored{hint}"


class ConfigProblem(NamedTuple):
    """An error of a configuration: the field, and upstream's text about it. Prints as in the kubelet's log."""

    field: str
    text: str
    prefix: str = "invalid configuration: "

    def __str__(self) -> str:
        return self.prefix + self.text


class KubeletConfig(msgspec.Struct, frozen=True, rename="camel", metaclass=_Fields):
    """A KubeletConfiguration; attribute names are the YAML names in snake_case. Defaults are the kubelet's own.

    Raises `InputError` for a field that does not exist and for a value of another type; `Node` checks whether a kubelet
    starts with the values. Quantities and durations stay text, as in the file. `eviction_hard` None means the kubelet's
    default thresholds. An empty policy or scope and 0 pods become the default, as in a kubelet.
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
    eviction_soft: dict[str, str] = {}
    eviction_soft_grace_period: dict[str, str] = {}
    eviction_minimum_reclaim: dict[str, str] = {}
    memory_manager_policy: str = "None"
    memory_manager_policy_options: dict[str, str] = {}
    """Not of v1.36.2: KEP-6232 defines `memory-drift-tolerance` here; profile podslice reads it."""
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
    other_fields: dict[str, Any] = {}
    """Fields of the file that no resource manager reads, by their YAML names. They can keep a kubelet from starting
    too."""

    def __post_init__(self) -> None:
        for name in _DEFAULT_FOR_EMPTY:
            if not getattr(self, name):
                # A kubelet defaults every zero value: to Go an empty text or a 0 looks like an absent field.
                msgspec.structs.force_setattr(self, name, _DEFAULTS[name])
        # Every negative limit becomes the default of -1, no limit (memory-device 3.11).
        if self.pod_pids_limit < 0:
            msgspec.structs.force_setattr(self, "pod_pids_limit", -1)
        if self.cpu_manager_reconcile_period in _NO_TIME:
            msgspec.structs.force_setattr(self, "cpu_manager_reconcile_period", DEFAULT_RECONCILE_PERIOD)

    def document(self) -> dict[str, Any]:
        """Return the fields as in a file: all that the resource managers read, and the other fields that were set."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return {**fields.pop("otherFields"), **fields}

    @property
    def eviction_thresholds(self) -> dict[str, str]:
        """Hard eviction thresholds, or the kubelet's default."""
        if self.eviction_hard is None:
            return DEFAULT_EVICTION_HARD
        # Without this field, thresholds in the file replace all the defaults, not only those of the same signals.
        merges = self.other_fields.get("mergeDefaultEvictionSettings")
        return DEFAULT_EVICTION_HARD | self.eviction_hard if merges else self.eviction_hard

    @property
    def aligns(self) -> bool:
        """Whether the Topology Manager has a policy other than none."""
        return self.topology_manager_policy != "none"

    @property
    def aligns_pods(self) -> bool:
        """Whether the Topology Manager aligns pods as a whole (scope pod)."""
        return self.aligns and self.topology_manager_scope == "pod"


_DEFAULT_FOR_EMPTY = (
    "cpu_manager_policy", "memory_manager_policy", "topology_manager_policy", "topology_manager_scope",
    "memory_reservation_policy", "max_pods",
)  # fmt: skip
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(KubeletConfig)}
_NO_TIME = ("0", "0s", "0ms", "0m", "0h")


# Fields that a release does not have: a kubelet ignores them, and warns in its log

_OWN = {field.encode_name: (field.name, field.default) for field in msgspec.structs.fields(KubeletConfig)}
"""The fields that have an attribute of a `KubeletConfig`: its name and default."""


def fields_in(config: KubeletConfig, release: Release) -> KubeletConfig:
    """Return the configuration as a kubelet of a release reads it: without the fields that this release does not
    have."""
    late = unknown_fields(config, release)
    if not late:
        return config
    others = {name: value for name, value in config.other_fields.items() if name not in late}
    defaults = {_OWN[name][0]: _OWN[name][1] for name in late if name in _OWN}
    return msgspec.structs.replace(config, other_fields=others, **defaults)


def unknown_fields(config: KubeletConfig, release: Release) -> dict[str, int]:
    """Return the fields that are set and that a release does not have, with the minor version that brings each."""
    return {name: minor for name, minor in _fields_after(release.minor) if _is_set(config, name)}


@cache
def _fields_after(minor: int) -> tuple[tuple[str, int], ...]:
    return tuple((name, since) for name, since in later_fields().items() if since > minor)


def _is_set(config: KubeletConfig, name: str) -> bool:
    own = _OWN.get(name)
    return name in config.other_fields if own is None else getattr(config, own[0]) != own[1]


def ignored_fields(config: KubeletConfig, release: Release) -> tuple[IgnoredField, ...]:
    """Return the fields that a kubelet of a release ignores because a later release brings them."""
    return tuple(
        IgnoredField(
            name,
            problem=f"is ignored: Kubernetes 1.{minor} is the first to have it, not {release}",
            remedy=f"remove it, or set it with Kubernetes 1.{minor}",
        )
        for name, minor in unknown_fields(config, release).items()
    )
