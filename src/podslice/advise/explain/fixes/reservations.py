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
    view, lack = nodes.view, nodes.lack(needs)
    # Other NUMA nodes give no more in all.
    splits = () if lack.lacks_cpus or lack.lacks_requests else (("memory", _split_memory), ("cpus", _split_cpus))
    for name, split in splits:
        kind = nodes.configs(name, partial(split, view))
        # Without draining, running pods stay where they are, and so does what is free beside them.
        if not may_drain:
            kind = [config for config in kind if lack.is_placed_with(_freed_cpus(view, config))]
        found = [fix for config in kind for fix in _split(nodes, needs, config, may_drain=may_drain)]
        # The present kind of a reservation has many others that help; the least disruptive is enough.
        yield from sorted(found, key=lambda fix: fix.cost)[:1]
    for name, steps in (("cpus", _cpu_reservations), ("memory", _memory_reservations)):
        # Memory does not help where CPUs lack.
        if name == "cpus" or not (lack.lacks_cpus or (not may_drain and not lack.has_place)):
            for configs in nodes.config_steps(name, partial(steps, view)):
                yield from _first_that_helps(nodes, needs, configs, may_drain=may_drain)


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


def _freed_cpus(node: NodeView, config: KubeletConfig) -> dict[int, int]:
    """Return how many CPUs of each NUMA node another configuration reserves less."""
    reserved, then = _reserved_cpus(node), parse_bits(config.reserved_system_cpus)
    return {
        numa: (own & reserved).bit_count() - (own & then).bit_count() for numa, own in node.topology.numa_nodes.items()
    }


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


def _memory_reservations(node: NodeView) -> Iterator[list[KubeletConfig]]:
    """Yield, for each NUMA node, configurations that release a quarter, half, and all of what is reserved for the
    system there."""
    config = node.config
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
