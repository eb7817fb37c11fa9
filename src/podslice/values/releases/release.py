"""The differences of one minor version of Kubernetes from the one before it.

A release is data: its module says what changes, and everything else stays as in the release before. A field that a
release does not name has the value of its predecessor, up to the first one (docs/releases.md). The facts are read when
a kubelet starts, never for each decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

Maturity = Literal["Alpha", "Beta", "stable"]
Proof = Literal["recorded", "specification"]
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
    "fields",
    "swap",
    "memory quality",
    "period",
]
StateFiles = Literal["v2", "v3", "v4"]
PodLevelPods = Literal["by containers", "ignored with the gate", "ignored"]


class Row(NamedTuple):
    """A change that a release brings, as docs/releases.md tells it: `what` was `before` and is `now`.

    - `proof`: seen in recorded decisions, from the specification, or only announced by release notes, KEPs and blogs
    - `touches`: the nodes that it can concern
    - `facts`: fields of `Release`; `gates`; `quirks`: defects that begin or end
    - `since`: the release's minor version
    """

    what: str
    before: str
    now: str
    proof: Proof | Literal["announced"]
    touches: Touches
    facts: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()
    since: int = 0

    def __str__(self) -> str:
        return f"{self.what}: {self.before} before 1.{self.since}, {self.now} since"


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of Kubernetes 1.`minor` that differ between releases, as its newest patch has them.

    - `proof`: whether recorded decisions of this release were compared, or it follows release notes and documentation
    - `rows`: what it changes, for people
    - `gates`: the feature gates that are new, changed or gone, one a line, as `values.gate_table` reads them
    - `needs`: the gates that others need, new or changed, one gate a line
    - `cpu_options`, `topology_options`: policy options by name, with their maturity
    - `config_fields`: the fields of a KubeletConfiguration that are new, by struct, as `config.schema` reads them
    """

    minor: int
    proof: Proof
    rows: tuple[Row, ...] = ()
    gates: str = ""
    needs: str = ""
    cpu_options: Mapping[str, Maturity]
    topology_options: Mapping[str, Maturity]
    config_fields: Mapping[str, str] = {}

    has_pod_level_managers: bool = False
    """The managers can act on pod-level resources (gate PodLevelResourceManagers): state files have pod entries, and
    their metrics and a container's isolation exist."""

    pod_level_pods: PodLevelPods = "by containers"
    """How the CPU and Memory Manager treat pods with pod-level resources that they do not manage: by their containers'
    own requests, not at all while the gate PodLevelResources is on, or never at all."""
    refuses_pod_level_resources: bool = False
    """A kubelet without the gate PodLevelResources refuses a pod with such resources; else it ignores the field."""
    pod_under_admission_stays: bool = True
    """The pod that was last admitted or refused counts as active until another one comes, so what it was given stays
    although it is gone."""
    smt_shortage_names_free_cores: bool = False
    """`full-pcpus-only` says that too few cores are free also where none is."""
    memory_groups_are_compared: bool = False
    """At a start, free and reserved memory of a group of NUMA nodes is compared as a sum, not node by node."""
    memory_groups_are_kept: bool = False
    """A hint that would break a group of NUMA nodes is refused."""
    sidecars_outlive_apps: bool = False
    """A sidecar's OOM score is no higher than that of the app container that requests least."""
    runs_on_cgroup_v1: bool = True
    """A kubelet starts on cgroup v1 unless `failCgroupV1` says otherwise; else only if it is false."""
    protects_every_request: bool = True
    """With the gate MemoryQoS `memory.min` protects every request; else `memoryReservationPolicy` decides."""
    throttling_factor: float | None = 0.9
    """The default of `memoryThrottlingFactor`; None: nothing is throttled."""
    enforces_compressible: bool = False
    """`enforceNodeAllocatable` may name the compressible part of a reservation."""
    uncore_takes_odd_numbers: bool = False
    """`prefer-align-cpus-by-uncorecache` takes a part of a cache of any size; else whole cores only."""
    resizes_beside_static_managers: bool = False
    """A Guaranteed pod under a static manager is resized where the request that the manager holds stays; else never."""
    resizes_static_pods: bool = False
    """Pods of the kubelet's own sources are resized."""
    resizes_swapping_containers: bool = True
    """The memory request of a container that can swap is resized."""
    resizes_pod_level: bool = False
    """Pods with pod-level resources can be resized, with the gate InPlacePodLevelResourcesVerticalScaling."""
    lowers_memory_limits: bool = False
    """The API server lowers the memory limit of a container that does not restart for it."""
    refuses_resizes_beyond_node: bool = True
    """The kubelet refuses a resize beyond the node; else the API server does, in other words."""
    running_sums_by_container: bool = True
    """While several containers of a pod are resized, the largest amounts of each are added up; else the sums of what is
    asked for, allocated and in force are compared."""
    allocated_status_wins: bool = True
    """A pod that is admitted again with `allocatedResources` in its status asks for these, with the gate
    InPlacePodVerticalScaling; else its specification counts."""
    device_hints_on_nodes_with_devices: bool = False
    """The Device Manager's hints are sets of the NUMA nodes that have devices of the resource; else of all nodes."""
    state_files: StateFiles = "v2"
    """The newest format of the CPU Manager's state file that is read. Up to V2, V1 is tried first, and no checksum of 0
    passes in the file of the Memory Manager."""

    # Metrics
    counts_misalignment: bool = False
    """Containers that could not be aligned are counted, and those on one uncore cache."""
    exclusive_cpus_are_counted_once: bool = False
    """The number of exclusive CPUs at a start counts CPUs that init containers leave to later ones once."""

    # Texts
    evictions_name_init_containers: bool = False
    """The message of an eviction for memory names init containers too."""
    evictions_name_pods: bool = False
    """It names a pod with a pod-level request as a whole."""
    lower_case_option_texts: bool = False
    """The refusal of a gated option of the Topology Manager is in lower case."""

    def __str__(self) -> str:
        return f"1.{self.minor}"

    def next(
        self,
        *,
        proof: Proof,
        gates: str,
        rows: tuple[Row, ...] = (),
        needs: str = "",
        config_fields: Mapping[str, str] | None = None,
        minor: int = 0,
        **changes: Any,
    ) -> Release:
        """Return the release after this one, or 1.`minor`. Options and facts that `changes` does not name stay as they
        are."""
        minor = minor or self.minor + 1
        options = {
            name: {**getattr(self, name), **changes.pop(name, {})} for name in ("cpu_options", "topology_options")
        }
        return replace(
            self,
            minor=minor,
            proof=proof,
            rows=tuple(row._replace(since=minor) for row in rows),
            gates=gates,
            needs=needs,
            config_fields=config_fields or {},
            **options,
            **changes,
        )
