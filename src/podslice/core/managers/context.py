"""What all managers of one node share: active pods, gates, quirks and metrics.

Each manager drops what belongs to pods that are gone before it decides anything (spec cpu-topology 6.1, memory-device
1.12.3). Looking for such leftovers costs a walk over the whole state, so the context counts changes that can create
them in `epoch`, and a manager only walks when the epoch moved.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.quirks import Quirks


class NodeContext:
    """`active` maps pod UIDs to pods, in order of first admission. Until `sources_ready`, nothing counts as gone."""

    __slots__ = ("_members", "active", "epoch", "gates", "metrics", "quirks", "sources_ready")

    def __init__(self, gates: Mapping[str, bool], quirks: Quirks) -> None:
        self.gates = gates
        self.quirks = quirks
        self.active: dict[str, AdmissionPod] = {}
        self.sources_ready = True
        self.epoch = 1
        self.metrics: dict[str, int] = {}
        self._members: dict[str, frozenset[str]] = {}

    def activate(self, pod: AdmissionPod) -> None:
        """The pod is on the node from now on; a changed specification of a known pod may orphan containers."""
        if pod.uid in self.active:
            self._members.pop(pod.uid, None)
            self.epoch += 1
        self.active[pod.uid] = pod

    def deactivate(self, uid: str) -> None:
        """The pod was refused or is gone."""
        if self.active.pop(uid, None) is not None:
            self._members.pop(uid, None)
            self.epoch += 1

    def is_active(self, uid: str, container: str) -> bool:
        """True for init and app containers of active pods."""
        members = self._members.get(uid)
        if members is None:
            pod = self.active.get(uid)
            if pod is None:
                return False
            members = self._members[uid] = frozenset(c.name for c in pod.containers)
        return container in members

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to a counter or gauge, named `name{label=value,…}` with sorted labels."""
        self.metrics[metric] = self.metrics.get(metric, 0) + amount


class ContainerMap:
    """Container ids as the runtime knows them, mapped to (pod UID, container name)."""

    __slots__ = ("_by_id",)

    def __init__(self, entries: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._by_id: dict[str, tuple[str, str]] = dict(entries or {})

    def add(self, container_id: str, pod: str, container: str) -> None:
        self._by_id[container_id] = (pod, container)

    def get(self, container_id: str) -> tuple[str, str] | None:
        return self._by_id.get(container_id)

    def drop_id(self, container_id: str) -> None:
        self._by_id.pop(container_id, None)

    def drop_one(self, pod: str, container: str) -> None:
        """Forget one id of this container, the oldest."""
        for container_id, reference in self._by_id.items():
            if reference == (pod, container):
                del self._by_id[container_id]
                return

    def references(self) -> set[tuple[str, str]]:
        return set(self._by_id.values())
