"""The plugins of one node, compiled into eight tuples of methods.

A plugin only answers; the CPU Manager acts. So whatever a plugin does, a pick has the CPUs it should have or is
refused, and nothing is written before that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from podslice.config.policy import PluginEntry
from podslice.node.cpu.picking.distribute import Pick
from podslice.node.cpu.picking.picker import Picker
from podslice.node.plugins.api import (
    NOTHING,
    AskingPod,
    CPUAsk,
    CPUEffects,
    CPUMachine,
    CPUNode,
    CPUPlugin,
    Layer,
    Moves,
    Relax,
    Shortage,
    Wait,
)
from podslice.node.plugins.contract import (
    FallBackError,
    OnBroken,
    OnRemedy,
    PluginStep,
    SkippedError,
    Stopwatch,
    call_plugin,
    check_effects,
    check_integers,
    check_layers,
    check_remedy,
    check_score,
    check_subset,
    set_checker,
)
from podslice.node.plugins.groups import score_groups, take_by_groups, whole_cores
from podslice.node.topology.search import SearchBudget
from podslice.values.cpuset import Bits, union
from podslice.values.errors import AdmissionError

STATIC = "static"
_POINTS = ("sort_key", "filter", "post_filter", "prescore", "select", "score", "allocate", "deallocate")


class Proposal(NamedTuple):
    """CPUs that a container would get, and their score."""

    pick: Pick
    score: int = 0


class PluginProfile:
    """All plugins of a node together. `identity` names each with its version; `plain`: `static` alone, which changes
    nothing; `sees_pods`, `sees_owners`: some plugin does."""

    def __init__(
        self,
        machine: CPUMachine,
        plugins: Sequence[tuple[PluginEntry, CPUPlugin]],
        *,
        max_candidates: int = 16,
        hint_scores: bool = False,
    ) -> None:
        self.machine = machine
        self.watch: Stopwatch | None = None
        self.max_candidates = max_candidates
        self.identity = tuple((entry.name, str(plugin.version)) for entry, plugin in plugins)
        self.sees_pods = any(plugin.sees_pods for _, plugin in plugins)
        self.sees_owners = any(plugin.sees_owners for _, plugin in plugins)
        (
            self.sorts,
            self.filters,
            self.post_filters,
            self.prescores,
            self.selects,
            self.scores,
            self.allocates,
            (self.deallocates),
        ) = (_steps(plugins, point) for point in _POINTS)
        self.hint_scores = hint_scores and bool(self.scores)
        self.plain = not any((self.filters, self.prescores, self.selects, self.scores))

    def time_calls(self, watch: Stopwatch) -> None:
        """Time every call from now on, and leave out plugins that `watch` finds too slow."""
        self.watch = watch

    # Sort

    def sort_key(self, pod: AskingPod, on_broken: OnBroken) -> tuple[tuple[int, ...], ...]:
        """Return the keys that order a pod among those that wait together, by plugin. A failing plugin gives an empty
        key: no pod is refused for its place in a queue."""
        return tuple(self._sort_key(step, pod, on_broken) for step in self.sorts)

    def _sort_key(self, step: PluginStep, pod: AskingPod, on_broken: OnBroken) -> tuple[int, ...]:
        try:
            return call_plugin(step, "Sort", on_broken, check_integers, pod, watch=self.watch)
        except (SkippedError, FallBackError, AdmissionError):
            return ()

    # Filter and PostFilter

    def filter(
        self,
        ask: CPUAsk,
        cpus: Bits,
        node: CPUNode,
        on_broken: OnBroken,
        on_remedy: OnRemedy | None = None,
    ) -> Bits:
        """Return those of the CPUs that a container may get; under `full-pcpus-only` only whole cores of them.
        `on_remedy` is called with the plugins' remedies. Raises `AdmissionError` for a plugin that is broken."""
        if not self.filters:
            return cpus
        left, taken = self._apply_filters(ask, cpus, node, on_broken, frozenset())
        missing = ask.count - (left | ask.anchor).bit_count()
        if missing > 0 and self.post_filters:
            return self._post_filter(ask, cpus, node, Shortage(missing, left, taken), on_broken, on_remedy)
        return left

    def _post_filter(
        self,
        ask: CPUAsk,
        cpus: Bits,
        node: CPUNode,
        short: Shortage,
        on_broken: OnBroken,
        on_remedy: OnRemedy | None,
    ) -> Bits:
        """Return the CPUs that remain when plugins relax filters, one after the other as long as too few remain."""
        soft = {step.entry.name for step in self.filters if step.plugin.soft}
        left, relaxed = short.left, frozenset[str]()
        for step in self.post_filters:
            try:
                given = call_plugin(step, "PostFilter", on_broken, check_remedy, ask, node, short, watch=self.watch)
            except (SkippedError, FallBackError):
                continue
            if isinstance(given, Relax) and given.plugin in soft:
                relaxed |= {given.plugin}
                left, _ = self._apply_filters(ask, cpus, node, on_broken, relaxed)
            elif (
                isinstance(given, Wait)
                or (isinstance(given, Moves) and self._can_make_room(given, ask, cpus, node, on_broken, relaxed))
            ) and on_remedy is not None:
                on_remedy(step.entry.name, given)
            if (left | ask.anchor).bit_count() >= ask.count:
                break
        return left

    def _can_make_room(
        self, moves: Moves, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, relaxed: frozenset[str]
    ) -> bool:
        after = node.after(moves.moves)
        usable = (cpus | after.free) & ~(node.free & ~after.free)
        left, _ = self._apply_filters(ask, usable, after, on_broken, relaxed)
        return (left | ask.anchor).bit_count() >= ask.count

    def _apply_filters(
        self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, relaxed: frozenset[str]
    ) -> tuple[Bits, dict[str, Bits]]:
        """Return the CPUs that all filters but the relaxed ones leave, and those that each removed."""
        left, taken = cpus, dict[str, Bits]()
        for step in self.filters:
            if step.entry.name in relaxed:
                continue
            try:
                kept = call_plugin(step, "Filter", on_broken, check_subset, ask, cpus, node, watch=self.watch)
            except (SkippedError, FallBackError):
                continue
            taken[step.entry.name] = cpus & ~kept
            left &= kept
        if ask.whole_cores and left != cpus:
            held, cores = left | ask.anchor, self.machine.cores
            left &= union(core for core in cores.values() if core & held == core)
        return left, taken

    # PreScore, Select and Score

    def propose(
        self,
        ask: CPUAsk,
        pool: Bits,
        mask: Bits | None,
        node: CPUNode,
        picker: Picker,
        *,
        search_budget: SearchBudget | None,
        on_broken: OnBroken,
        reusable: Bits = 0,
    ) -> Proposal:
        """Return the CPUs for a container from a filtered pool; within the affinity where that has enough. `reusable`:
        CPUs of the pod's init containers, which plugins need not prefer. Raises `AdmissionError`."""
        if not self.plain:
            try:
                return self._pick_best(ask, pool, mask, node, picker, search_budget, on_broken)
            except FallBackError:
                pass
        return Proposal(picker.take_near(pool, ask.count, mask, search_budget, reusable=reusable & pool))

    def _pick_best(
        self,
        ask: CPUAsk,
        pool: Bits,
        mask: Bits | None,
        node: CPUNode,
        picker: Picker,
        search_budget: SearchBudget | None,
        on_broken: OnBroken,
    ) -> Proposal:
        """Return the candidate with the highest score: those of Select, and the manager's own."""
        if pool.bit_count() < ask.count:
            return Proposal(picker.take_near(pool, ask.count, mask, search_budget))
        near = picker.near(pool, mask)
        cpus = near if near.bit_count() >= ask.count else pool
        layers = self._collect_layers(ask, cpus, node, on_broken)
        found = self._collect_candidates(ask, cpus, mask, layers, node, on_broken)
        if not self.scores:
            for candidate in found:
                return Proposal(Pick(candidate, True))
            return Proposal(self._pick_static(ask, pool, mask, near, layers, picker, search_budget))
        candidates = [Pick(one, True) for one in found]
        # The manager's own pick competes too, if there is room for one more candidate.
        if len(candidates) < self.max_candidates:
            candidates.append(self._pick_static(ask, pool, mask, near, layers, picker, search_budget))
        if len(candidates) == 1 and not self.hint_scores:
            return Proposal(candidates[0])
        scored = [Proposal(one, self.score(ask, one.cpus, node, on_broken)) for one in candidates]
        return max(scored, key=lambda one: one.score)

    def score(self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken) -> int:
        """Return the weighted sum of all plugins' scores of a set."""
        total = 0
        for step in self.scores:
            try:
                total += step.entry.weight * call_plugin(
                    step, "Score", on_broken, check_score, ask, cpus, node, watch=self.watch
                )
            except SkippedError:
                continue
        return total

    def _collect_layers(self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken) -> tuple[Layer, ...]:
        """Return the weighted points of all PreScore plugins."""
        layers: tuple[Layer, ...] = ()
        for step in self.prescores:
            weight = step.entry.weight
            try:
                own = call_plugin(step, "PreScore", on_broken, check_layers, ask, cpus, node, watch=self.watch)
            except SkippedError:
                continue
            layers += own if weight == 1 else tuple((there, points * weight) for there, points in own)
        return layers

    def _collect_candidates(
        self,
        ask: CPUAsk,
        cpus: Bits,
        mask: Bits | None,
        layers: tuple[Layer, ...],
        node: CPUNode,
        on_broken: OnBroken,
    ) -> Iterator[Bits]:
        """Yield the sets that Select plugins offer, at most `max_candidates`."""
        # A generator: without Score the first candidate ends the search.
        left = self.max_candidates
        for step in self.selects:
            try:
                own = call_plugin(
                    step,
                    "Select",
                    on_broken,
                    set_checker(ask, self.machine, left),
                    ask,
                    cpus,
                    mask,
                    layers,
                    node,
                    watch=self.watch,
                )
            except SkippedError:
                continue
            yield from own
            left -= len(own)
            if left <= 0:
                return

    def _pick_static(
        self,
        ask: CPUAsk,
        pool: Bits,
        mask: Bits | None,
        near: Bits,
        layers: tuple[Layer, ...],
        picker: Picker,
        search_budget: SearchBudget | None,
    ) -> Pick:
        """Return the pick of the CPU Manager alone, CPUs with more points first."""
        groups = score_groups(pool, layers)
        if picker.uneven:
            groups = whole_cores(self.machine, groups)
            away = pool & ~near
            return Pick(picker.take_cores([group & place for place in (near, away) for group in groups], ask.count))
        if len(groups) == 1:
            return picker.take_near(pool, ask.count, mask, search_budget)
        if ask.whole_cores:
            groups = whole_cores(self.machine, groups)
        return take_by_groups(picker, groups, ask.count, near if mask is not None else pool, search_budget)

    # Allocate and Deallocate

    def effects(
        self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, memos: Mapping[str, str] = NOTHING
    ) -> tuple[tuple[str, CPUEffects], ...]:
        """Return the effects on a container that got CPUs, by plugin; `memos` are the plugins' present notes on it."""
        return self._collect_effects(self.allocates, "Allocate", ask, cpus, node, on_broken, memos)

    def effects_after(
        self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, memos: Mapping[str, str] = NOTHING
    ) -> tuple[tuple[str, CPUEffects], ...]:
        """Return the effects on a container that released these CPUs, by plugin."""
        return self._collect_effects(self.deallocates, "Deallocate", ask, cpus, node, on_broken, memos)

    def _collect_effects(
        self,
        steps: Sequence[PluginStep],
        point: str,
        ask: CPUAsk,
        cpus: Bits,
        node: CPUNode,
        on_broken: OnBroken,
        memos: Mapping[str, str],
    ) -> tuple[tuple[str, CPUEffects], ...]:
        """Return the effects of these plugins, by plugin; a broken one has none."""
        found = []
        for step in steps:
            memo = memos.get(step.entry.name, "")
            mine = msgspec.structs.replace(ask, memo=memo) if memo else ask
            try:
                one = call_plugin(step, point, on_broken, check_effects, mine, cpus, node, watch=self.watch)
            except (SkippedError, FallBackError):
                continue
            if one is not None:
                found.append((step.entry.name, one))
        return tuple(found)


def _steps(plugins: Sequence[tuple[PluginEntry, CPUPlugin]], point: str) -> tuple[PluginStep, ...]:
    """Return the plugins' methods for one point."""
    base = getattr(CPUPlugin, point)
    return tuple(
        PluginStep(entry, plugin, getattr(plugin, point))
        for entry, plugin in plugins
        # Methods that a plugin does not override are never called, so they cost nothing.
        if getattr(type(plugin), point, base) is not base
    )
