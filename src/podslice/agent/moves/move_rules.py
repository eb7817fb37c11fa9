"""Which moves the agent makes, and why not another one: questions about the ledgers, without any write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import NamedTuple

from podslice.advise.defrag.groups import groups_of
from podslice.advise.defrag.plan import Move
from podslice.agent.records import ContainerRecord
from podslice.api.pod.spec import Pod
from podslice.config.annotations import container_movability
from podslice.config.policy import PodslicePolicy
from podslice.host.filesystem import FileSystem
from podslice.host.kernel.cgroup2 import CgroupTree, cgroup_path
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits

KEEPS_AFFINITY = (6, 2)
"""The Linux release since which a thread's own affinity outlives a change of its cgroup's CPUs."""
_MOST_THREADS = 20_000
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def kernel_release(text: str) -> tuple[int, int]:
    """The two numbers a release begins with; (0, 0) for another text."""
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def ledger_problem(view: NodeView, move: Move) -> str:
    """Why the ledgers do not bear a move out; empty if they do."""
    pod = view.pods.get(move.uid)
    if pod is None:
        return "the pod is not on this node"
    for one in move.containers:
        held, nodes = view.assignment(move.uid, one.name) or 0, view.numa_nodes(move.uid, one.name)
        if held != one.cpus_before.bits:
            return f"container {one.name} has CPUs {format_bits(held) or 'of nobody'}, the plan says {one.cpus_before}"
        if nodes != one.memory_nodes_before.bits:
            return f"the memory of container {one.name} is on NUMA {format_bits(nodes) or 'any'}, the plan has another"
    bubble = None if move.pod_cpus_before is None else move.pod_cpus_before.bits
    if view.bubbles.get(move.uid) != bubble:
        return "the pod as a whole has other CPUs than the plan says"
    if not any({*group.names} == {one.name for one in move.containers} for group in groups_of(view, pod)):
        return "the plan does not have the containers together that move together"
    for first, second in permutations(move.containers, 2):
        if first.cpus_before != second.cpus_before and first.cpus_after.bits & second.cpus_before.bits:
            return f"container {first.name} would go where container {second.name} is"
    held_devices = [one.name for one in move.containers if view.devices_of(move.uid, one.name)]
    return f"container {held_devices[0]} holds devices" if held_devices else ""


def permission_problem(policy: PodslicePolicy, pod: Pod, move: Move) -> str:
    """Why policy or pod do not allow a move; empty if they do."""
    allowed = container_movability(policy, pod)
    for one in move.containers:
        if allowed.get(one.name) not in ("true", "pinned-too"):
            how = {"annotated": "its pod has no annotation podslice.io/movable that says so"}
            why = how.get(policy.defrag.movable, f"the policy says defrag.movable: {policy.defrag.movable}")
            return f"container {one.name} may not be moved: {why}"
        if policy.defrag.memory == "never" and one.memory_nodes_before != one.memory_nodes_after:
            return f"the memory of container {one.name} would have to follow: the policy says defrag.memory: never"
    return ""


class ThreadMasks(NamedTuple):
    """The affinities of a container's threads; `seen` False where nobody could look."""

    masks: tuple[Bits, ...] = ()
    seen: bool = True


Threads = Callable[[ContainerRecord], ThreadMasks]


def pinned_problem(
    record: ContainerRecord, leaves: Bits, threads: ThreadMasks, *, too: bool, kernel: tuple[int, int]
) -> str:
    """Why a container's threads stand in the way; empty if they do not. `too`: those with an affinity of their own may
    be moved."""
    if too:
        old = kernel < KEEPS_AFFINITY
        return f"container {record.name} is pinned-too, which needs Linux 6.2" if old else ""
    if not threads.seen:
        return (
            f"nobody can see whether threads of container {record.name} have an affinity of their own:"
            " run the agent in the node's process namespace, or let its pod say pinned-too"
        )
    own = next((mask for mask in threads.masks if mask & leaves != leaves), None)
    return "" if own is None else f"a thread of container {record.name} is bound to CPUs {format_bits(own)} by itself"


class ThreadReader:
    """Reads the affinities of a container's threads; `proc` is None where the node's processes cannot be seen."""

    def __init__(self, tree: CgroupTree, proc: FileSystem | None) -> None:
        self._tree = tree
        self._proc = proc

    def __call__(self, record: ContainerRecord) -> ThreadMasks:
        path = cgroup_path(record.cgroups_path)
        if path is None or self._proc is None:
            return ThreadMasks(seen=False)
        masks: list[Bits] = []
        for pid in [pid for below in self._tree.walk(path) for pid in self._tree.processes(below)]:
            if not pid or len(masks) > _MOST_THREADS:
                return ThreadMasks(seen=False)
            masks += self._of_process(self._proc, pid)
        return ThreadMasks(tuple(masks))

    def _of_process(self, proc: FileSystem, pid: int) -> Sequence[Bits]:
        """A thread that ends meanwhile has none."""
        masks = []
        for thread in proc.entries(f"{pid}/task"):
            try:
                found = _ALLOWED.search(proc.read(f"{pid}/task/{thread}/status"))
                masks.append(parse_bits(found[1]) if found else 0)
            except (OSError, CPUSetError):
                continue
        return masks
