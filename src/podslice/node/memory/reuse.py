"""Memory that plain init containers leave to the containers after them (memory-device 1.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import Amounts
from podslice.machine.memory import Block
from podslice.values.cpuset import Bits, bits_of

Entries: TypeAlias = dict[str, tuple[Block, ...]]
"""Blocks of a pod's containers by name."""


Table: TypeAlias = Mapping[Bits, Amounts]
"""Bytes by mask."""


class Reuse(Protocol):
    """A way to find the memory that init containers leave."""

    def find_reusable(self, pod: AdmissionPod, container: AdmissionContainer, entries: Entries, table: Table) -> Table:
        """Return the bytes that plain init containers leave to a container; `table` is the last result of `update`."""

    def update(
        self, table: Table, container: AdmissionContainer, blocks: Iterable[Block]
    ) -> dict[Bits, Amounts] | None:
        """Return the table to keep after a container got its blocks, None for no change."""


class ReuseOfEntries:
    """Derives the memory from what the init containers hold."""

    def find_reusable(self, pod: AdmissionPod, container: AdmissionContainer, entries: Entries, table: Table) -> Table:
        return reusable_from_init(pod, container, entries)

    def update(
        self, table: Table, container: AdmissionContainer, blocks: Iterable[Block]
    ) -> dict[Bits, Amounts] | None:
        return None


class UpstreamReuse:
    """Keeps a table beside the entries, which drifts from them (quirk `init_memory_reuse_drifts`)."""

    def find_reusable(self, pod: AdmissionPod, container: AdmissionContainer, entries: Entries, table: Table) -> Table:
        return table

    def update(
        self, table: Table, container: AdmissionContainer, blocks: Iterable[Block]
    ) -> dict[Bits, Amounts] | None:
        return table_after(table, container, blocks)


OURS, UPSTREAMS = ReuseOfEntries(), UpstreamReuse()


def reusable_from_init(pod: AdmissionPod, container: AdmissionContainer, entries: Entries) -> dict[Bits, Amounts]:
    """Return the bytes by mask that the plain init containers before `container` still hold."""
    left: dict[Bits, Amounts] = {}
    for earlier in pod.containers:
        if not earlier.init or earlier.name == container.name:
            break
        for block in entries.get(earlier.name, ()) if earlier.plain_init else ():
            amounts = left.setdefault(bits_of(block.numa_affinity or ()), {})
            amounts[block.type] = amounts.get(block.type, 0) + block.size
    return left


def table_after(
    before: Mapping[Bits, Amounts], container: AdmissionContainer, blocks: Iterable[Block]
) -> dict[Bits, Amounts]:
    """Return upstream's table of reusable bytes by mask after a container got its blocks."""
    table = {mask: dict(amounts) for mask, amounts in before.items()}
    for block in blocks:
        mask = bits_of(block.numa_affinity or ())
        if container.plain_init:
            amounts = table.setdefault(mask, {})
            amounts[block.type] = max(amounts.get(block.type, 0), block.size)
        elif table.get(mask, {}).get(block.type):
            table[mask][block.type] = max(0, table[mask][block.type] - block.size)
    return table


def shrink_init_blocks(
    pod: AdmissionPod, current: AdmissionContainer, blocks: Iterable[Block], entries: Entries
) -> Entries:
    """Return the entries with what the container reuses subtracted from those of the init containers before it
    (memory-device 1.10, step 9)."""
    entries = dict(entries)
    for block in blocks:
        remaining = block.size
        for container in pod.containers:
            if not container.init or container.name == current.name or remaining == 0:
                break
            if container.restartable or container.name not in entries:
                continue
            shrunk = []
            for own in entries[container.name]:
                same = own.type == block.type and set(own.numa_affinity or ()) == set(block.numa_affinity or ())
                taken = min(own.size, remaining) if same else 0
                remaining -= taken
                shrunk.append(Block(own.numa_affinity, own.type, own.size - taken))
            entries[container.name] = tuple(shrunk)
    return entries
