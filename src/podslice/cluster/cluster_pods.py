"""The pods of a cluster by UID. A pod that its node has reported takes a few bytes.

    pods = ClusterPods()
    pods[uid] = pod                 # from the watch
    pods.rest(uid)                  # its node has it: the specification is not needed any more
    pods.awake()                    # those that are not at rest: they wait, or are on their way
    pods.coming(name)               # those of them that are bound to a node

Nearly all pods of a large cluster are at rest. Such a pod is an entry of a `PackedTable`, some fifty bytes; a look-up
makes an object of it again, without its specification.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from sys import intern
from typing import Generic, NamedTuple, TypeVar

import msgspec

from podslice.cluster.packed_table import LARGEST_VALUE, PackedTable
from podslice.replica.uids import pack_uid, unpack_uid
from podslice.service.clusterobjects import KeptPod, ScheduledPod

T = TypeVar("T")


class PodTraits(NamedTuple):
    """Fields that very many pods have in common."""

    namespace: str
    scheduler: str
    priority: int
    preempts: bool
    mirror: bool
    deleting: bool


class RestingPod(msgspec.Struct, array_like=True, frozen=True):
    """A pod at rest. `node` and `make` are numbers (`Numbered`); `other_uid` is the UID that its node knows it by,
    where that differs (static pods)."""

    node: int
    make: int
    name: str
    generation: int
    started: float
    other_uid: str = ""


class Numbered(Generic[T]):
    """Values by number, with a count of users; a number is free again once its value has no users."""

    def __init__(self) -> None:
        self._number: dict[T, int] = {}
        self._values: list[T] = []
        self._users: list[int] = []
        self._free: list[int] = []

    def take(self, value: T) -> int:
        """Count a user of a value, and return its number."""
        number = self._number.get(value)
        if number is None:
            number = self._number[value] = self._free.pop() if self._free else len(self._values)
            if number == len(self._values):
                self._values.append(value)
                self._users.append(0)
            self._values[number] = value
        self._users[number] += 1
        return number

    def value(self, number: int) -> T:
        """Return the value of a number in use."""
        return self._values[number]

    def release(self, number: int) -> None:
        """Count a user less."""
        self._users[number] -= 1
        if not self._users[number]:
            del self._number[self._values[number]]
            self._free.append(number)


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(RestingPod)


class ClusterPods(MutableMapping[str, ScheduledPod]):
    """The pods by UID. Setting a pod wakes it; `rest` packs it."""

    def __init__(self) -> None:
        self._awake: dict[str, ScheduledPod] = {}
        self._resting = PackedTable()
        self._nodes: Numbered[str] = Numbered()
        self._makes: Numbered[PodTraits] = Numbered()
        self._coming: dict[str, dict[str, ScheduledPod]] = {}

    def __len__(self) -> int:
        return len(self._awake) + len(self._resting)

    def __iter__(self) -> Iterator[str]:
        """Yield the UIDs; pods may come and go meanwhile."""
        yield from tuple(self._awake)
        for key in self._resting:
            yield unpack_uid(key)

    def __contains__(self, uid: object) -> bool:
        return isinstance(uid, str) and (uid in self._awake or pack_uid(uid) in self._resting)

    def __getitem__(self, uid: str) -> ScheduledPod:
        found = self._awake.get(uid)
        if found is not None:
            return found
        data = self._resting.get(pack_uid(uid))
        if data is None:
            raise KeyError(uid)
        return self._make_pod(uid, _DECODER.decode(data))

    def _make_pod(self, uid: str, entry: RestingPod) -> ScheduledPod:
        make = self._makes.value(entry.make)
        return ScheduledPod.of(
            KeptPod(
                uid,
                make.namespace,
                entry.name,
                self._nodes.value(entry.node),
                entry.other_uid or uid,
                make.scheduler,
                entry.generation,
                make.priority,
                entry.started,
                make.preempts,
                make.mirror,
                make.deleting,
            )
        )

    def __setitem__(self, uid: str, pod: ScheduledPod) -> None:
        known = self._awake.get(uid)
        if known is pod:
            return
        if known is None:
            self._wake(uid)
        else:
            self._remove_coming(known)
        self._awake[uid] = pod
        if pod.node:
            self._coming.setdefault(pod.node, {})[uid] = pod

    def __delitem__(self, uid: str) -> None:
        known = self._awake.pop(uid, None)
        if known is not None:
            self._remove_coming(known)
        elif not self._wake(uid):
            raise KeyError(uid)

    def _wake(self, uid: str) -> bool:
        """Drop a pod's packed entry; return False where there is none."""
        data = self._resting.pop(pack_uid(uid))
        if data is None:
            return False
        entry = _DECODER.decode(data)
        self._nodes.release(entry.node)
        self._makes.release(entry.make)
        return True

    def _remove_coming(self, pod: ScheduledPod) -> None:
        here = self._coming.get(pod.node)
        if here is not None:
            here.pop(pod.uid, None)
            if not here:
                del self._coming[pod.node]

    def rest(self, uid: str) -> None:
        """Pack a pod that its node has reported."""
        pod = self._awake.get(uid)
        if pod is None or not pod.node:
            return
        # There are few different texts: interned, equal ones are one object.
        make = PodTraits(
            intern(pod.namespace), intern(pod.scheduler), pod.priority, pod.preempts, pod.mirror, pod.deleting
        )
        other = "" if pod.node_uid == uid else pod.node_uid
        # In msgpack an integer takes five bytes, a float nine.
        started = int(pod.started) if pod.started.is_integer() else pod.started
        entry = RestingPod(self._nodes.take(pod.node), self._makes.take(make), pod.name, pod.generation, started, other)
        data = _ENCODER.encode(entry)
        # A name or UID that is too long to pack leaves the pod as it is.
        if len(data) > LARGEST_VALUE:
            self._nodes.release(entry.node)
            self._makes.release(entry.make)
            return
        del self._awake[uid]
        self._remove_coming(pod)
        self._resting.put(pack_uid(uid), data)

    def awake(self) -> Iterator[ScheduledPod]:
        """Return an iterator over the pods that are not at rest."""
        return iter(tuple(self._awake.values()))

    def coming(self, node: str) -> list[ScheduledPod]:
        """Return the pods that are bound to a node and not at rest, in the order in which the watch showed it."""
        return list(self._coming.get(node, {}).values())
