"""PodslicePolicy: what podslice does beyond a kubelet, in one object beside the KubeletConfiguration.

The empty policy changes nothing: decisions, messages and state files are those without a policy.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from podslice.values.cpuset import CPUSetError, parse_bits
from podslice.values.errors import InputError
from podslice.values.quirks import PODSLICE, Quirks

API_VERSION: Final = "podslice.io/v1alpha1"
KIND: Final = "PodslicePolicy"
IMPLICIT_CLASS: Final = "isolated"
"""The class of CPUs that the kernel isolates, where classes are configured and none of them matches these CPUs."""


class ExclusiveResize(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """In-place resize of containers with exclusive CPUs, or memory on NUMA nodes.

    - `exclusive`: they can be resized, without the gates InPlacePodVerticalScalingExclusiveCPUs and -Memory too
    - `below_baseline`: whether a container may give up CPUs promised at its admission
    - `eligibility_change`: whether it may move between shared and exclusive CPUs
    - `misfit`: whether a growth that has no room waits, or is refused for good as KEP-5554 says
    - `memory_nodes`: whether memory that shrinks stays on its NUMA nodes, or leaves those that it no longer needs, so
      that the kernel moves its pages
    - `shrink_delay_seconds`: how long the agent leaves a container on the CPUs that it gives back, so that it can
      prepare
    """

    exclusive: bool = False
    below_baseline: Literal["infeasible", "allow"] = "infeasible"
    eligibility_change: Literal["infeasible", "allow"] = "infeasible"
    misfit: Literal["deferred", "infeasible"] = "deferred"
    memory_nodes: Literal["sticky", "follow"] = "sticky"
    shrink_delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0


class Defragmentation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Moves of running containers. `carry_out`: whether the agent moves any: never, on request, or for every pod that
    it refused. `movable`: which containers may be moved. `memory`: whether memory follows to other NUMA nodes."""

    carry_out: Literal["never", "onRequest", "automatic"] = "never"
    movable: Literal["annotated", "all", "none"] = "annotated"
    memory: Literal["never", "follow"] = "never"
    max_moves_per_hour: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 6


class AnnotationRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Annotations of pods under `podslice.io/` (`config.annotations`). `invalid`: whether an invalid one refuses the
    pod or is ignored. `namespaces`: globs of the namespaces whose pods may use them."""

    invalid: Literal["refuse", "ignore"] = "refuse"
    namespaces: tuple[str, ...] = ("*",)


class Hotplug(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Reaction to changes of a node's CPUs, memory or NUMA nodes (docs/hotplug.md).

    - `new_cpus`: whether new CPUs are shared
    - `lost_cpus`: an owner of CPUs that go runs on the rest (`degrade`), gets others for them (`replace`), or runs on
      the rest and should be drained by an operator (`drain`)
    - `memory`: whether the ledger follows the machine
    - `after_reboot`: what to do with state that does not fit a machine that changed over a reboot
    - `drift_tolerance`: how much memory may have moved over a reboot: `auto` (KEP-6232), `off`, a quantity, or `legacy`
      (the larger of 1 % and 64 MiB of each NUMA node)
    """

    new_cpus: Literal["share", "ignore"] = msgspec.field(default="share", name="newCPUs")
    lost_cpus: Literal["degrade", "replace", "drain"] = msgspec.field(default="degrade", name="lostCPUs")
    memory: Literal["track", "fixed"] = "track"
    after_reboot: Literal["rebuild", "refuse"] = "rebuild"
    drift_tolerance: str = "legacy"


OnError: TypeAlias = Literal["refuse", "skip", "static"]


class PluginEntry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A plugin of the CPU Manager. `weight`: factor of its scores. `on_error`: where it breaks its contract, the pod is
    refused, the plugin's scores are ignored, or the CPUs are picked as without plugins."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    weight: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    on_error: OnError = "refuse"
    arguments: dict[str, Any] = {}


class PluginRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Plugins of the CPU Manager, in the order in which they are called (docs/plugins.md). `hint_scores`: among sets of
    NUMA nodes that are equally good to the Topology Manager, the best score decides."""

    profile: tuple[PluginEntry, ...] = ()
    max_candidates: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    hint_scores: bool = False


class ClassMatch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Conditions for a CPU to be of a class; all that are set must hold. `core_type` as discovery names it
    (`performance`, `efficiency`), `capacity_at_least` 0 to 1024, `max_frequency_at_least` in kHz, `isolated`,
    `nohz_full` and `rcu_nocbs` as on the kernel's command line, `cpus` an explicit list."""

    isolated: bool | None = None
    nohz_full: bool | None = None
    rcu_nocbs: bool | None = None
    core_type: str | None = None
    capacity_at_least: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None
    max_frequency_at_least: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] | None = None
    numa_nodes: tuple[Annotated[int, msgspec.Meta(ge=0, le=1023)], ...] | None = None
    cpus: str | None = None


class CPUClass(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A kind of CPUs. `exclusive`: which containers may own them: all, those that request the class, none. `shared`:
    whether containers share them; `min_shared` of them are never owned. `overflow`: the classes used instead where this
    one is full."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
    match: ClassMatch = ClassMatch()
    exclusive: Literal["always", "onRequest", "never"] = "always"
    shared: bool = True
    min_shared: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0
    overflow: tuple[str, ...] = ()


class AssignRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The classes, best first, of containers that meet all conditions that are set; `NAME!` is required. `namespaces`
    are globs; `exclusive`: only containers that may own CPUs, or only the others."""

    classes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    namespaces: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    owner_kinds: tuple[str, ...] | None = None
    qos: tuple[Literal["Guaranteed", "Burstable", "BestEffort"], ...] | None = None
    priority_classes: tuple[str, ...] | None = None
    min_priority: int | None = None
    kinds: tuple[Literal["app", "init", "sidecar"], ...] | None = None
    exclusive: bool | None = None


def _default_weights() -> dict[str, int]:
    return {"cpu": 10, "memory": 5, "devices": 3}


class TopologyRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Choice of the Topology Manager's policy best-effort where no set of NUMA nodes suits all resources: as upstream,
    or by the weighted sum of what the resources get (docs/policy.md). `weights` by resource name, `devices` for all
    others. `mode`: whether all resources have one set of NUMA nodes, or each its own."""

    best_effort: Literal["upstream", "scored"] = "upstream"
    weights: dict[str, Annotated[int, msgspec.Meta(ge=0, le=1000)]] = msgspec.field(default_factory=_default_weights)
    mode: Literal["common", "perResource"] = "common"


Enforcing: TypeAlias = Literal["observe", "enforce"]
_Microseconds: TypeAlias = Annotated[
    str, msgspec.Meta(pattern="^(n/a|[0-9]{1,9})$", description="n/a, or microseconds")
]
_Frequency: TypeAlias = Annotated[
    str, msgspec.Meta(pattern="^(min|base|turbo|[0-9]{1,9})$", description="min, base, turbo, or kHz")
]


_CacheMask: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern="^([0-9a-fA-F]{1,16}|[0-9]{1,4}=[0-9a-fA-F]{1,16}(;[0-9]{1,4}=[0-9a-fA-F]{1,16}){0,255})$",
        description="hexadecimal, or CACHE=HEX with ; between them",
    ),
]
_Bandwidth: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern="^([0-9]{1,9}|[0-9]{1,4}=[0-9]{1,9}(;[0-9]{1,4}=[0-9]{1,9}){0,255})$",
        description="a number, or DOMAIN=NUMBER with ; between them",
    ),
]
_GroupName: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$")]
Partitioning: TypeAlias = Literal["observe", "enforce", "auto"]


