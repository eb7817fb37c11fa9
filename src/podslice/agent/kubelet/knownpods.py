"""The pods that a source has read, within bounds that no author of pods can exceed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from podslice.api.pod.spec import Pod
from podslice.service.identity import Identity
from podslice.service.podlist import KnownPod
from podslice.values.errors import InputError

MOST_PODS = 10_000
MOST_BYTES = 48 << 20
"""Bytes of all pods together: more than 700 of the largest, or 10 000 ordinary ones."""


class KnownPods:
    """Pods by UID. A pod that exceeds the bound on bytes is kept as one that cannot be read, so that it is refused and
    not guessed."""

    def __init__(self) -> None:
        self._pods: dict[str, KnownPod] = {}
        self._mirrors: dict[str, set[str]] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[KnownPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> KnownPod | None:
        """Return the pod with this UID of the API, None if unknown."""
        return self._pods.get(uid)

    @property
    def size(self) -> int:
        """About how many bytes are kept; at most `MOST_BYTES` and a few hundred for each unreadable pod."""
        return self._size

    def find(self, identity: Identity) -> Pod | None:
        """Find a pod by UID, or a static pod by its mirror. Raises `InputError` for one that cannot be read."""
        known = self._pods.get(identity.uid)
        if known is None or not _same(known, identity):
            known = self._mirror(identity)
        return None if known is None else known.pod()

    def _mirror(self, identity: Identity) -> KnownPod | None:
        """Return the mirror of a static pod: another UID, but the same namespace and name. None where two claim to be
        it."""
        claims = [self._pods[uid] for uid in self._mirrors.get(identity.uid, ())]
        claims = [one for one in claims if _same(one, identity)]
        # Anyone who may create pods can write the mirror annotation, so two claims are not evidence for either.
        return claims[0] if len(claims) == 1 else None

    def replace(self, pods: Iterable[KnownPod]) -> None:
        """Replace all pods."""
        self._pods.clear()
        self._mirrors.clear()
        self._size = 0
        for pod in pods:
            self.put(pod)

    def put(self, pod: KnownPod) -> None:
        """Add a pod, or replace its older version."""
        # Dropped first, so that the older version does not count against the bounds.
        self.drop(pod.uid)
        # A kubelet runs a few hundred pods at most; such a list is an attack or a defect of its source.
        if len(self._pods) >= MOST_PODS:
            return
        if self._size + pod.size > MOST_BYTES:
            problem = InputError(f"the pods of this node have more than {MOST_BYTES} bytes", path="spec")
            pod = msgspec.structs.replace(pod, spec=b"", problem=problem)
        self._pods[pod.uid] = pod
        self._size += pod.size
        if pod.mirror_of:
            self._mirrors.setdefault(pod.mirror_of, set()).add(pod.uid)

    def drop(self, uid: str) -> None:
        """Forget a pod; it may be unknown."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._size -= pod.size
        if pod.mirror_of:
            claims = self._mirrors[pod.mirror_of]
            claims.discard(uid)
            if not claims:
                del self._mirrors[pod.mirror_of]


def _same(pod: KnownPod, identity: Identity) -> bool:
    return (pod.namespace, pod.name) == (identity.namespace, identity.name)
