"""State that all managers of one node share: active pods, gates, release, quirks and metrics.

Each manager drops what belongs to pods that are gone before it decides anything (cpu-topology 6.1; memory-device
1.12.3). Looking for such leftovers costs a walk over the whole state, so the context remembers for each manager which
pods came or went since it last looked: it only looks at these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from podslice.api.pod.eligibility import AdmissionPod
from podslice.node.plugins.api import CPUEffects, Remedy
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT
from podslice.values.series import Series, series
from podslice.values.tables import ContainerIds, drop, keep_pods, put

SHARED_POOL = series("cpu_manager_shared_pool_size_millicores")
EXCLUSIVE = series("cpu_manager_exclusive_cpu_allocation_count")
_ALLOCATIONS = "resource_manager_allocations_total"
_MOST_REMEMBERED = 64  # more pods than this count as "any pod"
_FEW_NODES = 8  # searches on machines with no more NUMA nodes are always exact
_TOGETHER: Mapping[tuple[str, str], Mapping[str, Bits]] = MappingProxyType({})
_MANAGERS = ("device", "cpu", "memory")
T = TypeVar("T")
Leftovers: TypeAlias = "tuple[str, ...] | None"


class PluginNote(NamedTuple):
    """A note on a plugin in one admission: a contract that it broke, or a remedy that it offers."""

    text: str
    remedy: Remedy | None = None


class ReleasedCPUs(NamedTuple):
    """CPUs that a container released, and a plugin's effects on the release."""

    uid: str
    container: str
    cpus: Bits
    plugin: str
    effects: CPUEffects


def allocation_series(resource: str, source: str) -> Series:
    """Return the series of allocations from `source` (`node` or `pod`)."""
    return series(_ALLOCATIONS, resource_name=resource, source=source)


def allocation_error_series(resource: str, source: str) -> Series:
    """Return the series of failed allocations; labels as in `allocation_series`."""
    return series("resource_manager_allocation_errors_total", resource_name=resource, source=source)


def assignment_series(resource: str, kind: str) -> Series:
    """Return the series of containers by kind of assignment."""
    return series("resource_manager_container_assignments", assignment_type=kind, resource_name=resource)


