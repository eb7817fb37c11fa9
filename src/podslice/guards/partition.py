"""Partitions of cpusets, by which the kernel itself keeps other cgroups off a set of CPUs.

The CPUs are reserved in every cgroup above (`cpuset.cpus.exclusive`), from the top, and then the container becomes a
partition (`cpuset.cpus.partition`). A container gives up CPUs by its `cpuset.cpus`, at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from podslice.guards.holders import GuardedHolder
from podslice.node.checkpoints.guard_files import GuardedFile, SavedFile, bits_in
from podslice.values.cpuset import Bits, format_bits, union

EXCLUSIVE: Final = "cpuset.cpus.exclusive"
PARTITION: Final = "cpuset.cpus.partition"
PARTITIONS: Final = (6, 11)
"""The first Linux release on which `auto` enforces partitions."""


class Partition(NamedTuple):
    """A cgroup that should be a partition. `path`: below the root of all cgroups.

    `kind`: root, or isolated (the kernel balances no load inside).
    `whole`: it is a pod's cgroup, which needs its own `cpuset.cpus.exclusive`: its `cpuset.cpus` is not set.
    """

    path: str
    cpus: Bits
    kind: str
    whole: bool = False

    @property
    def reserving(self) -> list[str]:
        """The cgroups that reserve its CPUs, from the top."""
        return [*above(self.path), *([self.path] if self.whole else [])]


def choose_partitions(
    holders: Iterable[GuardedHolder], cgroups: Iterable[tuple[str, str, str, Bits | None]]
) -> list[Partition]:
    """Choose the cgroups to make partitions of: those of holders that run on exactly their CPUs.

    `cgroups`: pod, container, path and CPUs of each running container. Where the containers of a pod share CPUs, the
    pod's cgroup is the partition, with all CPUs of its containers, provided each of them stays within these; then the
    containers have no partitions of their own.
    """
    held: dict[str, dict[str, GuardedHolder]] = {}
    for holder in holders:
        held.setdefault(holder.uid, {})[holder.container] = holder
    running: dict[str, dict[str, tuple[str, Bits | None]]] = {}
    for uid, name, path, cpus in cgroups:
        running.setdefault(uid, {})[name] = path, cpus
    chosen: list[Partition] = []
    for uid, mine in held.items():
        there = running.get(uid, {})
        whole = _whole(mine, there)
        chosen += [whole] if whole else _each(mine, there)
    return chosen


def _each(mine: Mapping[str, GuardedHolder], there: Mapping[str, tuple[str, Bits | None]]) -> Iterator[Partition]:
    for name, (path, cpus) in there.items():
        holder = mine.get(name) if name else None
        if holder is not None and holder.isolation != "shared" and cpus == holder.cpus:
            yield Partition(path, holder.cpus, holder.isolation)


def _whole(mine: Mapping[str, GuardedHolder], there: Mapping[str, tuple[str, Bits | None]]) -> Partition | None:
    """Return the partition of the pod's cgroup, the parent of its containers'; None where it cannot be one."""
    shared = mine.get("")
    folders = {path.rpartition("/")[0] for path, _ in there.values()}
    # Only a pod whose containers share CPUs needs its own cgroup as the partition.
    if shared is None or shared.isolation == "shared" or len(folders) != 1 or folders == {""}:
        return None
    cpus = union(one.cpus for one in mine.values())
    if any(run is None or run & ~cpus for _, run in there.values()):
        return None
    return Partition(folders.pop(), cpus, shared.isolation, whole=True)


def above(path: str) -> list[str]:
    """Return the cgroups above `path`, from the top, without the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def partition_paths(partitions: Iterable[Partition]) -> list[str]:
    """Return the files of the partitions, in the order in which they must be written."""
    listed = list(partitions)
    parents = sorted({parent for one in listed for parent in one.reserving}, key=lambda path: (path.count("/"), path))
    return [*(f"{parent}/{EXCLUSIVE}" for parent in parents), *(f"{one.path}/{PARTITION}" for one in listed)]


def partition_files(
    partitions: Iterable[Partition], texts: Mapping[str, str], saved: Mapping[str, SavedFile], *, mount: str
) -> Iterator[GuardedFile]:
    """Yield the files of the partitions with their wanted contents.

    `texts`: contents of the files that exist, by path below `mount`. Older kernels lack some, and have no partitions.
    """
    possible = [one for one in partitions if all(path in texts for path in partition_paths([one]))]
    taken: dict[str, Bits] = {}
    for one in possible:
        for parent in one.reserving:
            taken[parent] = taken.get(parent, 0) | one.cpus
    kinds = {f"{one.path}/{PARTITION}": one.kind for one in possible}
    for path, text in texts.items():
        cgroup, _, name = path.rpartition("/")
        full = f"{mount}/{path}"
        if path in kinds:
            yield GuardedFile(full, "value", text, guard="partition", wanted=kinds[path])
        elif name == EXCLUSIVE and cgroup in taken:
            known = saved.get(full)
            before = bits_in(text if known is None else known.before, "list")
            yield GuardedFile(full, "list", text, guard="partition", wanted=format_bits(before | taken[cgroup]))
