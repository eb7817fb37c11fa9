"""Partitions of cpusets: what the files of cgroups should say so that the kernel itself keeps others off a set.

The CPUs are taken at every cgroup above (`cpuset.cpus.exclusive`), from the top, and then by the container
(`cpuset.cpus.partition`). A container that gives up CPUs does so by its `cpuset.cpus`, at once.
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
"""The first Linux on which `auto` enforces them."""


class PartitionWish(NamedTuple):
    """A container's cgroup, below the root of all cgroups; `kind`: root, or isolated (no load balancing inside).
    `whole`: a pod's, which says nowhere else which CPUs are its own."""

    path: str
    cpus: Bits
    kind: str
    whole: bool = False

    @property
    def taking(self) -> list[str]:
        """The cgroups that take its CPUs, from the top."""
        return [*above(self.path), *([self.path] if self.whole else [])]


def partition_wishes(
    holders: Iterable[GuardedHolder], cgroups: Iterable[tuple[str, str, str, Bits | None]]
) -> list[PartitionWish]:
    """Of holders whose cgroups run on their CPUs and nothing else. `cgroups`: pod, container, path and CPUs of each
    container that runs. What the containers of a pod share among themselves is a partition of the pod's cgroup, with
    all that its containers own, if each of them stays within that; they are none of their own then."""
    held: dict[str, dict[str, GuardedHolder]] = {}
    for holder in holders:
        held.setdefault(holder.uid, {})[holder.container] = holder
    running: dict[str, dict[str, tuple[str, Bits | None]]] = {}
    for uid, name, path, cpus in cgroups:
        running.setdefault(uid, {})[name] = path, cpus
    wishes: list[PartitionWish] = []
    for uid, mine in held.items():
        there = running.get(uid, {})
        whole = _whole(mine, there)
        wishes += [whole] if whole else _each(mine, there)
    return wishes


def _each(mine: Mapping[str, GuardedHolder], there: Mapping[str, tuple[str, Bits | None]]) -> Iterator[PartitionWish]:
    for name, (path, cpus) in there.items():
        holder = mine.get(name) if name else None
        if holder is not None and holder.isolation != "shared" and cpus == holder.cpus:
            yield PartitionWish(path, holder.cpus, holder.isolation)


def _whole(mine: Mapping[str, GuardedHolder], there: Mapping[str, tuple[str, Bits | None]]) -> PartitionWish | None:
    """The pod's cgroup is that above its containers'."""
    shared = mine.get("")
    folders = {path.rpartition("/")[0] for path, _ in there.values()}
    if shared is None or shared.isolation == "shared" or len(folders) != 1 or folders == {""}:
        return None
    cpus = union(one.cpus for one in mine.values())
    if any(run is None or run & ~cpus for _, run in there.values()):
        return None
    return PartitionWish(folders.pop(), cpus, shared.isolation, whole=True)


def above(path: str) -> list[str]:
    """The cgroups above one, from the top, without the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def partition_paths(wishes: Iterable[PartitionWish]) -> list[str]:
    """The files that the wishes are about, in the order in which they are written."""
    wished = list(wishes)
    parents = sorted({parent for one in wished for parent in one.taking}, key=lambda path: (path.count("/"), path))
    return [*(f"{parent}/{EXCLUSIVE}" for parent in parents), *(f"{one.path}/{PARTITION}" for one in wished)]


def partition_files(
    wishes: Iterable[PartitionWish], texts: Mapping[str, str], saved: Mapping[str, SavedFile], *, mount: str
) -> Iterator[GuardedFile]:
    """Files of cgroups with what they should say. `texts` are those that there are, by their path below `mount`: older
    kernels have not all of them, and no partition is wished for there."""
    wished = [one for one in wishes if all(path in texts for path in partition_paths([one]))]
    taken: dict[str, Bits] = {}
    for one in wished:
        for parent in one.taking:
            taken[parent] = taken.get(parent, 0) | one.cpus
    kinds = {f"{one.path}/{PARTITION}": one.kind for one in wished}
    for path, text in texts.items():
        cgroup, _, name = path.rpartition("/")
        full = f"{mount}/{path}"
        if path in kinds:
            yield GuardedFile(full, "value", text, guard="partition", wanted=kinds[path])
        elif name == EXCLUSIVE and cgroup in taken:
            known = saved.get(full)
            before = bits_in(text if known is None else known.before, "list")
            yield GuardedFile(full, "list", text, guard="partition", wanted=format_bits(before | taken[cgroup]))
