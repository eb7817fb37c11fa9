"""Upstream's named defects, and when each began and ended.

A quirk is a behaviour of Kubernetes v1.36.2 that docs/development/spec lists as a defect. Profile `kubelet-1.36` has
all of them, because predicting a kubelet means predicting its mistakes; profile `podslice` has none. A kubelet of
another release has those that its release has. Every field here is a row of docs/deviations.md (a test compares them).
Code reads `quirks.<name>`; nothing else knows about profiles.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn, TypeVar

import msgspec

from podslice.values.errors import InputError
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT, RELEASES, parse_release


class Quirks(msgspec.Struct, frozen=True):
    """One flag per defect; True reproduces upstream."""

    combination_aliasing: bool = False
    """cpu-topology 4.8, 11.7: a remembered combination of NUMA nodes is overwritten by later ones."""
    endless_distribution: bool = False
    """cpu-topology 11.3: distributing CPUs over NUMA nodes never ends; True raises `UpstreamDefectError`, False skips
    or reports."""
    average_sizes: bool = False
    """cpu-topology 11.11: "free" socket and core tests use machine averages, so CPUs in use can be handed out."""
    smt_check_uses_average: bool = False
    """cpu-topology 6.2: full-pcpus-only takes the average for the size of every core, so on machines with P and E cores
    it accepts any number and splits cores; False gives whole cores, of whatever sizes."""
    straddling_objects: bool = False
    """cpu-topology 11.10: an object with two parents is taken twice and too few CPUs are returned."""
    partial_uncore_by_core_id: bool = False
    """cpu-topology 11.9: a partial pick from an uncore cache looks at core ids instead of free CPUs."""
    smt_check_before_state: bool = False
    """cpu-topology 11.4: full-pcpus-only refuses containers that already run."""
    smt_check_ignores_reusable: bool = False
    """cpu-topology 11.5: full-pcpus-only does not count CPUs reusable from init containers."""
    pod_allocation_repeats: bool = False
    """cpu-topology 11.1; memory-device 4.3: admitting a running pod-level pod again allocates or refuses it again."""
    strict_reservation_empties_pool: bool = False
    """cpu-topology 11.19: with strict-cpu-reservation the last shared CPU of the node can be given away."""
    refused_pods_leave_state: bool = False
    """cpu-topology 9.2, 11.2: what a refused pod was given stays until a later clean-up, the pod CPUs of a pod-level
    pod for ever."""
    numa_node_limit: bool = False
    """cpu-topology 9.1, 11.14: machines with more than max-allowable-numa-nodes (8) are refused, because the merge
    explodes."""
    searches_take_any_time: bool = False
    """cpu-topology 9.4: the merge tries every combination, however long it takes. True searches exactly on up to 16
    NUMA nodes; False ends the searches of an admission after a number of steps on more than 8, and reports that it
    did."""
    distances_by_node_id: bool = False
    """cpu-topology 11.12: distance lists are indexed by node id, which crashes with gaps in the ids."""
    pod_pool_is_listed: bool = False
    """cpu-topology 6.8, 11.16: the PodResources API lists a pod's shared pool as exclusive CPUs of its containers."""
    vanished_devices_crash: bool = False
    """memory-device 4.11: a device in use that its plugin no longer lists crashes the kubelet."""
    nodeless_device_blocks_hints: bool = False
    """memory-device 4.11: a reusable device with an empty topology leaves no hint at all."""
    zero_device_requests_count: bool = False
    """memory-device 4.11: a limit of 0 devices has hints and fails without healthy devices; False allocates nothing for
    it."""
    pod_level_devices_at_start: bool = False
    """memory-device 2.7, 4.11: pod-level pods in pod scope get devices when a container starts, after
    admission, so two pods can be admitted for one device; False allocates them at admission."""
    pre_start_before_allocation: bool = False
    """memory-device 2.10, 4.11: a container that gets devices only when it starts can never start if the plugin wants
    PreStartContainer; False allocates first."""
    claimed_devices_count_at_start: bool = False
    """memory-device 2.10: a device that a claim serves counts as missing whenever its container starts, so the devices
    of the other requests are asked for again, also 0 of a device without healthy ones; False leaves it out."""
    failed_container_keeps_devices: bool = False
    """memory-device 2.7, 2.8: devices taken before a container's allocation failed stay taken until the pod is gone."""
    device_file_keeps_gone_pods: bool = False
    """memory-device 2.11: the device checkpoint is not written when pods leave, so a restarted kubelet takes their
    devices for used until all sources have reported; False writes it at once."""
    restart_needs_device_plugins: bool = False
    """memory-device 2.12: after a restart, pods whose containers do not run are refused until their plugins are back;
    False keeps the recorded devices."""
    missing_hugepages_crash: bool = False
    """memory-device 4.1: a request for a huge page size some NUMA node lacks crashes the kubelet."""
    shared_containers_need_memory: bool = False
    """memory-device 4.2: in container scope, containers of pod-level pods without own memory are allocated an empty
    request, which mostly fails."""
    impossible_memory_is_no_preference: bool = False
    """memory-device 4.4: memory that fits nowhere gives no hints, so the pod is refused only after CPUs were taken."""
    single_node_in_group: bool = False
    """memory-device 4.5: one NUMA node of a group can be given away alone, which breaks the group."""
    pod_hints_of_one_container: bool = False
    """memory-device 4.6: after a restart the pod's hints are made from its first container's memory only."""
    init_memory_again: bool = False
    """memory-device 4.18: after a restart finished init containers are given memory again."""
    running_pods_can_be_refused: bool = False
    """cpu-topology 11.20: after a restart a running pod is merged again from what it holds, and refused if that is not
    aligned."""
    memory_drift_blocks_start: bool = False
    """memory-device 1.14 (KEP-6232): a NUMA node whose memory size changed a little at a reboot keeps the kubelet from
    starting."""
    reserved_cpus_offline: bool = False
    """cpu-topology 2.1: one CPU of `reservedSystemCPUs` that is offline keeps the kubelet from starting; False starts
    with the others."""
    zero_checksum_is_trusted: bool = False
    """memory-device 4.13: a state file whose checksum is 0 or missing counts as intact."""
    inexact_memory_is_refused: bool = False
    """memory-device 4.8: whole amounts of bytes are refused because of how they were written (1.5Gi, 100Ti)."""
    init_memory_reuse_drifts: bool = False
    """memory-device 4.7, 4.9: what init containers leave for reuse is recorded separately from what they hold, so a pod
    admitted again is booked too little; False derives it from what they hold."""
    memory_budget_wraps: bool = False
    """memory-device 4.9: containers that ask for more than their pod has wrap the pod's shared memory around at 64
    bits."""
    memory_reservation_wraps: bool = False
    """memory-device 4.9, 4.10: a reservation that is negative or larger than a NUMA node's memory invents allocatable
    memory."""
    pod_level_resize_outgrows_managers: bool = False
    """pod-level-resources 17.14: the resize of a pod as a whole is tried although a static manager holds CPUs or memory
    for it, and allocates a second set; False refuses it as for containers."""
    resize_keeps_old_cpus: bool = False
    """With the gate InPlacePodVerticalScalingExclusiveCPUs a resize of exclusive CPUs is granted, and every container
    keeps the CPUs it had; False grows and shrinks what it has."""
    resize_keeps_old_memory: bool = False
    """With the gate InPlacePodVerticalScalingExclusiveMemory a resize of memory on NUMA nodes is granted, and every
    container keeps the blocks it had; False grows and shrinks them."""
    resize_memory_check_gaps: bool = False
    """pod-level-resources 17.15: lowering only the pod's memory limit is not checked against its usage, and a
    container's message names the pod's usage."""
    unlimited_is_least: bool = False
    """pod-level-resources 17.15: a resize compares an unlimited cgroup value as −1, so a first limit counts as an
    increase."""
    resize_events_omit_pod_level: bool = False
    """pod-level-resources 17.18: events about resizes say nothing about the pod's own resources."""
    negative_sandbox_limits: bool = False
    """pod-level-resources 17.24: with CFS quota off the runtime gets a quota of -1 less the overhead's, and the
    like."""
    running_overhead_counts_twice: bool = False
    """pod-level-resources 7.3, 17.25: the overhead of a running pod with pod-level requests counts twice where the
    kubelet looks whether another pod fits."""
    pod_level_on_cgroup_v1: bool = False
    """pod-level-resources 17.23: pods with pod-level resources are admitted on cgroup v1, which KEP-2837 excludes."""
    running_pods_need_the_gate: bool = False
    """KEP-2837, rollback: with the gate PodLevelResources off, running pods with pod-level resources are refused after
    a restart, which the KEP lets run on."""
    ignored_pods_without_event: bool = False
    """memory-device 3.10: no event says that the resource managers ignore a pod with pod-level resources."""
    empty_resources_hide_containers: bool = False
    """pod-level-resources 6.3: an empty `spec.resources` makes the QoS class BestEffort whatever the containers have;
    False has the gate PodLevelResourcesFixKubeletQOSClass, on by default."""

    quota_requires_nothing_of_pod_level: bool = False
    """pod-level-resources 12, 17.11: one pod-level value of any resource lifts all of a quota's requirements."""
    quota_frees_pod_level_early: bool = False
    """pod-level-resources 12, 17.11: a pod-level resize that is still pending already counts as done."""

    eviction_pod_level_hides_containers: bool = False
    """pod-level-resources 10, 17.6: eviction and preemption rank a pod by its pod-level requests alone; what these do
    not name counts as not requested. With the gate off they still count."""

    fit_score_ignores_pod_level: bool = False
    """pod-level-resources 13.3, 17.12: the scheduler's fit scores count the incoming pod by its containers alone."""
    hpa_sums_differ: bool = False
    """pod-level-resources 14, 17.13: CPU or memory utilisation is taken of pod-level requests with overhead, and of all
    resources of a pod with any pod-level request."""
    pod_limits_not_defaulted: bool = False
    """pod-level-resources 3.5, 17.1: a pod with pod-level requests gets no pod-level limits from its containers; False
    has the gate PodLevelResourcesFixDefaulting, on by default."""
    limit_range_without_pod_defaults: bool = False
    """pod-level-resources 11.1, 17.10: a LimitRange has no defaults for whole pods; False has the gate
    PodLevelResourcesLimitRange, off by default."""
    implied_limit_becomes_weight: bool = False
    """pod-level-resources 17.2: a container without a CPU request and limit gets the weight of the whole pod's limit;
    False gives the least weight, as KEP-2837 says (rows 5 and 13)."""
    sandbox_limits_are_partial_sums: bool = False
    """pod-level-resources 17.20: the sandbox gets the sum of the limits that some containers have, though the others
    have none."""

    reuse_outlives_pod: bool = False
    """Resources that init containers leave to later containers are remembered after the pod is gone, so a pod that
    comes again under its UID is decided otherwise than the first time."""
    group_ledger_drift: bool = False
    """Memory given back to several NUMA nodes goes to the lowest of them first, wherever it was booked."""
    socket_alignment_lost: bool = False
    """`align-by-socket` prefers any smallest set of NUMA nodes as well, and does nothing without an affinity."""
    narrowest_set_counts_reserved: bool = False
    """cpu-topology 7.3: the fewest NUMA nodes that could do are counted with the reserved CPUs, which no container ever
    gets (kubernetes 132187)."""
    half_reserved_cores_are_given: bool = False
    """cpu-topology 6.3: under `full-pcpus-only` a container may get the free siblings of reserved CPUs."""
    distribution_shrinks_affinity: bool = False
    """cpu-topology 4.7: `distribute-cpus-across-numa` uses the fewest NUMA nodes, though the merge chose more
    (kubernetes 139430)."""
    init_cpus_left_idle: bool = False
    """cpu-topology 6.2: a container may get other CPUs while those of its pod's init containers stay idle (kubernetes
    112228)."""
    group_rule_unnamed: bool = False
    """memory-device 1.8: the refusal of memory that NUMA nodes have together, but not as a group, says that it is
    unexpected and that nodes were not found (kubernetes 120733)."""
    cores_spread_by_id: bool = False
    """`distribute-cpus-across-cores` takes CPUs by id, which spreads only where siblings are far apart."""
    init_overlaps_sidecars: bool = False
    """A sidecar on the pod's shared pool keeps running on the CPUs that an init container owns while it runs."""
    resize_beyond_node_waits: bool = False
    """A resize to more than the node can ever give waits; False answers Infeasible. The API server refuses it
    before."""
    gate_moves_running_pods: bool = False
    """Turning the gate PodLevelResourceManagers on gives running pods CPUs and memory that they did not have."""
    pod_entries_stay_lost: bool = False
    """Running pods whose pod entries a state file could not hold are allocated or refused again."""
    assignment_metrics_drift: bool = False
    """`resource_manager_allocations_total` counts containers that share and pods that are refused."""
    amounts_wrap: bool = False
    """An amount that 64 bits do not hold counts as another amount: `cpu: 8E` as 0."""