class MixedCPUs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Containers with exclusive and shared CPUs (docs/policy.md).

    - `pool`: the CPUs that they share: a pool for such containers (`default`), or a list of CPUs that no container may
      own
    - `near`: whether any CPUs of the pool, or only those on the NUMA nodes of the container's own ones, if there are
      some
    - `free`: how many containers of the node may have shared CPUs on top of whole ones without requesting a part of a
      CPU
    - `quota`: whether a CPU limit is enforced
    - `environment`: variables, named as by other products, in which containers find their CPUs as well
    """

    pool: str = "default"
    near: Literal["any", "numa"] = "any"
    free: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    quota: Literal["off", "total"] = "off"
    environment: tuple[Literal["openshift", "cpu-pooler", "downward"], ...] = ()


class PowerProfile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Power management of CPUs; what is absent stays as it is. `governor` and `epp` (energy performance preference) by
    cpufreq's names, frequencies in kHz or as `min`, `base`, `turbo`, `resume_latency_us` as PM QoS takes it (`n/a`: no
    sleep at all), `disabled_idle_states` by cpuidle's names."""

    governor: str = ""
    epp: str = ""
    min_freq: _Frequency | None = None
    max_freq: _Frequency | None = None
    resume_latency_us: _Microseconds | None = None
    disabled_idle_states: tuple[str, ...] = ()


