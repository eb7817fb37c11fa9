"""Fixes in what the configuration reserves: the same amounts on other NUMA nodes, or less of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.bench import PodNeeds
from podslice.advise.explain.fixes.fix import Fix, text_of
from podslice.advise.explain.fixes.node_fixes import try_configs
from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSetError, format_bits, iter_bits, parse_bits
from podslice.values.quantity import BINARY_SI, Quantity, QuantityError

replace = msgspec.structs.replace
_MI = 1 << 20
_MOST_NODES = 8
"""On machines with more NUMA nodes a reservation is only split evenly."""


def reservations(nodes: Alternatives, needs: PodNeeds, *, may_drain: bool = True) -> Iterator[Fix]:
    """Yield fixes with what is reserved on other NUMA nodes, then with fewer reserved CPUs on one NUMA node, or less
    memory reserved on one."""
    view = nodes.view
    for kind in (
        nodes.configs("split-memory", partial(_split_memory, view)),
        nodes.configs("split-cpus", partial(_split_cpus, view)),
    ):
        found = [fix for config in kind for fix in _split(nodes, needs, config, may_drain=may_drain)]
        # The present kind of a reservation has many others that help; the least disruptive is enough.
        yield from sorted(found, key=lambda fix: fix.cost)[:1]
    steps = (*_cpu_reservations(view), *_memory_reservations(view.config))
    for place, configs in enumerate(steps):
        # The steps of one node are the same for each pod.
        kept = nodes.configs(f"reservation {place}", partial(iter, configs))
        yield from _first_that_helps(nodes, needs, kept, may_drain=may_drain)


def _split(nodes: Alternatives, needs: PodNeeds, config: KubeletConfig, *, may_drain: bool) -> Iterator[Fix]:
    for fix in try_configs(nodes, needs, "split-reservation", [config], may_drain=may_drain):
        text = f"Reserve as much on other NUMA nodes: {fix.text[:1].lower()}{fix.text[1:]}"
        yield replace(fix, text=text)


def _first_that_helps(
    nodes: Alternatives, needs: PodNeeds, configs: Sequence[KubeletConfig], *, may_drain: bool
) -> Iterator[Fix]:
    """Yield the first of ever larger changes that helps; none if the largest does not."""
    # The largest change goes first: where it does not help, no smaller one does.
    if configs and next(try_configs(nodes, needs, "reservation", configs[-1:], may_drain=may_drain), None) is not None:
        for config in configs:
            fix = next(try_configs(nodes, needs, "reservation", [config], may_drain=may_drain), None)
            if fix is not None:
                yield fix
                return


# CPUs


def _reserved_cpus(node: NodeView) -> Bits:
    if node.config.cpu_manager_policy != "static":
        return 0
    try:
        return parse_bits(node.config.reserved_system_cpus)
    except CPUSetError:
        return 0


def _split_cpus(node: NodeView) -> Iterator[KubeletConfig]:
    """Yield as many reserved CPUs all on one NUMA node, or evenly on all, in whole cores; CPUs that no container owns
    first."""
    reserved, topology = _reserved_cpus(node), node.topology
    number = reserved.bit_count()
    if len(topology.numa_nodes) < 2 or not number or min(topology.numa_nodes) < 0:
        return
    free = node.shared | reserved
    lists = [_cpus_by_core(node, cpus, reserved, free) for cpus in topology.numa_nodes.values()]
    picks = [[own[:number]] for own in lists if len(own) >= number][:_MOST_NODES]
    share, rest = divmod(number, len(lists))
    picks.append([own[: share + (place < rest)] for place, own in enumerate(lists)])
    for pick in picks:
        cpus = sum(1 << cpu for part in pick for cpu in part)
        if cpus.bit_count() == number and cpus != reserved:
            yield replace(node.config, reserved_system_cpus=format_bits(cpus))


def _cpus_by_core(node: NodeView, cpus: Bits, reserved: Bits, free: Bits) -> list[int]:
    """Return the CPUs of a NUMA node core by core: those reserved now first, then cores that no container owns."""
    cores = [core & cpus for core in node.topology.cores.values() if core & cpus]
    cores.sort(key=lambda core: (not core & reserved, bool(core & ~free), core & -core))
    return [cpu for core in cores for cpu in iter_bits(core)]


def _cpu_reservations(node: NodeView) -> Iterator[list[KubeletConfig]]:
    reserved = _reserved_cpus(node)
    if not reserved:
        return
    for cpus in (*node.topology.numa_nodes.values(), reserved):
        configs, left = [], reserved
        for cpu in sorted(iter_bits(cpus & reserved), reverse=True):
            left &= ~(1 << cpu)
            if left:
                configs.append(replace(node.config, reserved_system_cpus=format_bits(left)))
        yield configs


# Memory


def _split_memory(node: NodeView) -> Iterator[KubeletConfig]:
    """Yield the same memory reserved evenly on all NUMA nodes, or all on one."""
    config, ids = node.config, [numa.id for numa in node.machine.nodes]
    if config.memory_manager_policy != "Static" or len(ids) < 2:
        return
    try:
        limits = {one.numa_node: _limits(one) for one in config.reserved_memory}
    except QuantityError:
        return
    total = sum(own.get("memory", 0) for own in limits.values())
    share = total // len(ids) // _MI * _MI
    splits = [{numa: share + (total - share * len(ids)) * (numa == ids[0]) for numa in ids}]
    splits += [{numa: total} for numa in ids] if len(ids) <= _MOST_NODES else []
    for split in splits:
        # Huge pages that are reserved stay where they are.
        parts = {numa: {**limits.get(numa, {}), "memory": split.get(numa, 0)} for numa in ids}
        kept = {numa: {name: size for name, size in own.items() if size} for numa, own in parts.items()}
        reserved = tuple(
            MemoryReservation(numa, {name: _bytes(size) for name, size in own.items()})
            for numa, own in kept.items()
            if own
        )
        if total and {one.numa_node: _limits(one) for one in reserved} != limits:
            yield replace(config, reserved_memory=reserved)


def _limits(reservation: MemoryReservation) -> dict[str, int]:
    return {name: Quantity.parse(text).value() for name, text in reservation.limits.items()}


def _memory_reservations(config: KubeletConfig) -> Iterator[list[KubeletConfig]]:
    """Yield, for each NUMA node, configurations that release a quarter, half, and all of what is reserved for the
    system there."""
    if config.memory_manager_policy != "Static" or "memory" not in config.system_reserved:
        return
    for place, reservation in enumerate(config.reserved_memory):
        try:
            here = Quantity.parse(reservation.limits.get("memory", "0")).value()
            system = Quantity.parse(config.system_reserved["memory"]).value()
        except QuantityError:
            continue
        configs = []
        for part in (4, 2, 1):
            less = min(here, system) // part
            if not less:
                continue
            limits = {**reservation.limits, "memory": _bytes(here - less)}
            reserved = list(config.reserved_memory)
            reserved[place] = replace(reservation, limits=limits)
            # The kubelet starts only if reservedMemory adds up to what is reserved in all, so both shrink by the same
            # amount.
            system_reserved = {**config.system_reserved, "memory": _bytes(system - less)}
            configs.append(replace(config, reserved_memory=tuple(reserved), system_reserved=system_reserved))
        yield configs


def _bytes(amount: int) -> str:
    return text_of(Quantity.of(amount, BINARY_SI))