class Life(NamedTuple):
    """The minor versions of Kubernetes 1.x that have a quirk: from `since`, and before `until`."""

    since: int = 0
    until: int = 1000

    def __contains__(self, minor: object) -> bool:
        return isinstance(minor, int) and self.since <= minor < self.until


LIVES = {
    # Nothing acts on pod-level resources before 1.36.
    "pod_allocation_repeats": Life(since=36),
    "pod_entries_stay_lost": Life(since=36),
    "assignment_metrics_drift": Life(since=36),
    "pod_pool_is_listed": Life(since=36, until=37),
    # Before, the kubelet refuses such a resize.
    "resize_beyond_node_waits": Life(since=36),
    "shared_containers_need_memory": Life(until=37),
    "empty_resources_hide_containers": Life(until=37),
    "pod_limits_not_defaulted": Life(until=37),
    "distribution_shrinks_affinity": Life(until=37),
    "amounts_wrap": Life(until=38),
}
"""When a quirk began or ended, where that is known; the others are in every release."""


def quirks_of(release: Release) -> Quirks:
    """Return the quirks that a release has."""
    always = Life()
    return Quirks(**{name: release.minor in LIVES.get(name, always) for name in Quirks.__struct_fields__})


KUBELET_1_36 = quirks_of(RELEASES[36])
PODSLICE = Quirks()


