"""The shares of a resource on a set of NUMA nodes: free, and with pods, the pod's own earlier containers, reservations
and unhealthy devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from podslice.advise.explain.causes.cause import Holder
from podslice.advise.explain.columns import Column
from podslice.advise.trial.record import HintRound, Record
from podslice.advise.trial.relax import Relaxation
from podslice.api.pod.eligibility import AdmissionPod
from podslice.machine.devices import DeviceResource
from podslice.machine.memory import Block
from podslice.node.cpu.ended import IdleCPUs
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits, union


class Situation(NamedTuple):
    """A refused pod when it was refused: the node before the pod, what was recorded, and the round of hints, or the
    failed allocation, that refused it. `idle` are CPUs of init containers that have ended, by pod UID,
    `withheld` those that no container gets."""

    view: NodeView
    pod: AdmissionPod
    record: Record
    step: HintRound
    idle: Mapping[str, IdleCPUs] = MappingProxyType({})
    withheld: Bits = 0


class Tiers(NamedTuple):
    """Amounts of a resource on some NUMA nodes, by what would have to change before the pod could have them."""

    free: int
    pods: int
    own: int
    unhealthy: int
    reserved: int

    @property
    def usable(self) -> int:
        """What is free if no other pod is on the node."""
        return self.free + self.pods


class Shares(Protocol):
    """Who has one resource."""

    unit: str

    def tiers(self, mask: Bits) -> Tiers:
        """Return the amounts on these NUMA nodes."""

    def relax(self, mask: Bits, amount: int) -> Relaxation:
        """Return the relaxation after which so much more is free there: first what pods have, then what is unhealthy or
        reserved."""

    def holders(self, mask: Bits) -> Iterator[Holder]:
        """Yield who has the rest of these NUMA nodes."""


def shares_of(column: Column, situation: Situation) -> Shares:
    """Return who has the resource of a column."""
    if column.resource == "cpu":
        return _CPUShares(column, situation)
    for resource in situation.view.devices.resources:
        if resource.resource == column.resource:
            return _DeviceShares(column, resource, situation)
    return _MemoryShares(column, situation)


def pod_name(view: NodeView, uid: str) -> str:
    """Return a pod's namespace and name; its UID where the node does not know it."""
    pod = view.pods.get(uid)
    if pod is None:
        return uid
    metadata = pod.spec.metadata
    return metadata.full_name


# CPUs


class _CPUShares:
    unit = "CPUs"

    def __init__(self, column: Column, situation: Situation) -> None:
        view = situation.view
        self._view, self._idle = view, situation.idle
        self._topology = view.topology
        self._free, self._all = union(column.free.values()), union(column.capacity.values())
        self._earlier = _taken_by(situation.record)
        self._own = union(self._earlier.values()) & self._all & ~self._free
        kept = (view.reserved | situation.withheld) & self._all
        self._reserved = kept & ~self._free & ~self._own & ~view.owned
        self._pods = self._all & ~self._free & ~self._own & ~self._reserved

    def _on(self, mask: Bits) -> Bits:
        return self._topology.cpus_in_numa_nodes(mask)

    def tiers(self, mask: Bits) -> Tiers:
        on = self._on(mask)
        counts = [(bits & on).bit_count() for bits in (self._free, self._pods, self._own, self._reserved)]
        return Tiers(counts[0], counts[1], counts[2], 0, counts[3])

    def relax(self, mask: Bits, amount: int) -> Relaxation:
        on, chosen, free = self._on(mask), 0, self._free
        for tier in (self._pods, self._reserved):
            for cpu in self._by_core(tier & on, free):
                if chosen.bit_count() < amount:
                    chosen |= 1 << cpu
            free |= tier & on
        return Relaxation(cpus=chosen)

    def _by_core(self, cpus: Bits, free: Bits) -> list[int]:
        """Return CPUs such that as many cores as possible are free as a whole at any length of the list."""
        cores = [(core & cpus, core & ~cpus & ~free) for core in self._topology.cores.values() if core & cpus]
        cores.sort(key=lambda core: (core[1] != 0, core[0].bit_count()))
        listed = [cpu for there, _ in cores for cpu in iter_bits(there)]
        return listed + [cpu for cpu in iter_bits(cpus) if cpu not in set(listed)]

    def holders(self, mask: Bits) -> Iterator[Holder]:
        on, view, idle = self._on(mask), self._view, self._idle
        for uid in {**view.owners, **view.pod_cpus}:
            held = view.owned_by(uid) & on & self._all
            if uid in idle and (ended := idle[uid].cpus & held):
                name = pod_name(view, uid)
                yield Holder("ended-init", ended.bit_count(), name, uid, idle[uid].container)
                held &= ~ended
            if held:
                yield Holder("pod", held.bit_count(), pod_name(view, uid), uid)
        for container, cpus in self._earlier.items():
            if cpus & on & self._own:
                yield Holder("own", (cpus & on & self._own).bit_count(), container=container)
        if kept := self._reserved & on & view.reserved:
            yield Holder("reserved", kept.bit_count())
        if beside := self._reserved & on & ~view.reserved:
            yield Holder("sibling", beside.bit_count())


