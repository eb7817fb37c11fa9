"""The demands of a set of NUMA nodes: all that would have to be otherwise so that a merge or an allocation takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from podslice.advise.explain.causes.cause import Cause, Holder
from podslice.advise.explain.causes.shares import (
    Shares,
    Situation,
    Tiers,
    earlier_containers,
    group_holders,
    shares_of,
)
from podslice.advise.explain.columns import Column, columns_of, node_sets
from podslice.advise.trial.relax import Relaxation
from podslice.config.policy_options import RESTRICTED
from podslice.node.cpu.picking.picker import SMT_SHORT
from podslice.node.topology.hintset import HintSet
from podslice.values.cpuset import Bits, CPUSet, bits_of, iter_bits, union
from podslice.values.errors import Refusal

T = TypeVar("T")
_FREEABLE, _OWN, _COUNTED, _KEPT = range(4)
_GROUP_SHARE = 0.5
"""How far from an operator's reach a demand is: pods that leave, an earlier container or a sick device, what counts as
narrow, what the configuration keeps. A group that dissolves counts as much as half of the need."""


class Demand:
    """One thing that would have to be otherwise: the `code` of its cause, how far it is from an operator's reach, and
    how large it is beside the need. What describes and relaxes it is made on first use: most options are never tried.
    `less` is the relaxation with one less of an amount."""

    def __init__(
        self,
        code: str,
        rank: int,
        share: float,
        describe: Callable[[], Cause],
        relax: Callable[[], Relaxation],
        less: Callable[[], Relaxation] | None = None,
    ) -> None:
        self.code, self.rank, self.share = code, rank, share
        self._describe, self._relax, self._less = describe, relax, less

    @cached_property
    def cause(self) -> Cause:
        """The cause as it is."""
        return self._describe()

    @cached_property
    def relaxation(self) -> Relaxation:
        """The relaxation that proves it."""
        return self._relax()

    @cached_property
    def less(self) -> Relaxation | None:
        """The relaxation with one less; None where there is no amount."""
        return None if self._less is None else self._less()


class Option(NamedTuple):
    """A set of NUMA nodes (0: the whole node), and all that would have to be otherwise there."""

    nodes: Bits
    demands: tuple[Demand, ...]

    @property
    def order(self) -> tuple[object, ...]:
        """The nearest first: by reach, number of demands, size, then as the kubelet prefers sets."""
        return (
            max(one.rank for one in self.demands),
            len(self.demands),
            round(sum(one.share for one in self.demands), 9),
            self.nodes.bit_count(),
            self.nodes,
        )

    @property
    def is_kept(self) -> bool:
        """Whether the configuration, and no pod, keeps what lacks."""
        return any(one.rank == _KEPT for one in self.demands)

    @property
    def codes(self) -> frozenset[str]:
        """The codes of its causes."""
        return frozenset(one.code for one in self.demands)

    @property
    def relaxation(self) -> Relaxation:
        """What makes all of it otherwise at once."""
        return _together(one.relaxation for one in self.demands)

    @property
    def almost(self) -> Iterator[Relaxation]:
        """The relaxations with one less of one amount."""
        for place, one in enumerate(self.demands):
            if one.less is not None:
                others = (other.relaxation for other in (*self.demands[:place], *self.demands[place + 1 :]))
                yield _together(others) | one.less


def _together(relaxations: Iterable[Relaxation]) -> Relaxation:
    whole = Relaxation()
    for one in relaxations:
        whole |= one
    return whole


def _given(value: T) -> T:
    return value


def _without_own(shares: Shares, mask: Bits, amount: int, absent: frozenset[str]) -> Relaxation:
    return shares.relax(mask, amount) | Relaxation(absent=absent)


class Demands:
    """The options of one refused round of hints, or of one failed allocation."""

    def __init__(self, situation: Situation, only: str = "", *, binds: bool = False) -> None:
        """`only`: the provider whose allocation failed; empty for a merge. `binds`: memory without hints counts in the
        merge."""
        self._situation = situation
        view = situation.view
        columns = columns_of(view, situation.pod, situation.step)
        if only:
            self.columns = [one for one in columns if _provider(one, view.devices.resources) == only]
        else:
            # Memory that upstream takes for no preference is not a part of the merge.
            self.columns = [one for one in columns if one.countable or one.hints is not None or binds]
        self._shares = {one.resource: shares_of(one, situation) for one in self.columns}
        self._merged = not only
        self._restricted = self._merged and view.config.topology_manager_policy == RESTRICTED
        self._nodes = tuple(sorted(one.id for one in view.machine.nodes))

    # Options

    def whole(self) -> list[Option]:
        """Return what an allocation lacks that takes its resource from any NUMA node."""
        mask = bits_of(self._nodes)
        demands = [demand for column in self.columns if (demand := self._shortage(column, mask, whole=True))]
        return [Option(0, tuple(demands))] if demands else []

    def options(self, within: Bits = 0) -> list[Option]:
        """Return the options, the nearest first. `within`: NUMA nodes that a set must have."""
        found: list[Option] = []
        widths = sorted({self.width(column) for column in self.columns})
        if self._situation.view.single_numa_node and self._merged:
            found = list(self._of_sizes((1,), within))
        elif self._restricted:
            found = list(self._of_sizes(widths, within))
            if not any(option.order[0] in (_FREEABLE,) for option in found):
                wider = [size for size in range(1, len(self._nodes) + 1) if size not in widths]
                found += self._of_sizes(wider, within)
        else:
            found = list(self._of_sizes(range(1, len(self._nodes) + 1), within))
        # What the configuration keeps is the cause only where no set could do without it.
        within_reach = [option for option in found if not option.is_kept]
        return sorted(within_reach or found, key=lambda option: option.order)

    def _of_sizes(self, sizes: Iterable[int], within: Bits) -> Iterator[Option]:
        for mask in self._sets(frozenset(sizes)):
            if not within & ~mask and (demands := self._demands(mask)):
                yield Option(mask, demands)

    def _sets(self, sizes: frozenset[int]) -> Iterator[Bits]:
        """Yield sets of so many NUMA nodes, smaller ones first: as many as a table has, and of larger ones those that
        have the most free."""
        last = 0
        for last, _ in node_sets(self._nodes):
            if last.bit_count() in sizes:
                yield last
        for size in sorted(sizes):
            if size > last.bit_count():
                yield from dict.fromkeys(self._richest(column, size) for column in self.columns)

    def _richest(self, column: Column, size: int) -> Bits:
        """Return so many NUMA nodes that have the most free of a resource."""
        return bits_of(sorted(self._nodes, key=lambda node: (-column.free_on(1 << node), node))[:size])

    def _demands(self, mask: Bits) -> tuple[Demand, ...]:
        """Return what a set lacks; nothing where it lacks nothing, or where no relaxation helps."""
        demands: list[Demand] = []
        for column in self.columns:
            if column.pool_empty or self._is_bare(column, mask):
                return ()
            if column.required & ~mask:
                if not self._merged or not earlier_containers(self._situation):
                    return ()
                demands.append(self._elsewhere_demand(column, mask))
            if column.free_on(mask) < column.need:
                demand = self._shortage(column, mask)
                if demand is None:
                    return ()
                demands.append(demand)
            if self._restricted and (wide := self._width_demand(column, mask)):
                demands.append(wide)
        memory = next((column for column in self.columns if not column.countable), None)
        if memory is not None and not memory.held and memory.is_tied(mask):
            demands.append(self._group_demand(memory, mask))
        return tuple(demands)

    def _is_bare(self, column: Column, mask: Bits) -> bool:
        """Whether a set has NUMA nodes without a single device, for which no hint is made."""
        if not self._merged or not column.countable or column.resource == "cpu":
            return False
        if not self._situation.view.release.device_hints_on_nodes_with_devices or not column.capacity:
            return False
        return any(node not in column.capacity for node in iter_bits(mask))

    # Demands

    def _tiers(self, column: Column, mask: Bits) -> Tiers:
        """Return the amounts on these NUMA nodes. What containers of a pod that is placed as a whole have taken is part
        of what the pod needs, and so it is free to it."""
        tiers = self._shares[column.resource].tiers(mask)
        if self._situation.step.container is not None:
            return tiers
        return tiers._replace(free=tiers.free + tiers.own, own=0)

    def _shortage(self, column: Column, mask: Bits, *, whole: bool = False) -> Demand | None:
        """Return the demand for more free there; None where even all of it is too little."""
        shares = self._shares[column.resource]
        tiers = self._tiers(column, mask)
        short = column.need - tiers.free
        if short <= 0:
            return None
        places = None if whole else mask
        share = short / column.need
        freeable = tiers.pods + tiers.unhealthy
        if short > freeable and short <= freeable + tiers.own:
            # What earlier containers took was free when the pod came, so it is their absence that would help.
            describe = partial(self._cause, "own-containers", column, places, tiers=tiers, short=short, every=mask)
            return Demand(
                "own-containers",
                _OWN,
                share,
                describe,
                partial(_without_own, shares, mask, max(0, short - tiers.own), earlier_containers(self._situation)),
            )
        if short > freeable + tiers.reserved:
            return None
        rank = _FREEABLE if short <= tiers.pods else _OWN if short <= freeable else _KEPT
        code = "short" if rank < _KEPT else "too-big"
        return Demand(
            code,
            rank,
            share,
            partial(self._cause, code, column, places, tiers=tiers, short=short, every=mask),
            partial(shares.relax, mask, short),
            partial(shares.relax, mask, short - 1),
        )

    def _cause(
        self,
        code: str,
        column: Column,
        mask: Bits | None,
        *,
        tiers: Tiers,
        short: int,
        every: Bits,
    ) -> Cause:
        shares = self._shares[column.resource]
        found = (one for one in shares.holders(every) if one.kind != "own" or tiers.own)
        holders = sorted(found, key=lambda one: (one.kind in ("reserved", "sibling"), -one.amount, one.name))
        return Cause(
            code,
            self._situation.step.container,
            column.resource,
            None if mask is None else CPUSet.from_bits(mask),
            column.need,
            tiers.free,
            tiers.usable,
            short,
            shares.unit,
            tuple(holders),
            self._rule,
        )

    @property
    def _rule(self) -> str:
        return f"topologyManagerPolicy: {self._situation.view.config.topology_manager_policy}" if self._merged else ""

    def _width_demand(self, column: Column, mask: Bits) -> Demand | None:
        """Return the demand that a set counts as narrow enough; None where it does."""
        width, size = self.width(column), mask.bit_count()
        hints = column.hints
        if size == width or (isinstance(hints, HintSet) and mask in hints and hints.prefers(mask)):
            return None
        shares = self._shares[column.resource]
        code = "narrowest"
        tiers = shares.tiers(mask)
        kept = {"cpu": tiers.reserved, "devices": tiers.unhealthy}.get(
            column.resource if column.resource == "cpu" else shares.unit
        )
        if kept and size == self._usable_width(column):
            code = "reserved-counted" if column.resource == "cpu" else "unhealthy-counted"
        alone = sorted((shares.tiers(1 << node).usable for node in self._nodes), reverse=True)
        narrow = sum(alone[: min(width, size)])
        cause = Cause(
            code,
            self._situation.step.container,
            column.resource,
            CPUSet.from_bits(mask),
            column.need,
            column.free_on(mask),
            narrow,
            0,
            shares.unit,
            (),
            self._rule,
            tuple(f"{one.resource}={one.need}={self.width(one)}" for one in self.columns),
        )
        place = (self._situation.step.container, column.resource)
        return Demand(code, _COUNTED, 0.0, partial(_given, cause), partial(Relaxation, widths={place: size}))

    def _elsewhere_demand(self, column: Column, mask: Bits) -> Demand:
        """Return the demand that a set need not have what init containers left on other NUMA nodes."""
        cause = Cause(
            "held-elsewhere",
            self._situation.step.container,
            column.resource,
            CPUSet.from_bits(column.required),
            column.need,
            column.free_on(column.required),
            self._tiers(column, column.required).usable,
            0,
            self._shares[column.resource].unit,
            (),
            self._rule,
            (str(CPUSet.from_bits(mask)),),
        )
        relaxation = Relaxation(absent=earlier_containers(self._situation))
        return Demand("held-elsewhere", _OWN, 0.0, partial(_given, cause), partial(_given, relaxation))

    def _group_demand(self, column: Column, mask: Bits) -> Demand:
        holders = tuple(group_holders(self._situation.view, mask))
        relaxation, rank = Relaxation(ungrouped=True), _FREEABLE
        if not holders:
            # No pod of the node ties them, so containers of this one do.
            earlier = earlier_containers(self._situation)
            holders = tuple(Holder("own", 0, container=name) for name in sorted(earlier))
            relaxation, rank = Relaxation(absent=earlier), _OWN
        cause = Cause(
            "group",
            self._situation.step.container,
            column.resource,
            CPUSet.from_bits(mask),
            column.need,
            column.free_on(mask),
            self._shares[column.resource].tiers(mask).usable,
            0,
            "bytes",
            holders,
            "memoryManagerPolicy: Static",
        )
        return Demand("group", rank, _GROUP_SHARE, partial(_given, cause), partial(_given, relaxation))

    # Widths

    def width(self, column: Column) -> int:
        """Return the number of NUMA nodes of the sets that a resource prefers."""
        if isinstance(column.hints, HintSet):
            return column.hints.smallest
        if column.resource == "cpu":
            return self._situation.view.fewest_numa_nodes(column.need)
        together = [column] if column.countable else [one for one in self.columns if not one.countable]
        return self._fewest(lambda mask: all(one.capacity_on(mask) >= one.need for one in together))

    def _usable_width(self, column: Column) -> int:
        """Return how many NUMA nodes have enough, without reserved CPUs and sick devices, if no pod is there."""
        shares = self._shares[column.resource]
        return self._fewest(lambda mask: shares.tiers(mask).usable >= column.need)

    def _fewest(self, suffices: Callable[[Bits], bool]) -> int:
        every = frozenset(range(1, len(self._nodes) + 1))
        return next((mask.bit_count() for mask in self._sets(every) if suffices(mask)), len(self._nodes))

    # No option

    def impossible(self) -> Cause | None:
        """Return the cause where no set that the policy takes could ever do."""
        single = self._merged and self._situation.view.single_numa_node
        for column in self.columns:
            shares = self._shares[column.resource]
            masks = [1 << node for node in self._nodes] if single else [bits_of(self._nodes)]
            best = max(masks, key=lambda mask: (shares.tiers(mask).usable, -mask))
            tiers = self._tiers(column, best)
            if tiers.usable + tiers.unhealthy < column.need:
                short = column.need - tiers.free
                found = self._cause("too-big", column, best if single else None, tiers=tiers, short=short, every=best)
                return replace(found, proven=True)
        if not self.columns or not self._merged:
            return None
        named = tuple(column.resource for column in self.columns)
        required = next((column for column in self.columns if column.required), None)
        code = "held-elsewhere" if required else "no-common-nodes"
        return Cause(
            code,
            self._situation.step.container,
            required.resource if required else "",
            CPUSet.from_bits(required.required) if required else None,
            rule=self._rule,
            facts=() if required else named,
        )


def _provider(column: Column, resources: Sequence[object]) -> str:
    if column.resource == "cpu":
        return "cpu"
    return "device" if any(getattr(one, "resource", "") == column.resource for one in resources) else "memory"


def whole_core_options(situation: Situation, refusal: Refusal) -> list[Option]:
    """Return the options of a refusal by `full-pcpus-only`: more CPUs free on cores without reserved ones, and the same
    without the option."""
    view, facts = situation.view, refusal.facts
    need = int(str(facts.get("requested", 0)))
    size = str(facts.get("cpus_per_core", facts.get("sizes", "")))
    short = max(0, need - int(str(facts.get("available", need)))) if refusal.code == SMT_SHORT else 0
    found = []
    shares = _shares_of_whole_cores(situation) if short else None
    mask = bits_of(view.topology.numa_nodes)
    tiers = shares.tiers(mask) if shares else Tiers(0, 0, 0, 0, 0)
    holders = tuple(sorted(shares.holders(mask), key=lambda one: (-one.amount, one.name))) if shares else ()
    cause = Cause(
        "whole-cores",
        situation.step.container,
        "cpu",
        None,
        need,
        need - short,
        tiers.usable,
        short,
        "CPUs",
        holders,
        "cpuManagerPolicyOptions.full-pcpus-only",
        (refusal.code, size),
    )
    if shares and short <= tiers.pods:
        relax = partial(shares.relax, mask, short)
        found.append(Option(0, (Demand(cause.code, _FREEABLE, short / need, partial(_given, cause), relax),)))
    elif shares and short <= tiers.pods + tiers.own:
        relax = partial(_without_own, shares, mask, max(0, short - tiers.own), earlier_containers(situation))
        found.append(Option(0, (Demand(cause.code, _OWN, short / need, partial(_given, cause), relax),)))
    relax = partial(Relaxation, split_cores=True)
    found.append(Option(0, (Demand(cause.code, _KEPT, 0.0, partial(_given, cause), relax),)))
    return found


def _shares_of_whole_cores(situation: Situation) -> Shares | None:
    """Return who has the CPUs of cores without reserved ones; None where the managers give the container none."""
    view = situation.view
    column = next((one for one in columns_of(view, situation.pod, situation.step) if one.resource == "cpu"), None)
    if column is None:
        return None
    kept = union(core for core in view.topology.cores.values() if core & view.reserved)
    for table in (column.free, column.capacity):
        table.update({node: cpus & ~kept for node, cpus in table.items()})
    return shares_of(column, situation)