def quirks_in(release: Release, quirks: Quirks) -> Quirks:
    """Return the quirks of another release for a node with these: none stay none, single ones stay as they are, and
    those of a release become those of the other."""
    return quirks_of(release) if quirks in map(quirks_of, RELEASES.values()) else quirks


_WITHOUT, _KUBELET = "podslice", "kubelet"


V = TypeVar("V")


class Profiles(dict[str, V]):
    """A fact of each profile by its name. An unknown name raises `InputError`."""

    def __missing__(self, name: str) -> NoReturn:
        raise InputError(f"unknown profile {name!r}", remedy=f"use one of: {', '.join(PROFILE_NAMES)}")


PROFILE_RELEASES = Profiles(
    {
        _WITHOUT: DEFAULT,
        **{f"{_KUBELET}-{one}": one for one in RELEASES.values()},
        **{f"{_WITHOUT}-{one}": one for one in RELEASES.values() if one is not DEFAULT},
    }
)
"""A profile is a release and its defects, or none: `kubelet-1.34`, `podslice-1.34`; `podslice` is the default release
without defects."""
PROFILES = Profiles(
    {name: quirks_of(release) if name.startswith(_KUBELET) else PODSLICE for name, release in PROFILE_RELEASES.items()}
)
PROFILE_NAMES = (_WITHOUT, *(name for name in PROFILES if name.startswith(_KUBELET)))
"""The profiles to choose from; a release chooses among those without defects."""


