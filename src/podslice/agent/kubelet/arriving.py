"""Decide about pods as soon as the API server reports them, before the kubelet makes their sandboxes.

The owner decides as it does for a sandbox, and an admitted pod holds its resources until it is gone. A refused pod
waits where pods that are leaving make room for it; otherwise it is rejected.
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
from podslice.agent.status.trialnode import fits_without
from podslice.api.pod.spec import Pod
from podslice.service.identity import Identity
from podslice.service.podlist import KnownPod
from podslice.values.errors import InputError
from podslice.values.reasons import INVALID_POD


class PodList(Protocol):
    """A source that lists all pods of this node. `cause`: why it gets nothing new, empty while all is well."""

    ready: bool
    cause: str
    pods: KnownPods


class RefusalListener(Protocol):
    """Receiver of decisions about refused pods."""

    def on_refusal(self, identity: Identity, refusal: ReportedRefusal) -> None:
        """Note that a pod is rejected, waits (`waits_for`), or is refused at its containers; again when that
        changes."""


class Awaiting:
    """The pods that are to run on a node, according to a source."""

    def __init__(self, source: PodList, node: str) -> None:
        self._source = source
        self._node = node

    @property
    def current(self) -> bool:
        """Whether the source's list is complete and current."""
        return self._source.ready and not self._source.cause

    def __call__(self, uid: str) -> Identity | None:
        """Return the pod with this UID if it is to run here, None also while the list is not current."""
        # A list that is out of date may lack a pod that is to run: nothing is concluded from it.
        known = self._source.pods.get(uid) if self.current else None
        return _identity(known) if known is not None and self.counts(known) and not known.deleting else None

    def counts(self, known: KnownPod) -> bool:
        """Whether this is a pod of this node that has not ended and that the kubelet gets from the API server."""
        return known.node == self._node and not known.mirror and not known.ended and known.problem is None

    def known(self) -> list[KnownPod]:
        """Return the pods that count, in the order of their creation."""
        return sorted(filter(self.counts, self._source.pods), key=lambda pod: (pod.created, pod.namespace, pod.name))

    def get(self, uid: str) -> KnownPod | None:
        """Return the pod with this UID if it counts."""
        known = self._source.pods.get(uid)
        return known if known is not None and self.counts(known) else None

    def is_preparing(self, uid: str) -> bool:
        """Whether the kubelet works on the pod's sandbox or images and has not reported the result yet."""
        known = self.get(uid)
        return known is not None and known.preparing

    def is_leaving(self, uid: str) -> bool:
        """Whether a pod is being deleted, has ended or is gone."""
        known = self._source.pods.get(uid)
        return known is None or known.ended or known.deleting