class NodeContext:
    """Shared state of one node's managers. `active` maps pod UIDs to pods, in order of first admission. Until
    `sources_ready`, nothing counts as gone.

    `leftovers` names by manager the pods whose containers it may have to drop, None for any pod; a manager that has
    nothing to drop is not in it.

    `listed`: the number of NUMA nodes whose sets a kubelet lists in the latest admission, by resource, where there are
    many. `ended_early` names the searches of the latest admission that were cut short (docs/development/merge.md);
    `search_budget` limits what its searches may cost; without one every search has its own.
    """

    __slots__ = (
        "active",
        "ended_early",
        "gates",
        "leftovers",
        "listed",
        "memory_stays",
        "metrics",
        "parts",
        "pending",
        "pending_stays",
        "plugin_notes",
        "quirks",
        "release",
        "released",
        "resizing",
        "search_budget",
        "sources_ready",
        "unaligned",
    )

    def __init__(
        self,
        gates: Mapping[str, bool],
        quirks: Quirks,
        active: dict[str, AdmissionPod] | None = None,
        leftovers: dict[str, Leftovers] | None = None,
        release: Release = DEFAULT,
    ) -> None:
        self.gates = gates
        self.quirks = quirks
        self.release = release
        self.active = {} if active is None else active
        self.leftovers: dict[str, Leftovers] = dict.fromkeys(_MANAGERS) if leftovers is None else leftovers
        self.pending = ""
        """UID of the pod that was last admitted or refused; set only where it counts as active."""
        self.pending_stays = release.pod_under_admission_stays and quirks.refused_pods_leave_state
        self.sources_ready = True
        self.resizing = False
        """Whether a pod with exclusive CPUs is being admitted again for a resize."""
        self.memory_stays = False
        """Whether no memory may leave its NUMA nodes in that resize."""
        self.metrics: defaultdict[Series, int] = defaultdict(int)
        """Values of counters and gauges."""
        self.search_budget: SearchBudget | None = None
        self.listed: dict[str, int] = {}
        self.ended_early: tuple[str, ...] = ()
        self.plugin_notes: tuple[PluginNote, ...] = ()
        """Breaches of contract by plugins in the latest admission, and remedies that they offer."""
        self.parts: Mapping[tuple[str, str], Mapping[str, Bits]] = _TOGETHER
        """The NUMA nodes of each resource in the latest admission, where each had its own, by pod UID and container; of
        a pod that is placed as a whole under an empty name."""
        self.released: tuple[ReleasedCPUs, ...] = ()
        """Plugins' effects on CPUs that were released since the latest admission began."""
        self.unaligned: tuple[str, ...] = ()
        """Reasons why the latest pod was not aligned, a clause for each resource."""

    def activate(self, pod: AdmissionPod) -> None:
        """Put a pod on the node; a changed specification of a known pod may orphan containers."""
        if pod.uid in self.active:
            self._note(pod.uid)
        if self.pending_stays and pod.uid != self.pending:
            before, self.pending = self.pending, pod.uid
            if before and before not in self.active:
                self._note(before)
        self.active = put(self.active, pod.uid, pod)

    def deactivate(self, uid: str) -> None:
        """Take a pod off the node: it was refused or is gone."""
        if uid in self.active:
            self.active = drop(self.active, uid)
            if uid != self.pending:
                self._note(uid)

    def mark_all_leftovers(self) -> None:
        """Make every pod a candidate in the next search for leftovers."""
        self.leftovers = dict.fromkeys(_MANAGERS)

    def _note(self, uid: str) -> None:
        # A manager that is not in the table has looked already: it starts again with this pod alone.
        if self.leftovers:
            self.leftovers = {name: _add_pod(self.leftovers.get(name, ()), uid) for name in _MANAGERS}
        else:
            self.leftovers = dict.fromkeys(_MANAGERS, (uid,))

    def take_leftovers(self, manager: str) -> Leftovers:
        """Return the UIDs of the pods whose containers may be leftovers in this manager, None for any pod, and count
        them as looked at."""
        if not self.sources_ready or manager not in self.leftovers:
            return ()
        self.leftovers = self.leftovers.copy()
        return self.leftovers.pop(manager)

    def find_stale(
        self, manager: str, held: Mapping[str, Mapping[str, object]], containers: ContainerIds
    ) -> list[tuple[str, str | None]]:
        """Return what a manager holds for containers that are gone, and count them as looked at: (pod UID, container)
        for containers that active pods no longer have, (pod UID, None) for pods that are gone.

        `held` and `containers` are the manager's holdings and container ids by pod; a container in both is listed
        twice.
        """
        if not self.sources_ready or manager not in self.leftovers:
            return []
        self.leftovers = self.leftovers.copy()
        changed = self.leftovers.pop(manager)
        found: list[tuple[str, str | None]] = []
        for uid in {**held, **containers} if changed is None else changed:
            own, ids = held.get(uid, {}), containers.get(uid, {})
            pod = self.active.get(uid)
            if pod is not None:
                active = [container.name for container in pod.containers]
                found += [(uid, name) for name in (*own, *dict.fromkeys(ids.values())) if name not in active]
            elif (own or ids) and uid != self.pending:
                found.append((uid, None))
        return found

    def keep_reusable(self, table: dict[str, T]) -> dict[str, T]:
        """Return a table of what init containers left, by pod, without pods that are gone; upstream keeps theirs."""
        return table if self.quirks.reuse_outlives_pod else keep_pods(table, self.active)

    def begin(self) -> None:
        """Reset what belongs to one admission."""
        self.ended_early = self.unaligned = self.plugin_notes = self.released = ()
        self.parts = _TOGETHER
        self.listed = {}
        endless = self.quirks.searches_take_any_time
        self.search_budget = SearchBudget() if endless else SearchBudget(exact_nodes=_FEW_NODES)

    def note_listing(self, what: str, nodes: int) -> None:
        """Note that a kubelet lists all sets of so many NUMA nodes for the hints of a resource."""
        if nodes > _FEW_NODES:
            self.listed[what] = nodes

    def end_early(self, search: str) -> None:
        """Note that a search was cut short: its result is valid, but a better one may exist."""
        if search not in self.ended_early:
            self.ended_early += (search,)

    def add_note(self, note: PluginNote) -> None:
        """Note that a plugin broke its contract or offers a remedy."""
        if note not in self.plugin_notes:
            self.plugin_notes += (note,)

    def uncount(self, before: Mapping[Series, int]) -> None:
        """Reset the metrics of allocations that were undone since `before`; upstream keeps counting them."""
        for metric in self.metrics:
            counted = metric.name == _ALLOCATIONS and not self.quirks.assignment_metrics_drift
            if counted or metric in (SHARED_POOL, EXCLUSIVE):
                self.metrics[metric] = before.get(metric, 0)


def _add_pod(pods: Leftovers, uid: str) -> Leftovers:
    if pods is None or uid in pods:
        return pods
    return None if len(pods) >= _MOST_REMEMBERED else (*pods, uid)
