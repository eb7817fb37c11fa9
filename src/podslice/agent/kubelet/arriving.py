"""Pods are decided about when the API server tells of them, before the kubelet makes a sandbox.

The owner decides, as it does for a sandbox, and a pod that is admitted holds what it got until it is gone. Of a refused
one it is found out here what becomes of it: it waits, where pods on their way out make room for it, or it is rejected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from podslice.agent.kubelet.knownpods import KnownPods
from podslice.agent.owner import Found, Owner
from podslice.agent.records import PodRecord, ReportedRefusal
from podslice.agent.status.trying import fits_without
from podslice.api.pod.spec import Pod
from podslice.service.identity import Identity
from podslice.service.podlist import KnownPod
from podslice.values.errors import InputError
from podslice.values.reasons import INVALID_POD


class PodList(Protocol):
    """A source that knows all pods of this node. `cause` says why it knows nothing new, empty while all is well."""

    ready: bool
    cause: str
    pods: KnownPods


class Judged(Protocol):
    """Who is told what becomes of a refused pod."""

    def judged(self, identity: Identity, refusal: ReportedRefusal) -> None:
        """It is rejected, waits (`waits_for`), or is refused at its containers; told again when that changes."""


class Awaiting:
    """Which pods are to run on a node, by what a source says."""

    def __init__(self, source: PodList, node: str) -> None:
        self._source = source
        self._node = node

    @property
    def current(self) -> bool:
        """True while the source's list is what is."""
        return self._source.ready and not self._source.cause

    def __call__(self, uid: str) -> Identity | None:
        """The pod under this UID if it is to run here, as far as anybody knows now."""
        known = self._source.pods.get(uid) if self.current else None
        return _identity(known) if known is not None and self.counts(known) and not known.deleting else None

    def counts(self, known: KnownPod) -> bool:
        """True for a pod of this node that has not ended and that the kubelet has from the API server."""
        return known.node == self._node and not known.mirror and not known.ended and known.problem is None

    def known(self) -> list[KnownPod]:
        """Pods that count, in the order in which they were made."""
        return sorted(filter(self.counts, self._source.pods), key=lambda pod: (pod.created, pod.namespace, pod.name))

    def get(self, uid: str) -> KnownPod | None:
        """The pod under this UID if it counts."""
        known = self._source.pods.get(uid)
        return known if known is not None and self.counts(known) else None

    def preparing(self, uid: str) -> bool:
        """True while the kubelet is at work on a pod and has not told yet how that ended."""
        known = self.get(uid)
        return known is not None and known.preparing

    def leaves(self, uid: str) -> bool:
        """True for a pod that is being deleted, has ended or is gone."""
        known = self._source.pods.get(uid)
        return known is None or known.ended or known.deleting