def _taken_by(record: Record) -> dict[str, Bits]:
    """Return the CPUs that containers of the pod took in this admission, each with the last one that took it."""
    taken: dict[str, Bits] = {}
    seen = 0
    for one in reversed(record.allocations):
        cpus = (one.cpus | one.pod_cpus) & ~seen
        if one.provider == "cpu" and cpus:
            taken[one.container or ""] = cpus
            seen |= cpus
    return taken


# Devices


class _DeviceShares:
    unit = "devices"

    def __init__(self, column: Column, resource: DeviceResource, situation: Situation) -> None:
        self._view, self._resource, self._column = situation.view, resource.resource, column
        self._ids = [device.id for device in resource.devices]
        self._free = union(column.free.values())
        self._placed = column.capacity
        self._everywhere = (1 << len(self._ids)) - 1
        own = situation.step.devices.get(situation.pod.uid, {})
        self._earlier = {name: self._bits(held.get(self._resource, ())) for name, held in own.items()}
        self._own = union(self._earlier.values()) & ~self._free
        self._unhealthy = bits_of(i for i, one in enumerate(resource.devices) if not one.healthy) & ~self._own

    def _bits(self, ids: object) -> Bits:
        wanted = set(ids) if isinstance(ids, (list, tuple, set, frozenset)) else set()
        return bits_of(i for i, one in enumerate(self._ids) if one in wanted)

    def _on(self, mask: Bits) -> Bits:
        return union(self._placed.get(node, 0) for node in iter_bits(mask))

    def tiers(self, mask: Bits) -> Tiers:
        on = self._on(mask)
        free, own, unhealthy = (bits & on for bits in (self._free, self._own, self._unhealthy))
        pods = on & ~free & ~own & ~unhealthy
        return Tiers(free.bit_count(), pods.bit_count(), own.bit_count(), unhealthy.bit_count(), 0)

    def relax(self, mask: Bits, amount: int) -> Relaxation:
        on = self._on(mask) & ~self._free
        held = on & ~self._own & ~self._unhealthy
        order = [*iter_bits(held), *iter_bits(on & self._unhealthy)]
        return Relaxation(devices={self._resource: frozenset(self._ids[i] for i in order[:amount])})

    def holders(self, mask: Bits) -> Iterator[Holder]:
        on, view = self._on(mask) & ~self._free, self._view
        for uid in view.device_ids:
            names = {name for one in view.device_ids[uid] for name in view.devices_of(uid, one).get(self._resource, ())}
            held = self._bits(names) & on & ~self._unhealthy
            if held:
                yield Holder("pod", held.bit_count(), pod_name(view, uid), uid)
        for container, bits in self._earlier.items():
            if bits & on & self._own:
                yield Holder("own", (bits & on & self._own).bit_count(), container=container)
        if bad := self._unhealthy & on:
            yield Holder("unhealthy", bad.bit_count())


# Memory