class Arriving:
    """Decides about pods before their sandboxes; `run` does so for ever.

    `find`: returns a pod's specification. `connected`: whether the runtime is connected.
    `early` False: a pod's sandbox has more than the sources, so decide only what becomes of refused pods.
    `reject`: makes a refusal final; returns False where it cannot. `rejected`: returns the final refusal of a UID.
    `listener`: gets the decisions about refused pods.
    """

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
        listener: RefusalListener,
    ) -> None:
        self._owner = owner
        self._awaiting = awaiting
        self._find = find
        self._connected = connected
        self._early = early
        self._reject = reject
        self._rejected = rejected
        self._listener = listener
        self._due = asyncio.Event()
        self._specs: dict[str, bytes] = {}
        self._last: dict[str, tuple[object, ...]] = {}

    def wake(self) -> None:
        """Look again: a pod has changed, or resources have become free."""
        self._due.set()

    def is_moot(self, uid: str) -> bool:
        """Whether a pod needs no rejection any more: it has ended, is leaving, or runs by now."""
        return self._awaiting.is_leaving(uid) or self._runs(uid)

    def undo_rejection(self, uid: str) -> None:
        """Note that a refusal is not final after all."""
        pod = self._owner.pods.get(uid)
        if pod is not None:
            pod.rejected = False

    async def run(self) -> None:
        """Decide whenever something has changed; calls of the runtime are answered between any two pods."""
        while True:
            await self._due.wait()
            self._due.clear()
            for step in self.steps():
                self._owner.seam.attempt("arrive", step[0], step[1])
                await asyncio.sleep(0)

    def steps(self) -> Iterator[tuple[Identity, Callable[[], None]]]:
        """Yield the work of a pass, one pod at a time; each step must be done before the next is taken.

        Yields nothing while it is not known what runs (runtime) or what is to run (source).
        """
        if not self._may_decide():
            return
        yield from self._departures()
        for known in self._awaiting.known() if self._early else ():
            # Steps await in between, and the runtime or the list may be lost meanwhile.
            if not self._may_decide():
                return
            if not known.deleting and self._is_undecided(known):
                yield _identity(known), partial(self._arrive, known)
        # A copy: the steps that are yielded change the owner's pods.
        for pod in list(self._owner.pods.values()):
            refusal = pod.refusals.get(pod.identity.uid)
            here = self._owner.pods.get(pod.identity.uid) is pod and not pod.tolerated
            if here and refusal is not None and refusal.final:
                judge = self._reject_again if pod.rejected else self._settle
                yield pod.identity, partial(judge, pod, refusal)

    def _may_decide(self) -> bool:
        return self._owner.store is not None and self._connected() and self._awaiting.current

    # Pods that come and go

    def _departures(self) -> Iterator[tuple[Identity, Callable[[], None]]]:
        for uid, pod in list(self._owner.pods.items()):
            # A pod with a sandbox is released when that stops, whatever the API server says.
            if not pod.sandboxes and self._awaiting.get(uid) is None:
                yield pod.identity, partial(self._owner.leave, uid)
        for forgotten in (self._specs, self._last):
            for uid in forgotten.keys() - self._owner.pods.keys():
                del forgotten[uid]

    def _is_undecided(self, known: KnownPod) -> bool:
        pod = self._owner.pods.get(known.uid)
        if pod is None:
            return True
        if not pod.sandboxes and self._specs.get(known.uid, known.spec) != known.spec:
            return not pod.rejected
        return known.uid in pod.refusals and not pod.rejected and not pod.tolerated

    def _arrive(self, known: KnownPod) -> None:
        pod = self._owner.pods.get(known.uid)
        # Another specification before the first sandbox is another pod to the managers: it is admitted anew.
        if pod is not None and not pod.sandboxes and self._specs.get(known.uid, known.spec) != known.spec:
            self._owner.leave(known.uid)
        self._specs[known.uid] = known.spec
        identity = _identity(known)
        if pod is not None and pod.sandboxes:
            identity = pod.identity
        found = self._find_pod(identity)
        before = self._rejected(known.uid)
        # A pod that an earlier agent has rejected stays rejected, whatever is free now.
        if before is None:
            self._owner.arrive(identity, found)
            return
        refusal = replace(before, spec=found if isinstance(found, Pod) else None)
        if self._reject(identity, refusal):
            self._owner.arrive(identity, refusal)
            self._owner.pods[known.uid].rejected = True
        else:
            self._owner.arrive(identity, found)

    def _find_pod(self, identity: Identity) -> Found:
        try:
            return self._find(identity)
        except InputError as error:
            return ReportedRefusal(INVALID_POD, str(error))

    # Refused pods

    def _settle(self, pod: PodRecord, refusal: ReportedRefusal) -> None:
        """Decide whether a refused pod waits or is rejected. Its facts are compared first: the node and the leaving
        pods."""
        if self._early and not self._owner.admitting.holds(refusal) and not self._still_refused(pod):
            return
        refusal = pod.refusals[pod.identity.uid]
        leaving = self._leaving(but=pod)
        facts = refusal.moment, refusal.reason, refusal.message, *sorted(one.identity.uid for one in leaving)
        # The look tries an admission without the leaving pods, so it is repeated only when these facts change.
        if self._last.get(pod.identity.uid) != facts:
            refusal = self._look(pod, refusal, leaving)
            self._last[pod.identity.uid] = facts
        if not refusal.waits_for and self._may_reject(pod) and self._reject(pod.identity, refusal):
            pod.rejected = True

    def _still_refused(self, pod: PodRecord) -> bool:
        """Decide once more, since resources may have become free meanwhile. Return whether the pod is still refused."""
        uid = pod.identity.uid
        known = self._awaiting.get(uid)
        if known is None or known.deleting:
            return True
        self._arrive(known)
        refusal = pod.refusals.get(uid)
        return self._owner.pods.get(uid) is pod and refusal is not None and refusal.final and not pod.rejected

    def _reject_again(self, pod: PodRecord, refusal: ReportedRefusal) -> None:
        """Reject a pod that is still on the list: another client has overwritten its status."""
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
        self._listener.on_refusal(pod.identity, refusal)
        return refusal

    def _leaving(self, *, but: PodRecord) -> list[PodRecord]:
        """Return the pods that hold resources and are being deleted or have ended."""
        return [pod for pod in self._owner.pods.values() if pod is not but and pod.units and self._leaves(pod)]

    def _leaves(self, pod: PodRecord) -> bool:
        return not pod.identity.static and self._awaiting.is_leaving(pod.identity.uid)

    def _may_reject(self, pod: PodRecord) -> bool:
        """Whether the pod may be rejected: the API server has it, and nothing of it runs here."""
        identity, known = pod.identity, self._awaiting.get(pod.identity.uid)
        if known is None or known.deleting or identity.static:
            return False
        # The same UID under another name is a mirror or a mistake; its status is not ours to write.
        return not self._runs(identity.uid) and (known.namespace, known.name) == (identity.namespace, identity.name)

    def _runs(self, uid: str) -> bool:
        return any(one.pod_uid == uid for one in self._owner.containers.values())


def _identity(known: KnownPod) -> Identity:
    return Identity(known.uid, known.namespace, known.name, {})
