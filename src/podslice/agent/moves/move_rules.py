"""Checks of a move against state and policy, without writing anything."""

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

AFFINITY_KEPT_SINCE = (6, 2)
"""First Linux release on which a thread's own affinity survives a change of its cgroup's CPUs."""
_MOST_THREADS = 20_000
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def kernel_release(text: str) -> tuple[int, int]:
    """Return the major and minor number of a kernel release; (0, 0) for other text."""
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _cpus_text(held: Bits) -> str:
    return f"CPUs {format_bits(held)}" if held else "no exclusive CPUs"


def ledger_problem(view: NodeView, move: Move) -> str:
    """Return why the node's state contradicts a move; empty if it does not."""
    pod = view.pods.get(move.uid)
    if pod is None:
        return "the pod is not on this node"
    for one in move.containers:
        held, nodes = view.assignment(move.uid, one.name) or 0, view.numa_nodes(move.uid, one.name)
        if held != one.cpus_before.bits:
            return f"container {one.name} has {_cpus_text(held)}, the plan says {one.cpus_before}"
        if nodes != one.memory_nodes_before.bits:
            return f"the memory of container {one.name} is on NUMA {format_bits(nodes) or 'any'}, the plan has another"
    pod_cpus = None if move.pod_cpus_before is None else move.pod_cpus_before.bits
    if view.pod_cpus.get(move.uid) != pod_cpus:
        return "the pod as a whole has other CPUs than the plan says"
    if not any({*group.names} == {one.name for one in move.containers} for group in groups_of(view, pod)):
        return "the plan does not have the containers together that move together"
    # Containers are written one after the other, so a swap would have two owners on a CPU for a moment.
    for first, second in permutations(move.containers, 2):
        if first.cpus_before != second.cpus_before and first.cpus_after.bits & second.cpus_before.bits:
            return f"container {first.name} would go where container {second.name} is"
    held_devices = [one.name for one in move.containers if view.devices_of(move.uid, one.name)]
    return f"container {held_devices[0]} holds devices" if held_devices else ""


def permission_problem(policy: PodslicePolicy, pod: Pod, move: Move) -> str:
    """Return why policy or pod forbid a move; empty if they allow it."""
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
    """CPU affinities of a container's threads; `seen` is False where they could not be read."""

    masks: tuple[Bits, ...] = ()
    seen: bool = True


Threads = Callable[[ContainerRecord], ThreadMasks]


def pinned_problem(
    record: ContainerRecord, leaves: Bits, threads: ThreadMasks, *, too: bool, kernel: tuple[int, int]
) -> str:
    """Return why affinities set by the container's own threads forbid the move; empty if they do not.

    `leaves`: the CPUs it leaves. `too`: the pod declares itself `pinned-too`, so such threads may be moved.
    """
    if too:
        # Older kernels drop a thread's own affinity at the first write of its cgroup's CPUs.
        old = kernel < AFFINITY_KEPT_SINCE
        return f"container {record.name} is pinned-too, which needs Linux 6.2" if old else ""
    if not threads.seen:
        return (
            f"it cannot be seen whether threads of container {record.name} set their own affinity:"
            " run the agent in the node's process namespace, or let its pod say pinned-too"
        )
    own = next((mask for mask in threads.masks if mask & leaves != leaves), None)
    return "" if own is None else f"a thread of container {record.name} is bound to CPUs {format_bits(own)} by itself"


class ThreadReader:
    """Reads the CPU affinities of a container's threads. `proc` is None where the node's processes are not visible."""

    def __init__(self, tree: CgroupTree, proc: FileSystem | None) -> None:
        self._tree = tree
        self._proc = proc

    def __call__(self, record: ContainerRecord) -> ThreadMasks:
        path = cgroup_path(record.cgroups_path)
        if path is None or self._proc is None:
            return ThreadMasks(seen=False)
        masks: list[Bits] = []
        for pid in [pid for below in self._tree.walk(path) for pid in self._tree.processes(below)]:
            # A process outside our PID namespace is listed as 0: then its threads cannot be read.
            if not pid or len(masks) > _MOST_THREADS:
                return ThreadMasks(seen=False)
            masks += self._of_process(self._proc, pid)
        return ThreadMasks(tuple(masks))

    def _of_process(self, proc: FileSystem, pid: int) -> Sequence[Bits]:
        """Return the masks of a process's threads, without those that end meanwhile."""
        masks = []
        for thread in proc.entries(f"{pid}/task"):
            try:
                found = _ALLOWED.search(proc.read(f"{pid}/task/{thread}/status"))
                masks.append(parse_bits(found[1]) if found else 0)
            except (OSError, CPUSetError):
                continue
        return masks