class _MemoryShares:
    unit = "bytes"

    def __init__(self, column: Column, situation: Situation) -> None:
        self._column, self._situation = column, situation
        self._view, self._name = situation.view, column.resource
        before, now = situation.record.before.memory, situation.step.memory
        self._own = {node: _free(before, node, self._name) - _free(now, node, self._name) for node in now}

    def tiers(self, mask: Bits) -> Tiers:
        nodes, column = list(iter_bits(mask)), self._column
        free = column.free_on(mask)
        table = sum(column.free.get(node, 0) for node in nodes)
        # What init containers leave is free to this one, and was taken by the pod itself.
        own = max(0, sum(self._own.get(node, 0) for node in nodes) - (free - table))
        pods = column.capacity_on(mask) - free - own
        return Tiers(free, pods, own, 0, sum(self._kept(node) for node in nodes))

    def _kept(self, node: int) -> int:
        state = self._situation.step.memory.get(node)
        table = (state.memory_map or {}).get(self._name) if state else None
        return table.total - table.allocatable if table else 0

    def relax(self, mask: Bits, amount: int) -> Relaxation:
        given: dict[tuple[int, str], int] = {}
        for whole in (False, True):
            for node in iter_bits(mask):
                room = self._column.capacity.get(node, 0) - self._column.free.get(node, 0)
                room += self._kept(node) if whole else 0
                more = min(room - given.get((node, self._name), 0), amount - sum(given.values()))
                if more > 0:
                    given[node, self._name] = given.get((node, self._name), 0) + more
        return Relaxation(memory=given)

    def holders(self, mask: Bits) -> Iterator[Holder]:
        across: list[tuple[str, CPUSet]] = []
        counted = 0
        for uid in {**self._view.blocks, **self._view.pod_blocks}:
            blocks = [one for one in self._blocks(uid) if bits_of(one.numa_affinity or ()) & mask]
            inside = sum(one.size for one in blocks if not bits_of(one.numa_affinity or ()) & ~mask)
            if inside:
                counted += inside
                yield Holder("pod", inside, pod_name(self._view, uid), uid)
            wider = union(
                bits_of(one.numa_affinity or ()) for one in blocks if bits_of(one.numa_affinity or ()) & ~mask
            )
            if wider:
                across.append((uid, CPUSet.from_bits(wider)))
        tiers = self.tiers(mask)
        if across:
            # The ledger does not say which of several pods on several NUMA nodes has how much of one of them.
            rest = max(0, tiers.pods - counted)
            for uid, nodes in across:
                yield Holder("pod", rest if len(across) == 1 else 0, pod_name(self._view, uid), uid, nodes=nodes)
        if tiers.own:
            yield Holder("own", tiers.own)
        if tiers.reserved:
            yield Holder("reserved", tiers.reserved)

    def _blocks(self, uid: str) -> Iterator[Block]:
        for block in self._view.booked(uid, self._view.blocks.get(uid, {})):
            if block.type == self._name:
                yield block


def earlier_containers(situation: Situation) -> frozenset[str]:
    """Return the names of the containers that were allocated before the one that is refused."""
    step = situation.step.container
    if step is None:
        return frozenset()
    return frozenset(one.container for one in situation.record.allocations if one.container not in (None, step))


def group_holders(view: NodeView, mask: Bits) -> Iterator[Holder]:
    """Yield the pods whose memory ties NUMA nodes of a set to other sets."""
    for uid in {**view.blocks, **view.pod_blocks}:
        blocks = view.booked(uid, view.blocks.get(uid, {}))
        places = {bits_of(one.numa_affinity or ()) for one in blocks}
        tying = [place for place in places if place & mask and place != mask]
        if tying:
            size = sum(one.size for one in blocks if bits_of(one.numa_affinity or ()) in tying)
            yield Holder("pod", size, pod_name(view, uid), uid, nodes=CPUSet.from_bits(union(tying)))


def _free(machine: Mapping[int, object], node: int, name: str) -> int:
    tables = getattr(machine.get(node), "memory_map", None) or {}
    return tables[name].free if name in tables else 0
