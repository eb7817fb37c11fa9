"""A plan: moves in order, each of which leaves the node valid, after which a pod fits. And making and checking one."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from podslice.advise.defrag.bound import IMPOSSIBLE, Bound
from podslice.advise.defrag.groups import no_worse, owned, standing
from podslice.advise.defrag.search import MOST_STATES, Found, fewest_moves
from podslice.advise.defrag.space import Space, put
from podslice.advise.explain.changes import lands
from podslice.core.errors import StartError, UpstreamDefectError
from podslice.core.kubelet import Kubelet
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.spec import Pod
from podslice.core.values.cpuset import CPUSet


class ContainerMove(msgspec.Struct, frozen=True, rename="camel"):
    """One container's CPUs and the NUMA nodes of its memory before and after; empty for what it does not own."""

    name: str
    cpus_before: CPUSet
    cpus_after: CPUSet
    memory_nodes_before: CPUSet
    memory_nodes_after: CPUSet


class Move(msgspec.Struct, frozen=True, rename="camel"):
    """Containers of one pod that move at once. `pod_cpus_*` are the CPUs of a pod with pod-level resources, None for
    other pods."""

    uid: str
    namespace: str
    name: str
    containers: tuple[ContainerMove, ...]
    pod_cpus_before: CPUSet | None = None
    pod_cpus_after: CPUSet | None = None


class Plan(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="moves"):
    """The answer for one pod. `fits`: it is admitted after the moves. `container_moves` counts containers that run;
    no plan has fewer than `at_least`. `proven`: there is no shorter plan, or with `fits` False none at all. `placed`:
    the CPUs the pod then owns."""

    fits: bool
    moves: tuple[Move, ...]
    container_moves: int
    at_least: int
    proven: bool
    placed: CPUSet = CPUSet()


def defragment(kubelet: Kubelet, pod: Pod, *, most: int | None = None, limit: int = MOST_STATES) -> Plan:
    """The fewest container moves, at most `most`, after which the node admits the pod; `limit` bounds the exact search
    (states).

    The node is left as it is. Plans are tried from the first move to the admission of the pod before they are returned.
    """
    pod = default_pod(pod, kubelet.manager.context.gates)
    space = Space(kubelet)
    bound = Bound(kubelet, kubelet.admission(pod), space.groups)
    found = fewest_moves(space, bound, pod, limit, most=IMPOSSIBLE - 1 if most is None else most)
    if found.steps is None:
        return Plan(False, (), 0, found.at_least, found.proven)
    moves = _moves(kubelet, space, found)
    copy = kubelet.copy()
    if problem_with(copy, moves, pod):
        return Plan(False, (), 0, found.at_least, False)
    count = sum(space.groups[step.group].weight for step in found.steps)
    return Plan(True, moves, count, found.at_least, found.proven, owned(copy, pod.metadata.uid))


def _moves(kubelet: Kubelet, space: Space, found: Found) -> tuple[Move, ...]:
    """Take the steps on a copy and write down what changes."""
    copy, state, moves = kubelet.copy(), space.start(), []
    for step in found.steps or ():
        after = space.taken(space.drafted(state, step), step)
        assert after is not None, "the search took this step"
        group = space.groups[step.group]
        before = _held(copy, group.uid, group.names)
        bubble = copy.manager.cpu.state.bubbles.get(group.uid)
        put(copy, group, after.cpus[step.group], step.to.nodes)
        now = _held(copy, group.uid, group.names)
        metadata = copy.active[group.uid].spec.metadata
        moved = None if bubble is None else CPUSet.from_bits(copy.manager.cpu.state.bubbles[group.uid])
        moves.append(
            Move(
                uid=group.uid,
                namespace=metadata.namespace or "default",
                name=metadata.name,
                containers=tuple(
                    ContainerMove(name, *_pair(before[name][0], now[name][0]), *_pair(before[name][1], now[name][1]))
                    for name in group.names
                ),
                pod_cpus_before=None if bubble is None else CPUSet.from_bits(bubble),
                pod_cpus_after=moved,
            )
        )
        state = after
    return tuple(moves)


def _pair(before: int, after: int) -> tuple[CPUSet, CPUSet]:
    return CPUSet.from_bits(before), CPUSet.from_bits(after)


def _held(kubelet: Kubelet, uid: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    manager = kubelet.manager
    return {
        name: (manager.cpu.state.assignment(uid, name) or 0, manager.memory.numa_nodes(uid, name)) for name in names
    }


# Applying


def apply_move(kubelet: Kubelet, move: Move) -> None:
    """Move the containers in the state of the managers, CPUs and memory."""
    manager = kubelet.manager
    sets = {c.name: c.cpus_after.bits for c in move.containers if c.cpus_after}
    if sets or move.pod_cpus_after is not None:
        bubble = None if move.pod_cpus_after is None else move.pod_cpus_after.bits
        manager.cpu.state = manager.cpu.state.relocate(move.uid, sets, bubble)
    names = [c.name for c in move.containers if c.memory_nodes_after]
    if names or manager.memory.pod_blocks(move.uid):
        nodes = next((c.memory_nodes_after.bits for c in move.containers if c.memory_nodes_after), 0)
        manager.memory.relocate(move.uid, [c.name for c in move.containers], nodes)


def problem_with(kubelet: Kubelet, moves: Iterable[Move], pod: Pod) -> str:
    """What goes wrong when a plan is applied to this node and the pod admitted for real; empty if nothing.

    After every move: as many CPUs as before and all of them free or the group's own, the shared pool not empty,
    nothing owned twice, and a restarted kubelet takes all pods back with what the files say.
    """
    for number, move in enumerate(moves, 1):
        problem = _broken_by(kubelet, move)
        if problem:
            return f"move {number} ({move.namespace}/{move.name}): {problem}"
    return "" if lands(kubelet, pod) else "the pod is refused after the moves"


def _broken_by(kubelet: Kubelet, move: Move) -> str:
    cpu = kubelet.manager.cpu
    topology, pod = kubelet.manager.topology, kubelet.active[move.uid]
    before = standing(topology, pod)
    usable = cpu.state.default & ~cpu.reserved | _union(c.cpus_before for c in move.containers)
    usable |= move.pod_cpus_before.bits if move.pod_cpus_before is not None else 0
    if any(len(c.cpus_before) != len(c.cpus_after) or c.cpus_after.bits & ~usable for c in move.containers):
        return "CPUs that are not free, or not as many as before"
    free = cpu.state.default.bit_count()
    apply_move(kubelet, move)
    if not cpu.state.default or cpu.state.default.bit_count() != free:
        return "the shared pool changed its size"
    if not no_worse(before, standing(topology, pod)):
        return "it is aligned worse than before"
    return _restart_problem(kubelet.copy())


def _union(sets: Iterable[CPUSet]) -> int:
    union = 0
    for cpus in sets:
        union |= cpus.bits
    return union


def _restart_problem(kubelet: Kubelet) -> str:
    """Restart on the files as they are now; what a kubelet refuses or changes then is a problem."""
    kubelet.save()
    files = dict(kubelet.files)
    try:
        kubelet.restart()
        refused = [admitted for admitted in kubelet.readmit() if admitted.refusal is not None]
    except (StartError, UpstreamDefectError) as error:
        return f"a kubelet would not start again: {error}"
    if refused:
        return f"a restarted kubelet would refuse {refused[0].uid}"
    kubelet.sources_ready()
    kubelet.collect()
    kubelet.save()
    return "" if kubelet.files == files else "a restarted kubelet would change the state"
