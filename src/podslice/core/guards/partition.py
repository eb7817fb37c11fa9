"""Partitions of cpusets: what the files of cgroups should say so that the kernel itself keeps others off a set.

The CPUs are taken at every cgroup above (`cpuset.cpus.exclusive`), from the top, and then by the container
(`cpuset.cpus.partition`). A container that gives up CPUs does so by its `cpuset.cpus`, at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from podslice.core.guards.files import GuardedFile, SavedFile, bits_in
from podslice.core.values.cpuset import Bits, format_bits

EXCLUSIVE: Final = "cpuset.cpus.exclusive"
PARTITION: Final = "cpuset.cpus.partition"


class PartitionWish(NamedTuple):
    """A container's cgroup, below the root of all cgroups; `kind`: root, or isolated (no load balancing inside)."""

    path: str
    cpus: Bits
    kind: str


def above(path: str) -> list[str]:
    """The cgroups above one, from the top, without the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def partition_paths(wishes: Iterable[PartitionWish]) -> list[str]:
    """The files that the wishes are about, in the order in which they are written."""
    wished = list(wishes)
    parents = sorted({parent for one in wished for parent in above(one.path)}, key=lambda path: (path.count("/"), path))
    return [*(f"{parent}/{EXCLUSIVE}" for parent in parents), *(f"{one.path}/{PARTITION}" for one in wished)]


def partition_files(
    wishes: Iterable[PartitionWish], texts: Mapping[str, str], saved: Mapping[str, SavedFile], *, mount: str
) -> Iterator[GuardedFile]:
    """Files of cgroups with what they should say. `texts` are those that there are, by their path below `mount`: older
    kernels have not all of them, and no partition is wished for there."""
    wished = [one for one in wishes if all(path in texts for path in partition_paths([one]))]
    taken: dict[str, Bits] = {}
    for one in wished:
        for parent in above(one.path):
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
