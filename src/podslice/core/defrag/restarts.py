"""Defragmenting a node: the fewest moves of running pods that make room for a pending one.

A kubelet never moves a running container to other CPUs; a pod moves by ending and being admitted again. So a plan is a
list of moves, each of one pod, and after each of them the node is a state a kubelet can be in: the moved pod was
really admitted, with everything else in place. A plan that a pod's restart would interrupt is never given.

Two kinds of moves: a pod starts again at once (it lands elsewhere because the node looks different by then), or it
waits while others move and starts again later. Plans without waiting are preferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from podslice.core.errors import UpstreamDefectError
from podslice.core.explain.edits import POD, with_amounts
from podslice.core.explain.fork import fork
from podslice.core.explain.removals import Removals
from podslice.core.kubelet import Kubelet
from podslice.core.pod.critical import is_critical
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.spec import Pod
from podslice.core.values.cpuset import CPUSet
from podslice.core.values.quantity import Quantity

_MOST_TRIES = 1500
_FEW_PODS = 12


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a plan. `action`: `stop` (the pod ends), `start` (it is admitted again), `place` (the new pod).

    `before` and `after` are the CPUs the pod owns before and after.
    """

    action: str
    pod: str
    uid: str
    before: CPUSet = CPUSet()
    after: CPUSet = CPUSet()


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """Ordered steps; `moved` pods are restarted once each. No steps but `place`: it fits as it is."""

    steps: tuple[Step, ...]
    moved: tuple[str, ...]


def defragment(kubelet: Kubelet, pod: Pod, *, most_moves: int = 3) -> Plan | None:
    """The plan with the fewest moved pods after which `pod` is admitted; None if no plan with so many is found.

    Every plan was carried out on a copy of the node. Critical pods, and those with many containers, are tried last.
    """
    pod = default_pod(pod, kubelet.manager.context.gates)
    movable = sorted(
        (uid for uid, other in kubelet.active.items() if _owns(kubelet, uid) and uid != pod.metadata.uid),
        key=lambda uid: _disruption(kubelet, uid),
    )
    search = _Search(kubelet, pod, movable)
    for count in range(min(most_moves, len(movable)) + 1):
        plan = search.plan(count)
        if plan is not None:
            return plan
    return search.last_resort(most_moves)


class _Search:
    """Looks through sets of pods, the smallest first.

    Pods that ask for the same and hold it on the same NUMA nodes are as good as each other, so with many pods only one
    set of each composition is looked at. The number of tries is limited; afterwards a set that cannot be made smaller
    by leaving out one pod is taken instead of the smallest.
    """

    def __init__(self, kubelet: Kubelet, pod: Pod, movable: Sequence[str]) -> None:
        self.kubelet = kubelet
        self.pod = pod
        self.movable = tuple(movable)
        self.removals = Removals(kubelet, pod, limit=_MOST_TRIES)
        exact = len(movable) <= _FEW_PODS
        self.likeness = {uid: (uid,) if exact else _likeness(kubelet, uid) for uid in movable}

    def plan(self, count: int) -> Plan | None:
        """A plan that moves so many pods."""
        return next(filter(None, map(self._plan, self._sets(count))), None)

    def last_resort(self, most_moves: int) -> Plan | None:
        """A plan with few, not necessarily the fewest moves, if the search was cut short."""
        if not self.removals.exhausted:
            return None
        uids = Removals(self.kubelet, self.pod).several(self.movable)
        return self._plan(uids) if 0 < len(uids) <= most_moves else None

    def _sets(self, count: int) -> Iterator[tuple[str, ...]]:
        """Sets of so many pods without which the new one fits, one of each composition."""
        seen = set()
        for uids in combinations(self.movable, count):
            composition = tuple(sorted(repr(self.likeness[uid]) for uid in uids))
            if composition in seen:
                continue
            if self.removals.exhausted:
                return
            seen.add(composition)
            if self.removals.help(uids):
                yield uids

    def _plan(self, uids: tuple[str, ...]) -> Plan | None:
        """A valid order of steps that moves exactly these pods, if there is one among the orders tried."""
        for order in _orders(uids):
            steps = _carried_out(self.kubelet, self.pod, order)
            if steps is not None:
                return Plan(steps, uids)
        return None


