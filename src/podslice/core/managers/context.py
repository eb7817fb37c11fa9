"""What all managers of one node share: active pods, gates, quirks and metrics.

Each manager drops what belongs to pods that are gone before it decides anything (cpu-topology 6.1; memory-device
1.12.3). Looking for such leftovers costs a walk over the whole state, so the context counts changes that can create
them in `epoch` and remembers which pod each was about: a manager only looks when the epoch moved, and only at these
pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from podslice.core.hints.search import Purse
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.quirks import Quirks
from podslice.core.values.series import Series, series

_ALLOCATIONS = "resource_manager_allocations_total"
_REMEMBERED = 64
_FEW_NODES = 8
T = TypeVar("T")


def allocation_series(resource: str, source: str) -> Series:
    """Counts what containers were given of a resource; `source` is `node` or `pod`."""
    return series(_ALLOCATIONS, resource_name=resource, source=source)


def allocation_error_series(resource: str, source: str) -> Series:
    """Counts what could not be given; labels as in `allocation_series`."""
    return series("resource_manager_allocation_errors_total", resource_name=resource, source=source)


def assignment_series(resource: str, kind: str) -> Series:
    """Counts containers by what they were given."""
    return series("resource_manager_container_assignments", assignment_type=kind, resource_name=resource)


class NodeContext:
    """`active` maps pod UIDs to pods, in order of first admission. Until `sources_ready`, nothing counts as gone.

    `ended_early` names what was searched for in the latest admission with a search that was given up (docs/merge.md);
    `purse` is what its searches may cost.
    """

    __slots__ = (
        "_changed",
        "_members",
        "active",
        "ended_early",
        "epoch",
        "gates",
        "metrics",
        "purse",
        "quirks",
        "sources_ready",
        "unaligned",
    )

    def __init__(self, gates: Mapping[str, bool], quirks: Quirks) -> None:
        self.gates = gates
        self.quirks = quirks
        self.active: dict[str, AdmissionPod] = {}
        self.sources_ready = True
        self.epoch = 1
        self.metrics: dict[Series, int] = {}
        self.purse = Purse()
        self.ended_early: tuple[str, ...] = ()
        self.unaligned: tuple[str, ...] = ()
        """What kept the latest pod from being aligned, a clause for each resource."""
        self._members: dict[str, frozenset[str]] = {}
        self._changed: dict[int, str] = {}

    def activate(self, pod: AdmissionPod) -> None:
        """The pod is on the node from now on; a changed specification of a known pod may orphan containers."""
        if pod.uid in self.active:
            self._note(pod.uid)
        self.active[pod.uid] = pod

    def deactivate(self, uid: str) -> None:
        """The pod was refused or is gone."""
        if self.active.pop(uid, None) is not None:
            self._note(uid)

    def _note(self, uid: str) -> None:
        self._members.pop(uid, None)
        self.epoch += 1
        self._changed[self.epoch] = uid
        if len(self._changed) > _REMEMBERED:
            del self._changed[next(iter(self._changed))]

    def changed_since(self, epoch: int) -> list[str] | None:
        """UIDs of the pods whose containers may have become leftovers since an epoch; None: any pod's."""
        if self.epoch - epoch > len(self._changed):
            return None
        changed = [self._changed.get(later) for later in range(epoch + 1, self.epoch + 1)]
        uids = list(dict.fromkeys(uid for uid in changed if uid is not None))
        return None if None in changed else uids

    def is_active(self, uid: str, container: str) -> bool:
        """True for init and app containers of active pods."""
        members = self._members.get(uid)
        if members is None:
            pod = self.active.get(uid)
            if pod is None:
                return False
            members = self._members[uid] = frozenset(c.name for c in pod.containers)
        return container in members

    def of_active(self, by_pod: dict[str, T]) -> dict[str, T]:
        """The entries of pods that are on the node."""
        return {uid: entry for uid, entry in by_pod.items() if uid in self.active}

    def begin(self) -> None:
        """An admission begins."""
        self.ended_early = ()
        self.unaligned = ()
        self.purse = Purse() if self.quirks.searches_take_any_time else Purse(exact_nodes=_FEW_NODES)

    def end_early(self, search: str) -> None:
        """A search was given up: what it found will do, but something better may exist."""
        if search not in self.ended_early:
            self.ended_early += (search,)

    def count(self, metric: Series, amount: int = 1) -> None:
        """Add to a counter or gauge."""
        self.metrics[metric] = self.metrics.get(metric, 0) + amount

    def allocations(self) -> dict[Series, int]:
        """What was counted as allocated so far."""
        return {metric: count for metric, count in self.metrics.items() if metric.name == _ALLOCATIONS}

    def uncount(self, before: Mapping[Series, int]) -> None:
        """What was allocated since `before` was taken back, and upstream alone goes on counting it."""
        if not self.quirks.assignment_metrics_drift:
            for metric in self.allocations():
                self.metrics[metric] = before.get(metric, 0)


class ContainerMap:
    """Container ids as the runtime knows them, mapped to (pod UID, container name)."""

    __slots__ = ("_by_id", "_by_pod")

    def __init__(self, entries: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._by_id: dict[str, tuple[str, str]] = {}
        self._by_pod: dict[str, dict[str, str]] = {}
        for container_id, (pod, container) in (entries or {}).items():
            self.add(container_id, pod, container)

    def add(self, container_id: str, pod: str, container: str) -> None:
        known = self._by_id.get(container_id)
        if known is not None and known[0] != pod:
            self._leave(known[0], container_id)
        self._by_id[container_id] = (pod, container)
        self._by_pod.setdefault(pod, {})[container_id] = container

    def get(self, container_id: str) -> tuple[str, str] | None:
        return self._by_id.get(container_id)

    def drop_id(self, container_id: str) -> None:
        known = self._by_id.pop(container_id, None)
        if known is not None:
            self._leave(known[0], container_id)

    def drop_one(self, pod: str, container: str) -> None:
        """Forget one id of this container, the oldest."""
        for container_id, name in self._by_pod.get(pod, {}).items():
            if name == container:
                self.drop_id(container_id)
                return

    def _leave(self, pod: str, container_id: str) -> None:
        ids = self._by_pod[pod]
        del ids[container_id]
        if not ids:
            del self._by_pod[pod]

    def references(self, pods: Iterable[str] | None = None) -> set[tuple[str, str]]:
        """The containers that have an id, of some pods or of all."""
        chosen = self._by_pod if pods is None else [pod for pod in pods if pod in self._by_pod]
        return {(pod, container) for pod in chosen for container in self._by_pod[pod].values()}

    def knows(self, pod: str, container: str) -> bool:
        """True when the container has an id."""
        return container in self._by_pod.get(pod, {}).values()