class CacheClass(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Limits of resctrl for CPUs (docs/isolation.md): hexadecimal masks of cache ways, for every cache (`ff0`) or each
    (`0=ff0;1=f`); `l3` is for code and data where the machine distinguishes them (CDP). `memory_bandwidth` as the
    kernel takes it: percent, or MB/s with `mba_MBps`. What is absent stays as it is."""

    l3: _CacheMask | None = None
    l3_code: _CacheMask | None = None
    l3_data: _CacheMask | None = None
    l2: _CacheMask | None = None
    memory_bandwidth: _Bandwidth | None = None


class InterferenceGuards(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Protection of exclusive CPUs from other users (docs/isolation.md): each guard counts violations (`observe`) or
    removes them (`enforce`).

    - `irq`: interrupts, network queues and unbound workqueues
    - `partition`: partitions of cpusets, by which the kernel itself keeps others away (`auto`: enforced from Linux 6.11
      on)
    - `units`, `sandboxes`, `kthreads`: where the system's services, the sandboxes of pods and movable threads of the
      kernel may run
    - `power`: profiles of `power_profiles`; `default_power` is that of containers that request none
    - `cache`: likewise with `cache_classes` and `default_cache`
    - `claimable`: globs of devices whose interrupts containers may claim
    - `housekeeping_cpus`: where work goes that has no other CPU left; empty: any CPU that no container owns
    - `required`: no container gets exclusive CPUs while an enforced guard cannot do its work
    - `metrics`: of all containers with exclusive CPUs together, or of each (docs/isolation.md), sampled every
      `sample_seconds`
    """

    irq: Enforcing = "observe"
    partition: Partitioning = "observe"
    power: Enforcing = "observe"
    units: Enforcing = "observe"
    sandboxes: Enforcing = "observe"
    kthreads: Enforcing = "observe"
    cache: Enforcing = "observe"
    power_profiles: dict[str, PowerProfile] = {}
    default_power: str = ""
    cache_classes: dict[_GroupName, CacheClass] = {}
    default_cache: str = ""
    claimable: tuple[str, ...] = ()
    housekeeping_cpus: str = msgspec.field(default="", name="housekeepingCPUs")
    required: bool = False
    metrics: Literal["off", "totals", "containers"] = "off"
    sample_seconds: Annotated[float, msgspec.Meta(ge=5, le=3600)] = 30.0


class ClaimMemory(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Memory and huge pages of a NUMA node reserved for claims, by resource."""

    numa_node: Annotated[int, msgspec.Meta(ge=0, le=1023)]
    limits: dict[str, str]


ClaimDevices: TypeAlias = Literal["perNUMANode", "perCPU", "partitions"]


class ClaimRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The part of a node that claims of devices use (docs/dra.md): `cpus`, which no container owns by its requests and
    which are shared while unclaimed, and `memory`. `devices`: what a device stands for: the CPUs of a NUMA node, of
    which claims take amounts; single CPUs (or cores); or whole caches, NUMA nodes, sockets and the machine, of which
    each excludes those that it overlaps."""

    cpus: str
    memory: tuple[ClaimMemory, ...] = ()
    devices: ClaimDevices = "perNUMANode"


FormulaName: TypeAlias = Literal["auto", "max", "measured", "gke", "eks", "aks", "aks-1.28", "openshift", "onprem"]
PlacementName: TypeAlias = Literal["first", "device-free", "per-node", "efficiency", "isolate-aware"]


class ReservationRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Resources that a node should keep for its system (docs/reserve.md), for `reserve` and `lint`. `measure`: whether
    the agent records what the system uses. `pods`: most pods on the node; None: as many as the kubelet takes."""

    measure: bool = False
    formula: FormulaName = "auto"
    placement: PlacementName | None = None
    pods: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    housekeeping_per_node: bool = False
    strict: bool = False


class PodslicePolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The `spec` of the object; an absent section behaves as without a policy."""

    resize: ExclusiveResize = ExclusiveResize()
    defrag: Defragmentation = Defragmentation()
    annotations: AnnotationRules = AnnotationRules()
    plugins: PluginRules = PluginRules()
    cpu_classes: tuple[CPUClass, ...] = ()
    assign: tuple[AssignRule, ...] = ()
    topology: TopologyRules = TopologyRules()
    hotplug: Hotplug | None = None
    """None: a change of the machine is noticed at the next start, as by a kubelet."""
    mixed: MixedCPUs | None = None
    """None: the CPUs of a container are either exclusive or shared."""
    reservation: ReservationRules = ReservationRules()
    guards: InterferenceGuards | None = None
    """None: the kernel's files are not read."""
    claims: ClaimRules | None = None
    """None: no part of the node is for claims."""


NO_POLICY: Final = PodslicePolicy()


def check_policy(policy: PodslicePolicy, quirks: Quirks) -> None:
    """Raise `InputError` for a policy in a profile that predicts a kubelet, and for references to undefined profiles or
    classes."""
    if policy.guards is not None:
        _check_guards(policy.guards)
    if quirks != PODSLICE:
        for field in msgspec.structs.fields(PodslicePolicy):
            if not _keeps_decisions(field.name, getattr(policy, field.name)):
                remedy = "leave it out, or use profile podslice"
                raise InputError("a kubelet has no such policy", path=f"spec.{field.encode_name}", remedy=remedy)


def _check_guards(guards: InterferenceGuards) -> None:
    named = (
        ("defaultPower", guards.default_power, "power profile", "powerProfiles", guards.power_profiles),
        ("defaultCache", guards.default_cache, "cache class", "cacheClasses", guards.cache_classes),
    )
    for field, name, what, where, defined in named:
        if name and name not in defined:
            known = ", ".join(sorted(defined)) or "none"
            remedy = f"one of guards.{where} ({known})"
            raise InputError(f"{name!r} is not a {what}", path=f"spec.guards.{field}", remedy=remedy)
    try:
        parse_bits(guards.housekeeping_cpus)
    except CPUSetError as error:
        path = "spec.guards.housekeepingCPUs"
        raise InputError(error.problem, path=path, remedy="write for example 0-1,64") from None


def _keeps_decisions(name: str, section: object) -> bool:
    """Whether a section changes no decision of a kubelet: an absent one, advice, or guards that only observe."""
    if isinstance(section, InterferenceGuards):
        guards = {section.irq, section.partition, section.power, section.units, section.sandboxes}
        return guards | {section.kthreads, section.cache} == {"observe"} and not section.required
    return name == "reservation" or bool(section == getattr(NO_POLICY, name))
