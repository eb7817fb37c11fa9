"""Defragmenting a node: the fewest moves of running pods that make room for a pending one.

A kubelet never moves a running container to other CPUs; a pod moves by ending and being admitted again. So a plan is a
list of moves, each of one pod, and after each of them the node is a state a kubelet can be in: the moved pod was
really admitted, with everything else in place. A plan that a pod's restart would interrupt is never given.

Two kinds of moves: a pod starts again at once (it lands elsewhere because the node looks different by then), or it
waits while others move and starts again later. Plans without waiting are preferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

_MOST_TRIES = 1000


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
    A set of pods is only looked at if the new one would fit without them.
    """
    pod = default_pod(pod, kubelet.manager.context.gates)
    tries = [_MOST_TRIES]
    removals = Removals(kubelet, pod)
    movable = sorted(
        (uid for uid, other in kubelet.active.items() if _owns(kubelet, uid) and uid != pod.metadata.uid),
        key=lambda uid: _disruption(kubelet, uid),
    )
    for count in range(min(most_moves, len(movable)) + 1):
        for uids in removals.helping(tuple(movable), count):
            plan = _plan(kubelet, pod, uids, tries)
            if plan is not None:
                return plan
            if tries[0] <= 0:
                return None
    return None


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


def _plan(kubelet: Kubelet, pod: Pod, uids: Sequence[str], tries: list[int]) -> Plan | None:
    """A valid order of steps that moves exactly these pods, if there is one among the orders tried."""
    for order in _orders(tuple(uids)):
        if tries[0] <= 0:
            return None
        tries[0] -= 1
        steps = _carried_out(kubelet, pod, order)
        if steps is not None:
            return Plan(steps, tuple(uids))
    return None


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