class Arriving:
    """`run` decides for ever. `find` is what the sources say, `early` False where a pod's sandbox says more than they.
    `reject` makes a refusal final, or says that it cannot; `rejected` knows, by UID, refusals that are."""

    def __init__(
        self,
        owner: Owner,
        awaiting: Awaiting,
        *,
        find: Callable[[Identity], Pod | None],
        connected: Callable[[], bool],
        early: bool,
        reject: Callable[[Identity, ReportedRefusal], bool],
        rejected: Callable[[str], ReportedRefusal | None],
        told: Judged,
    ) -> None:
        self._owner = owner
        self._awaiting = awaiting
        self._find = find
        self._connected = connected
        self._early = early
        self._reject = reject
        self._rejected = rejected
        self._told = told
        self._due = asyncio.Event()
        self._specs: dict[str, bytes] = {}
        self._last: dict[str, tuple[object, ...]] = {}

    def wake(self) -> None:
        """Something has changed: a pod, or what is free."""
        self._due.set()

    def moot(self, uid: str) -> bool:
        """True for a pod that needs not be rejected any more: it has ended, is going, or runs by now."""
        return self._awaiting.leaves(uid) or self._runs(uid)

    def freed(self, uid: str) -> None:
        """A refusal is not final after all."""
        pod = self._owner.pods.get(uid)
        if pod is not None:
            pod.rejected = False

    async def run(self) -> None:
        """Decide whenever there is something new; calls of the runtime are answered between any two pods."""
        while True:
            await self._due.wait()
            self._due.clear()
            for step in self.steps():
                self._owner.seam.attempt("arrive", step[0], step[1])
                await asyncio.sleep(0)

    def steps(self) -> Iterator[tuple[Identity, Callable[[], None]]]:
        """What is to be done, a pod at a time; each is done before the next is looked at. Nothing while the runtime has
        not said what runs, or the source does not know."""
        if not self._may_decide():
            return
        yield from self._departures()
        for known in self._awaiting.known() if self._early else ():
            if not self._may_decide():
                return
            if not known.deleting and self._is_news(known):
                yield _identity(known), partial(self._arrive, known)
        for pod in list(self._owner.pods.values()):
            refusal = pod.refusals.get(pod.identity.uid)
            here = self._owner.pods.get(pod.identity.uid) is pod and not pod.tolerated
            if here and refusal is not None and refusal.final:
                judge = self._insist if pod.rejected else self._judge
                yield pod.identity, partial(judge, pod, refusal)

    def _may_decide(self) -> bool:
        return self._owner.store is not None and self._connected() and self._awaiting.current

    # Coming and going

    def _departures(self) -> Iterator[tuple[Identity, Callable[[], None]]]:
        for uid, pod in list(self._owner.pods.items()):
            if not pod.sandboxes and self._awaiting.get(uid) is None:
                yield pod.identity, partial(self._owner.leave, uid)
        for forgotten in (self._specs, self._last):
            for uid in forgotten.keys() - self._owner.pods.keys():
                del forgotten[uid]

    def _is_news(self, known: KnownPod) -> bool:
        pod = self._owner.pods.get(known.uid)
        if pod is None:
            return True
        if not pod.sandboxes and self._specs.get(known.uid, known.spec) != known.spec:
            return not pod.rejected
        return known.uid in pod.refusals and not pod.rejected and not pod.tolerated

    def _arrive(self, known: KnownPod) -> None:
        pod = self._owner.pods.get(known.uid)
        if pod is not None and not pod.sandboxes and self._specs.get(known.uid, known.spec) != known.spec:
            self._owner.leave(known.uid)
        self._specs[known.uid] = known.spec
        identity = _identity(known)
        if pod is not None and pod.sandboxes:
            identity = pod.identity
        found = self._found(identity)
        before = self._rejected(known.uid)
        if before is None:
            self._owner.arrive(identity, found)
            return
        refusal = replace(before, spec=found if isinstance(found, Pod) else None)
        if self._reject(identity, refusal):
            self._owner.arrive(identity, refusal)
            self._owner.pods[known.uid].rejected = True
        else:
            self._owner.arrive(identity, found)

    def _found(self, identity: Identity) -> Found:
        try:
            return self._find(identity)
        except InputError as error:
            return ReportedRefusal(INVALID_POD, str(error))

    # What becomes of a refused pod

    def _judge(self, pod: PodRecord, refusal: ReportedRefusal) -> None:
        """Nothing is looked at again until the node, or who is on the way out, is another."""
        if self._early and not self._owner.admitting.holds(refusal) and not self._still_refused(pod):
            return
        refusal = pod.refusals[pod.identity.uid]
        leaving = self._leaving(but=pod)
        facts = refusal.moment, refusal.reason, refusal.message, *sorted(one.identity.uid for one in leaving)
        if self._last.get(pod.identity.uid) != facts:
            refusal = self._look(pod, refusal, leaving)
            self._last[pod.identity.uid] = facts
        if not refusal.waits_for and self._may_reject(pod) and self._reject(pod.identity, refusal):
            pod.rejected = True

    def _still_refused(self, pod: PodRecord) -> bool:
        """Decide once more: between a pod's refusal and this look at it, room may have come."""
        uid = pod.identity.uid
        known = self._awaiting.get(uid)
        if known is None or known.deleting:
            return True
        self._arrive(known)
        refusal = pod.refusals.get(uid)
        return self._owner.pods.get(uid) is pod and refusal is not None and refusal.final and not pod.rejected

    def _insist(self, pod: PodRecord, refusal: ReportedRefusal) -> None:
        """A rejected pod is on the list again: something has written over its status."""
        if self._may_reject(pod):
            self._reject(pod.identity, refusal)

    def _look(self, pod: PodRecord, refusal: ReportedRefusal, leaving: list[PodRecord]) -> ReportedRefusal:
        units = [unit for one in leaving for unit in one.units]
        node = self._owner.node
        helps = node is not None and refusal.spec is not None and units and fits_without(node, refusal.spec, units)
        names = tuple(sorted(str(one.identity) for one in leaving)) if helps else ()
        if names != refusal.waits_for:
            refusal = replace(refusal, waits_for=names)
            pod.refusals[pod.identity.uid] = refusal
        self._told.judged(pod.identity, refusal)
        return refusal

    def _leaving(self, *, but: PodRecord) -> list[PodRecord]:
        """Pods that hold something and are on their way out: being deleted, or ended."""
        return [pod for pod in self._owner.pods.values() if pod is not but and pod.units and self._leaves(pod)]

    def _leaves(self, pod: PodRecord) -> bool:
        return not pod.identity.static and self._awaiting.leaves(pod.identity.uid)

    def _may_reject(self, pod: PodRecord) -> bool:
        """Only pods that the API server has and that run nothing here."""
        identity, known = pod.identity, self._awaiting.get(pod.identity.uid)
        if known is None or known.deleting or identity.static:
            return False
        return not self._runs(identity.uid) and (known.namespace, known.name) == (identity.namespace, identity.name)

    def _runs(self, uid: str) -> bool:
        return any(one.pod_uid == uid for one in self._owner.containers.values())


def _identity(known: KnownPod) -> Identity:
    return Identity(known.uid, known.namespace, known.name, {})
