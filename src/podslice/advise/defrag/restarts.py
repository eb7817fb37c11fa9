"""Making room by restarting pods: what a node without an agent can do.

A kubelet never moves a running container to other CPUs; a pod moves by ending and being admitted again. So a plan is a
list of steps in which chosen pods end and start again once each. After each step the node is in a state that a kubelet
can be in: every pod that starts was really admitted, with all others in place. No plan leaves a pod behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeAlias

import msgspec

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.removals import FEW_PODS, Removals
from podslice.advise.trial.trial import Trial
from podslice.api.pod.critical import is_critical
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.values.cpuset import CPUSet

MOST_TRIES = 1500


class RestartStep(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a plan. `action`: `stop` (the pod ends), `start` (it is admitted again), `place` (the new pod).

    `before` and `after` are the CPUs that the pod owns before and after.
    """

    action: str
    pod: str
    uid: str
    before: CPUSet = CPUSet()
    after: CPUSet = CPUSet()


Steps: TypeAlias = tuple[RestartStep, ...]


class RestartPlan(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="restarts"):
    """Ordered steps; `restarted` pods end and start once each, none when the pod fits as it is.

    `fits`: there is a plan. `exhaustive`: every smaller set of pods was tried, and without a plan every set.
    """

    fits: bool
    steps: tuple[RestartStep, ...]
    restarted: tuple[str, ...]
    exhaustive: bool


def plan_restarts(node: Node, pod: Pod, *, most: int = 3, limit: int = MOST_TRIES) -> RestartPlan:
    """Plan the fewest restarted pods, at most `most`, after which `pod` is admitted.

    Every plan was carried out on a copy of the node, which stays as it is. `limit` bounds the sets of pods and the
    steps that are tried. Critical pods, and those with many containers, are tried last.
    """
    view = node.view
    pod = default_pod(pod, view.gates)
    movable = sorted(
        (uid for uid in view.pods if _owns(view, uid) and uid != pod.metadata.uid),
        key=lambda uid: _disruption(view.pods[uid]),
    )
    return _Search(Trial.of(node), pod, movable, limit).plan(most)


def carry_out(node: Node, plan: RestartPlan, pod: Pod) -> None:
    """Take the steps on the node itself."""
    view, trial = node.view, Trial.on(node)
    pod = default_pod(pod, view.gates)
    for step in plan.steps:
        if step.action == "stop":
            trial.stop(step.uid)
        else:
            known = view.pods.get(step.uid)
            assert trial.try_run(pod if known is None else known.spec), "the plan was tried"


