"""Changes from each release of the kubelet to the next, as docs/releases.md tells them (a test compares the two), and
what brings them about: facts of the release, gates, defects that began or ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple

from podslice.api.pod.spec import Pod, containers_with_kind
from podslice.config.kubelet import KubeletConfig
from podslice.machine.devices import DeviceInventory

Touches = Literal[
    "always",
    "static",
    "memory",
    "devices",
    "options",
    "whole cores",
    "topology options",
    "gates",
    "sidecars",
    "pod level",
]


class Row(NamedTuple):
    """A change that 1.`since` brings: `what` was `before` and is `now`. `recorded`: seen in recorded decisions, else
    from the specification. `touches`: the nodes that it can concern. `facts` are fields of `Release`, `quirks` defects
    that began or ended."""

    since: int
    what: str
    before: str
    now: str
    recorded: bool
    touches: Touches
    facts: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what}: {self.before} before 1.{self.since}, {self.now} since"


ROWS: Final = (
    Row(
        32,
        "a pod that was refused, or removed last",
        "keeps its CPUs until another pod comes",
        "is cleaned up at the next call",
        False,
        "static",
        facts=("pod_under_admission_stays",),
    ),
    Row(
        32, "options `strict-cpu-reservation`, `prefer-align-cpus-by-uncorecache`", "unknown", "alpha", True, "options"
    ),
    Row(
        32,
        "`full-pcpus-only` where no core is free",
        '"not multiple cpus per core"',
        '"not enough free physical CPUs"',
        False,
        "whole cores",
        facts=("smt_shortage_names_free_cores",),
    ),
    Row(
        32,
        "memory of a group of NUMA nodes at a start",
        "compared node by node",
        "as a sum",
        False,
        "memory",
        facts=("memory_groups_are_compared",),
    ),
    Row(
        32,
        "a hint that breaks a group of NUMA nodes",
        "admitted",
        "refused",
        False,
        "memory",
        facts=("memory_groups_are_kept",),
    ),
    Row(32, "gate MemoryManager", "off: no Memory Manager", "locked on", False, "memory", gates=("MemoryManager",)),
    Row(32, "`prefer-closest-numa-nodes`", "beta", "stable", False, "topology options"),
    Row(
        32,
        "a sidecar's OOM score",
        "by its own request",
        "at most that of the smallest app container",
        False,
        "sidecars",
        facts=("sidecars_outlive_apps",),
    ),
    Row(
        32,
        "`enforceNodeAllocatable`",
        "no compressible keys",
        "`kube-` and `system-reserved-compressible`",
        False,
        "always",
        facts=("enforces_compressible",),
    ),
    Row(
        33,
        "CFS quota of containers with exclusive CPUs",
        "the limit",
        "none",
        True,
        "static",
        gates=("DisableCPUQuotaWithExclusiveCPUs",),
    ),
    Row(
        33,
        "`full-pcpus-only`; `strict-cpu-reservation`, `distribute-cpus-across-numa`",
        "beta; alpha",
        "stable; beta",
        True,
        "options",
    ),
    Row(33, "gate CPUManager", "locked on", "unknown: does not start", False, "always", gates=("CPUManager",)),
    Row(
        33,
        "text of a gated Topology Manager option",
        "`Topology Manager Policy Beta-level Options`",
        "in lower case",
        False,
        "topology options",
        facts=("lower_case_option_texts",),
    ),
    Row(
        33,
        "metrics of failed alignment and of one uncore cache",
        "none",
        "counted",
        True,
        "always",
        facts=("counts_misalignment",),
    ),
    Row(
        33,
        "number of exclusive CPUs after a start",
        "CPUs left by init containers count twice",
        "once",
        True,
        "static",
        facts=("exclusive_cpus_are_counted_once",),
    ),
    Row(
        34,
        "pods with pod-level resources",
        "judged by their containers",
        "ignored while the gate PodLevelResources is on",
        True,
        "pod level",
        facts=("pod_level_pods",),
        gates=("PodLevelResources",),
    ),
    Row(
        34,
        "pods with pod-level resources while the gate is off",
        "ignores the field",
        "refuses them with `PodLevelResourcesNotSupported`",
        False,
        "pod level",
        facts=("refuses_pod_level_resources",),
    ),
    Row(
        34,
        "`prefer-align-cpus-by-uncorecache`",
        "alpha; parts of a cache are whole cores",
        "beta; any number",
        True,
        "options",
        facts=("uncore_takes_odd_numbers",),
    ),
    Row(
        34,
        "resize of a Guaranteed pod beside a static manager",
        "infeasible, whatever changes",
        "infeasible where the manager's request changes; other texts",
        False,
        "static",
        facts=("resizes_beside_static_managers",),
    ),
    Row(35, "`strict-cpu-reservation`, `max-allowable-numa-nodes`", "beta", "stable", True, "options"),
    Row(35, "gates that need others", "not checked", "does not start", True, "gates"),
    Row(
        36,
        "device hints",
        "over all NUMA nodes",
        "over nodes with devices",
        True,
        "devices",
        facts=("device_hints_on_nodes_with_devices",),
    ),
    Row(
        36,
        "pods with pod-level resources while the gate is off",
        "judged by their containers",
        "ignored",
        True,
        "pod level",
        facts=("pod_level_pods",),
    ),
    Row(
        36,
        "gate PodLevelResourceManagers, its files V3 and V2, its metrics",
        "unknown",
        "alpha",
        True,
        "always",
        facts=("has_pod_level_managers",),
        gates=("PodLevelResourceManagers",),
        quirks=(
            "pod_allocation_repeats",
            "pod_entries_stay_lost",
            "assignment_metrics_drift",
            "pod_pool_is_listed",
        ),
    ),
    Row(
        36, "`prefer-align-cpus-by-uncorecache`", "beta", "stable", True, "options", facts=("uncore_takes_odd_numbers",)
    ),
    Row(36, "memory state file with checksum 0", "corrupted", "starts", True, "memory", facts=("state_files",)),
    Row(36, "CPU state file", "V1 is tried first", "V3, V2, then V1", True, "static", facts=("state_files",)),
    Row(
        36,
        "gate MemoryManager; TopologyManagerPolicyOptions",
        "locked on; may be false",
        "unknown; locked on",
        True,
        "gates",
        gates=(
            "MemoryManager",
            "TopologyManagerPolicyOptions",
        ),
    ),
    Row(36, "resize of static pods", "infeasible", "tried", False, "always", facts=("resizes_static_pods",)),
    Row(
        37,
        "state files",
        "V2 or V3, V1 or V2",
        "V4 and V3: the older members with their checksum, then `data`",
        False,
        "always",
        facts=("state_files",),
    ),
    Row(37, "gate MemoryQoS", "alpha, off", "beta, on", False, "always", gates=("MemoryQoS",)),
    Row(
        37,
        "gate PodLevelResourceManagers",
        "alpha, off",
        "beta, off",
        False,
        "pod level",
        gates=("PodLevelResourceManagers",),
    ),
    Row(
        37,
        "empty `spec.resources`; limits of pods with pod-level requests",
        "decides the QoS class; not defaulted",
        "does not; defaulted from containers",
        False,
        "pod level",
        gates=(
            "PodLevelResourcesFixKubeletQOSClass",
            "PodLevelResourcesFixDefaulting",
        ),
        quirks=(
            "empty_resources_hide_containers",
            "pod_limits_not_defaulted",
        ),
    ),
    Row(
        37,
        "shared containers of a managed pod in container scope",
        "need memory of their own",
        "need none",
        False,
        "pod level",
        quirks=("shared_containers_need_memory",),
    ),
    Row(
        37,
        "`distribute-cpus-across-numa` where the merge chose more NUMA nodes than the CPUs need",
        "takes the fewest",
        "takes all that the merge chose",
        False,
        "options",
        quirks=("distribution_shrinks_affinity",),
    ),
    Row(
        37,
        "PodResources `List` and `Get` of containers on their pod's shared pool",
        "name the pool as their CPUs",
        "name none",
        False,
        "pod level",
        quirks=("pod_pool_is_listed",),
    ),
)


class Asked(NamedTuple):
    """The node that a row may concern: its configuration, devices and pods."""

    config: KubeletConfig
    devices: DeviceInventory
    pods: tuple[Pod, ...]


def _always(asked: Asked) -> bool:
    return True


def _is_static(asked: Asked) -> bool:
    return asked.config.cpu_manager_policy == "static"


def _binds_memory(asked: Asked) -> bool:
    return asked.config.memory_manager_policy == "Static"


def _has_devices(asked: Asked) -> bool:
    return bool(asked.devices.resources)


def _has_options(asked: Asked) -> bool:
    return bool(asked.config.cpu_manager_policy_options or asked.config.topology_manager_policy_options)


def _has_whole_cores(asked: Asked) -> bool:
    return "full-pcpus-only" in asked.config.cpu_manager_policy_options


def _has_topology_options(asked: Asked) -> bool:
    return bool(asked.config.topology_manager_policy_options)


def _sets_gates(asked: Asked) -> bool:
    return bool(asked.config.feature_gates)


def _has_sidecars(asked: Asked) -> bool:
    return any(kind == "sidecar" for pod in asked.pods for kind, _ in containers_with_kind(pod))


def _has_pod_level(asked: Asked) -> bool:
    return any(pod.spec.resources is not None for pod in asked.pods)


_CONCERNS: dict[str, Callable[[Asked], bool]] = {
    "always": _always,
    "static": _is_static,
    "memory": _binds_memory,
    "devices": _has_devices,
    "options": _has_options,
    "whole cores": _has_whole_cores,
    "topology options": _has_topology_options,
    "gates": _sets_gates,
    "sidecars": _has_sidecars,
    "pod level": _has_pod_level,
}


def rows_between(older: int, newer: int, asked: Asked) -> Iterator[Row]:
    """Yield the rows of the releases after 1.`older` up to 1.`newer` that can concern a node."""
    for row in ROWS:
        if older < row.since <= newer and _CONCERNS[row.touches](asked):
            yield row


def row_of(older: int, newer: int, *, fact: str = "", gate: str = "", quirk: str = "") -> Row | None:
    """Return the last row between two releases that a fact, a gate or a defect brings about, if there is one."""
    named: Iterable[Row] = (row for row in reversed(ROWS) if older < row.since <= newer)
    return next((row for row in named if fact in row.facts or gate in row.gates or quirk in row.quirks), None)