def _likeness(kubelet: Kubelet, uid: str) -> tuple[object, ...]:
    """Equal for pods that ask for the same and hold it on the same NUMA nodes."""
    pod, manager = kubelet.active[uid], kubelet.manager
    cpus = _cpus(kubelet, uid).bits
    blocks = [(b.numa_affinity, b.type, b.size) for c in pod.containers for b in manager.memory.blocks(uid, c.name)]
    devices = tuple(manager.device.devices_of(uid, c.name) for c in pod.containers)
    asked = tuple((c.exclusive_cpus, c.init, c.restartable) for c in pod.containers)
    where = tuple((cpus & node).bit_count() for node in manager.cpu.topology.numa_nodes.values())
    return is_critical(pod.spec), pod.cpus, asked, where, tuple(blocks), repr(devices) if any(devices) else ""


def _disruption(kubelet: Kubelet, uid: str) -> tuple[bool, int, int, str]:
    pod = kubelet.active[uid]
    return is_critical(pod.spec), len(pod.containers), pod.cpus, uid


def _owns(kubelet: Kubelet, uid: str) -> bool:
    manager = kubelet.manager
    return (
        uid in manager.cpu.state.assignments
        or uid in manager.cpu.state.bubbles
        or uid in manager.memory.assignments
        or manager.device.holds_devices(uid)
    )


Order = tuple[tuple[str, str], ...]


def _orders(uids: tuple[str, ...]) -> Iterator[Order]:
    """First each pod restarts in turn, then the new one is placed; then all stop, the new one is placed, they start
    again, in the given order and with the largest first (`uids` come smallest first)."""
    yield (*((action, uid) for uid in uids for action in ("stop", "start")), ("place", ""))
    if uids:
        stops = tuple(("stop", uid) for uid in uids)
        yield (*stops, ("place", ""), *(("start", uid) for uid in reversed(uids)))
        if len(uids) > 1:
            yield (*stops, ("place", ""), *(("start", uid) for uid in uids))
            yield (*stops, *(("start", uid) for uid in reversed(uids)), ("place", ""))


def _carried_out(kubelet: Kubelet, pod: Pod, order: Order) -> tuple[Step, ...] | None:
    """The steps as they happen on a copy of the node; None as soon as one fails."""
    copy = fork(kubelet)
    specs = {uid: other.spec for uid, other in kubelet.active.items()}
    before: dict[str, CPUSet] = {}
    steps = []
    for action, uid in order:
        subject = pod if action == "place" else specs[uid]
        own = subject.metadata.uid
        name = f"{subject.metadata.namespace or 'default'}/{subject.metadata.name}"
        if action == "stop":
            before[own] = _cpus(copy, own)
            copy.remove_pod(own)
            copy.collect()
            steps.append(Step("stop", name, own, before[own]))
        elif _admitted(copy, subject):
            steps.append(Step(action, name, own, before.get(own, CPUSet()), _cpus(copy, own)))
        else:
            return None
    return tuple(steps)


def _admitted(kubelet: Kubelet, pod: Pod) -> bool:
    kubelet.preempted = ()
    try:
        if kubelet.admit(pod) is not None or kubelet.preempted:
            return False
        started = kubelet.start_containers(pod.metadata.uid)
    except UpstreamDefectError:
        return False
    return not any(container.error for container in started.values())


def _cpus(kubelet: Kubelet, uid: str) -> CPUSet:
    """All CPUs that belong to a pod alone."""
    state = kubelet.manager.cpu.state
    cpus = state.bubbles.get(uid, 0)
    for own in state.assignments.get(uid, {}).values():
        cpus |= own
    return CPUSet.from_bits(cpus)


# The largest pod that could be placed


class Largest(msgspec.Struct, frozen=True, rename="camel"):
    """The most CPUs a pod shaped like `pod` can ask for now, and after the plan."""

    now: int
    after: int
    plan: Plan | None


def largest(kubelet: Kubelet, shape: Pod, *, most_moves: int = 1) -> Largest:
    """How large the first container of `shape` can be made, without and with up to `most_moves` moved pods.

    With pod-level resources the pod as a whole is sized. Memory and devices stay as they are in `shape`.
    """
    shape = default_pod(shape, kubelet.manager.context.gates)
    cpu = kubelet.manager.cpu
    free = (cpu.state.default & ~cpu.reserved).bit_count()
    now = next((n for n in range(free, 0, -1) if _fits(kubelet, _sized(shape, n))), 0)
    for count in range(free, now, -1):
        plan = defragment(kubelet, _sized(shape, count), most_moves=most_moves)
        if plan is not None:
            return Largest(now, count, plan)
    return Largest(now, now, None)


def _fits(kubelet: Kubelet, pod: Pod) -> bool:
    return _admitted(fork(kubelet), pod)


def _sized(shape: Pod, cpus: int) -> Pod:
    place = POD if shape.spec.resources is not None else shape.spec.containers[0].name
    return with_amounts(shape, {(place, "cpu"): Quantity.of(cpus)})
