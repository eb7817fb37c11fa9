"""Settings of a kubelet that change nothing beside the others, or on a machine (cpu-topology 3.3, 9.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.config.kubelet import DEFAULT_CFS_PERIOD, DEFAULT_RECONCILE_PERIOD, KubeletConfig
from podslice.config.policy_options import DEFAULT_NUMA_LIMIT, LIMIT_OPTION, NONE, SINGLE_NUMA_NODE
from podslice.machine.model import CPUTopology
from podslice.values.golang import GoSyntaxError, parse_bool

_TOPOLOGY = "topologyManagerPolicyOptions"
_CPU = "cpuManagerPolicyOptions"
_CLOSEST = "prefer-closest-numa-nodes"


class NoEffect(NamedTuple):
    """A setting without effect: its field, a clause that says why, and what to do. `by_machine`: on other machines it
    has one."""

    field: str
    why: str
    fix: str
    by_machine: bool = False

    @property
    def sentence(self) -> str:
        """The whole sentence, without a full stop."""
        return f"{self.field} has no effect{' here' if self.by_machine else ''}: {self.why}"


def settings_without_effect(
    config: KubeletConfig, gates: Mapping[str, bool], topology: CPUTopology | None = None
) -> tuple[NoEffect, ...]:
    """Return the settings of a valid configuration that change nothing, those of a machine where it is known."""
    found = [*_topology_manager(config), *_managers(config), *_quota(config), *_cgroups(config), *_gates(config)]
    found += _memory_quality(config, gates)
    if topology is not None:
        found += [*_cpu_options(config, topology), *_topology_options(config, topology)]
    return tuple(one for one in found if not one.field.startswith("featureGates") or _is_known(one.field, gates))


def _is_known(field: str, gates: Mapping[str, bool]) -> bool:
    return field.removeprefix("featureGates[").removesuffix("]") in gates


def _is_on(options: Mapping[str, str], name: str) -> bool:
    try:
        return parse_bool(options.get(name, "false"))
    except GoSyntaxError:
        return False


def _topology_manager(config: KubeletConfig) -> Iterator[NoEffect]:
    why, fix = "topologyManagerPolicy is none, so nothing is aligned", "set topologyManagerPolicy, or remove it"
    if not config.aligns:
        if config.topology_manager_scope == "pod":
            yield NoEffect("topologyManagerScope", why, fix)
        for name in config.topology_manager_policy_options:
            yield NoEffect(f"{_TOPOLOGY}[{name}]", why, fix)
        if config.cpu_manager_policy == "static" and _is_on(config.cpu_manager_policy_options, "align-by-socket"):
            yield NoEffect(f"{_CPU}[align-by-socket]", why, fix)
    elif config.topology_manager_policy == SINGLE_NUMA_NODE:
        single = "single-numa-node keeps what it aligns on one NUMA node"
        if _is_on(config.topology_manager_policy_options, _CLOSEST):
            yield NoEffect(f"{_TOPOLOGY}[{_CLOSEST}]", single, "remove it, or choose restricted or best-effort")
        if config.cpu_manager_policy == "static" and _is_on(
            config.cpu_manager_policy_options, "distribute-cpus-across-numa"
        ):
            yield NoEffect(
                f"{_CPU}[distribute-cpus-across-numa]", single, "remove it, or choose restricted or best-effort"
            )


def _managers(config: KubeletConfig) -> Iterator[NoEffect]:
    if config.reserved_memory and config.memory_manager_policy == "None":
        why = "memoryManagerPolicy is None, so no memory is bound to NUMA nodes"
        yield NoEffect("reservedMemory", why, "set memoryManagerPolicy: Static, or remove it")
    if config.cpu_manager_policy == "none" and config.cpu_manager_reconcile_period != DEFAULT_RECONCILE_PERIOD:
        yield NoEffect("cpuManagerReconcilePeriod", "cpuManagerPolicy is none, so there is nothing to renew",
                       "set cpuManagerPolicy: static, or remove it")  # fmt: skip


def _quota(config: KubeletConfig) -> Iterator[NoEffect]:
    if not config.cpu_cfs_quota and config.cpu_cfs_quota_period != DEFAULT_CFS_PERIOD:
        yield NoEffect("cpuCFSQuotaPeriod", "cpuCFSQuota is false, so no CPU limit is enforced",
                       "set cpuCFSQuota: true, or remove it")  # fmt: skip


def _memory_quality(config: KubeletConfig, gates: Mapping[str, bool]) -> Iterator[NoEffect]:
    """Yield settings that only a gate brings to life."""
    for field, is_set, gate in (
        ("qosReserved", bool(config.qos_reserved), "QOSReserved"),
        # 0.9 is the default, which a kubelet shows of itself.
        ("memoryThrottlingFactor", config.memory_throttling_factor not in (None, 0.9), "MemoryQoS"),
    ):
        if is_set and not gates[gate]:
            yield NoEffect(field, f"the feature gate {gate} is off", f"set featureGates {gate}: true, or remove it")


def _cgroups(config: KubeletConfig) -> Iterator[NoEffect]:
    for field, cgroup, name in (
        ("kubeReservedCgroup", config.kube_reserved_cgroup, "kube-reserved"),
        ("systemReservedCgroup", config.system_reserved_cgroup, "system-reserved"),
    ):
        # Also with the compressible part alone, which 1.32 brings.
        if cgroup and not any(one.startswith(name) for one in config.enforce_node_allocatable):
            yield NoEffect(field, f"enforceNodeAllocatable does not name {name}",
                           f"add {name} to enforceNodeAllocatable, or remove it")  # fmt: skip


def _gates(config: KubeletConfig) -> Iterator[NoEffect]:
    """Yield gates that are turned on and serve a manager that is off."""
    static_cpus, static_memory = config.cpu_manager_policy == "static", config.memory_manager_policy == "Static"
    idle = {
        "CPUManagerPolicyAlphaOptions": (not static_cpus, "cpuManagerPolicy is none, which takes no options"),
        "TopologyManagerPolicyAlphaOptions": (not config.aligns, "topologyManagerPolicy is none"),
        "InPlacePodVerticalScalingExclusiveCPUs": (not static_cpus, "cpuManagerPolicy is none: no CPU is exclusive"),
        "InPlacePodVerticalScalingExclusiveMemory": (
            not static_memory, f"memoryManagerPolicy is {config.memory_manager_policy}: no memory is exclusive"),
        "PodLevelResourceManagers": (
            not (static_cpus or static_memory or config.aligns), "the CPU, Memory and Topology Managers are off"),
    }  # fmt: skip
    for name, (has_no_effect, why) in idle.items():
        if has_no_effect and config.feature_gates.get(name):
            yield NoEffect(f"featureGates[{name}]", why, "turn the manager on, or remove the gate")


def _cpu_options(config: KubeletConfig, topology: CPUTopology) -> Iterator[NoEffect]:
    if config.cpu_manager_policy != "static":
        return
    fix = "keep it where other machines of the pool differ, else remove it"
    options = config.cpu_manager_policy_options
    if topology.cpus_per_core == 1 and _is_on(options, "full-pcpus-only"):
        why = "this machine has one thread per core, so every CPU is a whole core"
        yield NoEffect(f"{_CPU}[full-pcpus-only]", why, fix, by_machine=True)
    if len(topology.numa_nodes) == 1 and _is_on(options, "distribute-cpus-across-numa"):
        why = "this machine has one NUMA node"
        yield NoEffect(f"{_CPU}[distribute-cpus-across-numa]", why, fix, by_machine=True)
    uncore = _is_on(options, "prefer-align-cpus-by-uncorecache")
    if uncore and {*topology.uncore_caches.values()} == {*topology.sockets.values()}:
        why = (
            "no NUMA node of this machine has several L3 caches, and a kubelet then takes the sockets for caches: "
            "containers stay on few sockets, as topologyManagerPolicy does it for memory and devices too"
            if topology.num_sockets > 1
            else "no NUMA node of this machine has several L3 caches"
        )
        yield NoEffect(f"{_CPU}[prefer-align-cpus-by-uncorecache]", why, fix, by_machine=True)


def _topology_options(config: KubeletConfig, topology: CPUTopology) -> Iterator[NoEffect]:
    if config.topology_manager_policy == NONE:
        return
    options, nodes = config.topology_manager_policy_options, len(topology.numa_nodes)
    fix = "keep it where other machines of the pool differ, else remove it"
    if nodes <= 2 and config.topology_manager_policy != SINGLE_NUMA_NODE and _is_on(options, _CLOSEST):
        why = f"this machine has {nodes} NUMA node{'s' * (nodes > 1)}: no set of the same size is closer than another"
        yield NoEffect(f"{_TOPOLOGY}[{_CLOSEST}]", why, fix, by_machine=True)
    if LIMIT_OPTION in options and nodes <= DEFAULT_NUMA_LIMIT:
        why = f"this machine has {nodes} NUMA node{'s' * (nodes > 1)}, and {DEFAULT_NUMA_LIMIT} are allowed without it"
        yield NoEffect(f"{_TOPOLOGY}[{LIMIT_OPTION}]", why, fix, by_machine=True)
