"""Container ids as the runtime knows them, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from podslice.core.state.tables import drop, drop_in, put, put_in


class ContainerMap(msgspec.Struct, frozen=True):
    """Container ids mapped to (pod UID, container name). What changes it returns another map."""

    by_id: dict[str, tuple[str, str]] = {}
    by_pod: dict[str, dict[str, str]] = {}

    @classmethod
    def of(cls, entries: Mapping[str, tuple[str, str]]) -> ContainerMap:
        """The map of these ids."""
        made = cls()
        for container_id, (pod, container) in entries.items():
            made = made.add(container_id, pod, container)
        return made

    def add(self, container_id: str, pod: str, container: str) -> ContainerMap:
        known = self.by_id.get(container_id)
        by_pod = self.by_pod
        if known is not None:
            if known == (pod, container):
                return self
            if known[0] != pod:
                by_pod = drop_in(by_pod, known[0], container_id)
        return ContainerMap(
            put(self.by_id, container_id, (pod, container)), put_in(by_pod, pod, container_id, container)
        )

    def get(self, container_id: str) -> tuple[str, str] | None:
        return self.by_id.get(container_id)

    def drop_id(self, container_id: str) -> ContainerMap:
        """The map without an id; unknown ids are ignored."""
        known = self.by_id.get(container_id)
        if known is None:
            return self
        return ContainerMap(drop(self.by_id, container_id), drop_in(self.by_pod, known[0], container_id))

    def drop_one(self, pod: str, container: str) -> ContainerMap:
        """Forget one id of this container, the oldest."""
        for container_id, name in self.by_pod.get(pod, {}).items():
            if name == container:
                return self.drop_id(container_id)
        return self

    def references(self, pods: Iterable[str] | None = None) -> list[tuple[str, str]]:
        """The containers that have an id, of some pods or of all, each once."""
        chosen = self.by_pod if pods is None else [pod for pod in pods if pod in self.by_pod]
        return [(pod, container) for pod in chosen for container in dict.fromkeys(self.by_pod[pod].values())]

    def knows(self, pod: str, container: str) -> bool:
        """True when the container has an id."""
        return container in self.by_pod.get(pod, {}).values()