class _Search:
    """Searches sets of pods, the smallest first, and for each the orders of their steps.

    Only sets without which the new pod fits are tried. Pods with equal requests on the same NUMA nodes are
    interchangeable, so with many pods only one set of each composition is tried. When the tries are used up, a set that
    cannot be made smaller by leaving out one pod is taken instead of the smallest.
    """

    def __init__(self, node: Trial, pod: Pod, movable: Sequence[str], limit: int) -> None:
        self.node = node
        self.pod = pod
        self.movable = tuple(movable)
        self.nodes = Alternatives(node)
        self.removals = Removals(self.nodes, self.nodes.needs(pod), limit=limit)
        self.exhaustive = len(movable) <= FEW_PODS
        self.equivalence = {uid: (uid,) if self.exhaustive else _equivalence_key(node.view, uid) for uid in movable}
        self.specs = {uid: other.spec for uid, other in node.view.pods.items()}
        self.tries = limit

    def plan(self, most: int) -> RestartPlan:
        steps, uids = self._search(most)
        return RestartPlan(steps is not None, steps or (), uids, self.exhaustive)

    def _search(self, most: int) -> tuple[Steps | None, tuple[str, ...]]:
        """Return the steps and the restarted pods; (None, ()) where there is no plan."""
        if not self.exhaustive and not self.removals.helps(self.movable):
            return None, ()
        for count in range(min(most, len(self.movable)) + 1):
            for uids in self._candidate_sets(count):
                steps = self._order_steps(self.node.copy(), (), uids, (), placed=False)
                if steps is not None:
                    self.exhaustive = self.exhaustive or count <= 1
                    return steps, uids
        if self.exhaustive:
            return None, ()
        uids = Removals(self.nodes, self.nodes.needs(self.pod)).few(self.movable)
        # The search above may have used up all tries; ordering this one set still deserves some.
        self.tries = max(self.tries, FEW_PODS**2)
        steps = self._order_steps(self.node.copy(), (), uids, (), placed=False) if 0 < len(uids) <= most else None
        return steps, uids if steps is not None else ()

    def _candidate_sets(self, count: int) -> Iterator[tuple[str, ...]]:
        """Yield sets of `count` pods without which the new one fits, one of each composition."""
        seen = set()
        for uids in combinations(self.movable, count):
            composition = tuple(sorted(repr(self.equivalence[uid]) for uid in uids))
            if composition in seen:
                continue
            # Every set so far was tried, but not the rest: the plan is no longer known to be the smallest.
            if self.removals.is_exhausted or self.tries <= 0:
                self.exhaustive = False
                return
            seen.add(composition)
            if self.removals.helps(uids):
                yield uids

    def _order_steps(
        self,
        node: Trial,
        done: Steps,
        waiting: tuple[str, ...],
        away: tuple[str, ...],
        *,
        placed: bool,
    ) -> Steps | None:
        """Return the steps that restart the `waiting` pods, start those that are `away`, and place the new one; None if
        no order works.

        Pods that can start again at once do; then the new pod is placed; then another pod ends. The largest starts
        first.
        """
        if placed and not waiting and not away:
            return done
        # `away` is in the order of `movable`, by rising disruption: reversed, the largest pod starts while there is
        # most room.
        for uid in reversed(away):
            found = self._admit_next(
                node, done, waiting, tuple(other for other in away if other != uid), uid, placed=placed
            )
            if found is not None:
                return found
        if not placed:
            found = self._admit_next(node, done, waiting, away, "", placed=placed)
            if found is not None:
                return found
        for uid in waiting:
            copy = node.copy()
            step = _stop(copy, uid)
            rest = tuple(other for other in waiting if other != uid)
            # Pods that are away keep the order of `movable`, whatever the order in which they ended.
            gone = tuple(other for other in self.movable if other in away or other == uid)
            found = self._order_steps(copy, (*done, step), rest, gone, placed=placed)
            if found is not None:
                return found
        return None

    def _admit_next(
        self,
        node: Trial,
        done: Steps,
        waiting: tuple[str, ...],
        away: tuple[str, ...],
        uid: str,
        *,
        placed: bool,
    ) -> Steps | None:
        """Admit a pod, or for an empty `uid` the new one, and continue; None if it is refused or leads nowhere."""
        if self.tries <= 0:
            self.exhaustive = False
            return None
        self.tries -= 1
        copy, pod = node.copy(), self.specs[uid] if uid else self.pod
        if not copy.try_run(pod):
            return None
        own = pod.metadata.uid
        held = next((step.before for step in done if step.uid == own), CPUSet())
        step = RestartStep("start" if uid else "place", pod.metadata.full_name, own, held, _owned_cpus(copy, own))
        return self._order_steps(copy, (*done, step), waiting, away, placed=placed or not uid)


def _owned_cpus(node: Trial, uid: str) -> CPUSet:
    return CPUSet.from_bits(node.view.owned_by(uid))


def _stop(node: Trial, uid: str) -> RestartStep:
    held, name = _owned_cpus(node, uid), node.view.pods[uid].spec.metadata.full_name
    node.stop(uid)
    return RestartStep("stop", name, uid, held)


def _equivalence_key(node: NodeView, uid: str) -> tuple[object, ...]:
    """Return a key that is equal for pods with equal requests on the same NUMA nodes."""
    pod, cpus = node.pods[uid], node.owned_by(uid)
    blocks = [(b.numa_affinity, b.type, b.size) for c in pod.containers for b in node.blocks_of(uid, c.name)]
    devices = tuple(node.devices_of(uid, c.name) for c in pod.containers)
    shape = tuple((c.exclusive_cpus, c.init, c.restartable) for c in pod.containers)
    where = tuple((cpus & numa).bit_count() for numa in node.topology.numa_nodes.values())
    return is_critical(pod.spec), pod.cpus, shape, where, tuple(blocks), repr(devices) if any(devices) else ""


def _disruption(pod: AdmissionPod) -> tuple[bool, int, int, str]:
    return is_critical(pod.spec), len(pod.containers), pod.cpus, pod.uid


def _owns(node: NodeView, uid: str) -> bool:
    return any(uid in held for held in (node.owners, node.pod_cpus, node.blocks, node.device_ids))