def profile_for(profile: str, kubernetes: str) -> str:
    """Return the profile of another release: `podslice` becomes `podslice-1.34`. Raises `InputError` for a release or
    profile that is not known, and for a profile `kubelet-…` of another release."""
    release = parse_release(kubernetes)
    if profile == _WITHOUT:
        return profile if release is DEFAULT else f"{_WITHOUT}-{release}"
    if PROFILE_RELEASES[profile] is not release:
        kind = profile.partition("-")[0]
        raise InputError(
            f"profile {profile} is of Kubernetes {PROFILE_RELEASES[profile]}, not {release}",
            remedy=f"use {kind}-{release}",
        )
    return profile


def profile_of_release(profile: str, kubernetes: str) -> str:
    """Return the profile of the same kind for another release: `kubelet-1.34` becomes `kubelet-1.36`. Raises
    `InputError` for a release that is not known."""
    kind = profile.partition("-")[0]
    return profile_for(_WITHOUT, kubernetes) if kind == _WITHOUT else f"{kind}-{parse_release(kubernetes)}"


def is_without_defects(profile: str) -> bool:
    """Whether a profile has no defects."""
    return PROFILES[profile] == PODSLICE


def profile_of_a_kubelet(profile: str) -> str:
    """Return the profile of the same release with the defects of its kubelet."""
    return f"{_KUBELET}-{PROFILE_RELEASES[profile]}"


def profile_name(release: Release, quirks: Quirks) -> str:
    """Return the name of a profile; empty where none has these quirks."""
    return next((name for name, own in PROFILES.items() if own == quirks and PROFILE_RELEASES[name] is release), "")
