"""The plugins of one node, compiled: eight tuples of methods, and what becomes of a plugin that breaks its contract.

A plugin only ever answers; the CPU Manager acts. So whatever a plugin does, a pick has the CPUs it should have or is
refused, and nothing is written before it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from podslice.core.allocate.cpu_distribute import Pick
from podslice.core.allocate.picker import Picker
from podslice.core.config.policy import OnError, PluginEntry
from podslice.core.errors import AdmissionError, RefusalKind
from podslice.core.hints.search import Purse
from podslice.core.machine.topology import whole_objects
from podslice.core.plugins.api import (
    NOTHING,
    AskingPod,
    CPUAsk,
    CPUEffects,
    CPUMachine,
    CPUNode,
    CPUPlugin,
    Layer,
    Relax,
    Shortage,
    Wait,
)
from podslice.core.values.cpuset import Bits, union

STATIC = "static"
LARGEST_POINTS, LARGEST_SCORE, LARGEST_MEMO = 10**6, 100, 4096
BROKEN = RefusalKind("plugin-broken", 'plugin "{plugin}" {point}: {problem}')
_POINTS = ("sort_key", "filter", "post_filter", "prescore", "select", "score", "allocate", "deallocate")
T = TypeVar("T")
OnBroken = Callable[[str, str, str], None]
"""Told the plugin, the point and the problem."""


class _SkippedError(Exception):
    """This plugin counts for nothing in this pick."""


class _FallBackError(Exception):
    """This pick is made as without plugins."""


class Stopwatch:
    """Turns off plugins that take too long, five calls in a row, until the next start. Only an agent has one: answers
    that depend on a clock are nobody else's business."""

    limit = 0.01
    calls = 5

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._slow: dict[str, int] = {}

    def took(self, plugin: str, seconds: float) -> None:
        """A call of the plugin has ended."""
        if not self.is_off(plugin):
            self._slow[plugin] = self._slow.get(plugin, 0) + 1 if seconds > self.limit else 0

    def is_off(self, plugin: str) -> bool:
        """True for a plugin that was too slow too often."""
        return self._slow.get(plugin, 0) >= self.calls


class PluginStep(NamedTuple):
    """One method of one plugin."""

    entry: PluginEntry
    plugin: CPUPlugin
    call: Callable[..., Any]


class Proposal(NamedTuple):
    """CPUs that a container would get, and how they score."""

    pick: Pick
    score: int = 0


class PluginProfile:
    """What all plugins of a node say together. `identity` names each with its version; `plain`: `static` alone, which
    changes nothing; `sees_pods`, `sees_owners`: some plugin does."""

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

    # Sort

    def sort_key(self, pod: AskingPod, on_broken: OnBroken) -> tuple[tuple[int, ...], ...]:
        """Where a pod stands among those that wait together, by plugin; nobody is refused because of that."""
        return tuple(self._sort_key(step, pod, on_broken) for step in self.sorts)

    def _sort_key(self, step: PluginStep, pod: AskingPod, on_broken: OnBroken) -> tuple[int, ...]:
        try:
            return _called(step, "Sort", on_broken, _ints, pod, watch=self.watch)
        except (_SkippedError, _FallBackError, AdmissionError):
            return ()

    # Filter and PostFilter

    def allowed(self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken) -> Bits:
        """Which of the CPUs a container may get; under `full-pcpus-only` only whole cores of them. Raises
        `AdmissionError` for a plugin that is broken."""
        if not self.filters:
            return cpus
        left, taken = self._filtered(ask, cpus, node, on_broken, frozenset())
        missing = ask.count - (left | ask.anchor).bit_count()
        if missing > 0 and self.post_filters and left != cpus:
            relaxed = self._relaxed(ask, node, Shortage(missing, left, taken), on_broken)
            if relaxed:
                left, _ = self._filtered(ask, cpus, node, on_broken, relaxed)
        return left

    def _filtered(
        self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, relaxed: frozenset[str]
    ) -> tuple[Bits, dict[str, Bits]]:
        left, taken = cpus, dict[str, Bits]()
        for step in self.filters:
            if step.entry.name in relaxed:
                continue
            try:
                kept = _called(step, "Filter", on_broken, _subset, ask, cpus, node, watch=self.watch)
            except (_SkippedError, _FallBackError):
                continue
            taken[step.entry.name] = cpus & ~kept
            left &= kept
        if ask.whole_cores and left != cpus:
            held, cores = left | ask.anchor, self.machine.cores
            left &= union(core for core in cores.values() if core & held == core)
        return left, taken

    def _relaxed(self, ask: CPUAsk, node: CPUNode, short: Shortage, on_broken: OnBroken) -> frozenset[str]:
        soft = {step.entry.name for step in self.filters if step.plugin.soft}
        relaxed = frozenset[str]()
        for step in self.post_filters:
            try:
                remedy = _called(step, "PostFilter", on_broken, _remedy, ask, node, short, watch=self.watch)
            except (_SkippedError, _FallBackError):
                continue
            if isinstance(remedy, Relax) and remedy.plugin in soft:
                relaxed |= {remedy.plugin}
        return relaxed

    # PreScore, Select and Score

    def propose(
        self,
        ask: CPUAsk,
        pool: Bits,
        mask: Bits | None,
        node: CPUNode,
        picker: Picker,
        *,
        purse: Purse | None,
        on_broken: OnBroken,
    ) -> Proposal:
        """The CPUs for a container from a pool that was filtered; within the affinity where that has enough. Raises
        `AdmissionError`."""
        if self.plain:
            return Proposal(picker.take_near(pool, ask.count, mask, purse))
        try:
            return self._best(ask, pool, mask, node, picker, purse, on_broken)
        except _FallBackError:
            return Proposal(picker.take_near(pool, ask.count, mask, purse))

    def _best(
        self,
        ask: CPUAsk,
        pool: Bits,
        mask: Bits | None,
        node: CPUNode,
        picker: Picker,
        purse: Purse | None,
        on_broken: OnBroken,
    ) -> Proposal:
        if pool.bit_count() < ask.count:
            return Proposal(picker.take_near(pool, ask.count, mask, purse))
        near = picker.near(pool, mask)
        cpus = near if near.bit_count() >= ask.count else pool
        layers = self._layers(ask, cpus, node, on_broken)
        found = self._candidates(ask, cpus, mask, layers, node, on_broken)
        if not self.scores:
            for candidate in found:
                return Proposal(Pick(candidate, True))
            return Proposal(self._static(ask, pool, mask, near, layers, picker, purse))
        candidates = [Pick(one, True) for one in found]
        if len(candidates) < self.max_candidates:
            candidates.append(self._static(ask, pool, mask, near, layers, picker, purse))
        scored = [Proposal(one, self.score(ask, one.cpus, node, on_broken)) for one in candidates]
        return max(scored, key=lambda one: one.score)

    def score(self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken) -> int:
        """What all plugins together think of a set."""
        total = 0
        for step in self.scores:
            try:
                total += step.entry.weight * _called(
                    step, "Score", on_broken, _score, ask, cpus, node, watch=self.watch
                )
            except _SkippedError:
                continue
        return total

    def _layers(self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken) -> tuple[Layer, ...]:
        layers: tuple[Layer, ...] = ()
        for step in self.prescores:
            weight = step.entry.weight
            try:
                own = _called(step, "PreScore", on_broken, _points, ask, cpus, node, watch=self.watch)
            except _SkippedError:
                continue
            layers += own if weight == 1 else tuple((there, points * weight) for there, points in own)
        return layers

    def _candidates(
        self,
        ask: CPUAsk,
        cpus: Bits,
        mask: Bits | None,
        layers: tuple[Layer, ...],
        node: CPUNode,
        on_broken: OnBroken,
    ) -> Iterator[Bits]:
        left = self.max_candidates
        for step in self.selects:
            try:
                own = _called(
                    step,
                    "Select",
                    on_broken,
                    _sets(ask, self.machine, left),
                    ask,
                    cpus,
                    mask,
                    layers,
                    node,
                    watch=self.watch,
                )
            except _SkippedError:
                continue
            yield from own
            left -= len(own)
            if left <= 0:
                return

    def _static(
        self,
        ask: CPUAsk,
        pool: Bits,
        mask: Bits | None,
        near: Bits,
        layers: tuple[Layer, ...],
        picker: Picker,
        purse: Purse | None,
    ) -> Pick:
        """What is picked without plugins, with more points first."""
        groups = score_groups(pool, layers)
        if picker.uneven:
            groups = whole_cores(self.machine, groups)
            away = pool & ~near
            return Pick(picker.take_cores([group & place for place in (near, away) for group in groups], ask.count))
        if len(groups) == 1:
            return picker.take_near(pool, ask.count, mask, purse)
        if ask.whole_cores:
            groups = whole_cores(self.machine, groups)
        return take_by_groups(picker, groups, ask.count, near if mask is not None else pool, purse)

    # Allocate and Deallocate

    def effects(
        self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, memos: Mapping[str, str] = NOTHING
    ) -> tuple[tuple[str, CPUEffects], ...]:
        """What else follows for a container that has got CPUs, by plugin; `memos` are those of it so far."""
        return self._told(self.allocates, "Allocate", ask, cpus, node, on_broken, memos)

    def effects_after(
        self, ask: CPUAsk, cpus: Bits, node: CPUNode, on_broken: OnBroken, memos: Mapping[str, str] = NOTHING
    ) -> tuple[tuple[str, CPUEffects], ...]:
        """What else follows for a container that has these CPUs no more."""
        return self._told(self.deallocates, "Deallocate", ask, cpus, node, on_broken, memos)

    def _told(
        self,
        steps: Sequence[PluginStep],
        point: str,
        ask: CPUAsk,
        cpus: Bits,
        node: CPUNode,
        on_broken: OnBroken,
        memos: Mapping[str, str],
    ) -> tuple[tuple[str, CPUEffects], ...]:
        found = []
        for step in steps:
            memo = memos.get(step.entry.name, "")
            mine = msgspec.structs.replace(ask, memo=memo) if memo else ask
            try:
                one = _called(step, point, on_broken, _effects, mine, cpus, node, watch=self.watch)
            except (_SkippedError, _FallBackError):
                continue
            if one is not None:
                found.append((step.entry.name, one))
        return tuple(found)


# Score groups


def score_groups(cpus: Bits, layers: Sequence[Layer]) -> list[Bits]:
    """The CPUs by what they have of all layers together, most first."""
    groups = {0: cpus}
    for there, points in layers:
        if not points or not there & cpus:
            continue
        split: dict[int, Bits] = {}
        for score, group in groups.items():
            inside = group & there
            if inside:
                split[score + points] = split.get(score + points, 0) | inside
            if inside != group:
                split[score] = split.get(score, 0) | group & ~inside
        groups = split
    return [groups[score] for score in sorted(groups, reverse=True)]


def whole_cores(machine: CPUMachine, groups: Sequence[Bits]) -> list[Bits]:
    """The same groups, every core in the one of its worst CPU."""
    left, found = union(groups), []
    for group in reversed(groups):
        cores = whole_objects(machine.cores, group) & left
        left &= ~cores
        found.append(cores)
    return found[::-1]


def take_by_groups(picker: Picker, groups: Sequence[Bits], count: int, near: Bits, purse: Purse | None) -> Pick:
    """Whole groups as long as they fit, and of the next one as many as are missing; first those that are `near`.
    Raises `AdmissionError`."""
    chosen, proven = 0, True
    for place in (near, ~near):
        for group in groups:
            free = group & place
            missing = count - chosen.bit_count()
            if not missing:
                return Pick(chosen, proven)
            if free.bit_count() <= missing:
                chosen |= free
            else:
                pick = picker.take(free, missing, purse)
                chosen, proven = chosen | pick.cpus, proven and pick.proven
    if chosen.bit_count() < count:
        return picker.take(chosen, count, purse)
    return Pick(chosen, proven)


# Calls, and what may come back


def _steps(plugins: Sequence[tuple[PluginEntry, CPUPlugin]], point: str) -> tuple[PluginStep, ...]:
    base = getattr(CPUPlugin, point)
    return tuple(
        PluginStep(entry, plugin, getattr(plugin, point))
        for entry, plugin in plugins
        if getattr(type(plugin), point, base) is not base
    )


def _timed(step: PluginStep, watch: Stopwatch, check: Callable[..., T], *arguments: Any) -> T:
    """The check is timed too, because what a generator answers is only worked out there."""
    name = step.entry.name
    if watch.is_off(name):
        raise _ContractError(f"took more than {1000 * watch.limit:.0f} ms {watch.calls} times in a row")
    began = watch.clock()
    try:
        return check(step.call(*arguments), *arguments)
    finally:
        watch.took(name, watch.clock() - began)


def _called(
    step: PluginStep, point: str, on_broken: OnBroken, check: Callable[..., T], *arguments: Any, watch: Stopwatch | None
) -> T:
    """What a plugin answers, if that is within its contract. Raises what `onError` says."""
    try:
        return check(step.call(*arguments), *arguments) if watch is None else _timed(step, watch, check, *arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may not end the process either, by SystemExit
        name, problem = step.entry.name, _in_words(error)
        on_broken(name, point, problem)
        on_error: OnError = step.entry.on_error
        if on_error == "refuse":
            raise AdmissionError(BROKEN, plugin=name, point=point, problem=problem) from None
        raise (_SkippedError if on_error == "skip" else _FallBackError) from None


class _ContractError(Exception):
    """An answer that a plugin may not give."""


def _in_words(error: BaseException) -> str:
    """One line, whatever the error's own text is like."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an error of a plugin may have no text either
        text = ""
    said = text if isinstance(error, _ContractError) else f"{type(error).__name__}: {text}".removesuffix(": ")
    return said if len(said) <= 200 else f"{said[:200]}…"


# Only plain values are taken: a class of the plugin's own could answer otherwise each time that it is looked at.


def _ints(answer: object, *_: object) -> tuple[int, ...]:
    if type(answer) is not tuple or not all(type(one) is int for one in answer):
        raise _ContractError("the key is not a tuple of integers")
    return answer


def _subset(answer: object, _: CPUAsk, cpus: Bits, *__: object) -> Bits:
    if type(answer) is not int or answer < 0 or answer & ~cpus:
        raise _ContractError("the CPUs are not a subset of those that it was given")
    return answer


def _remedy(answer: object, *_: object) -> object:
    if answer is not None and not isinstance(answer, Relax | Wait):
        raise _ContractError("the answer is neither Relax nor Wait")
    return answer


def _points(answer: Any, *_: object) -> tuple[Layer, ...]:
    layers: tuple[Layer, ...] = tuple([(there, points) for there, points in answer])
    for there, points in layers:
        if type(there) is not int or there < 0:
            raise _ContractError("a layer has no set of CPUs")
        if type(points) is not int or not -LARGEST_POINTS <= points <= LARGEST_POINTS:
            raise _ContractError(f"{points!r} points are not from -{LARGEST_POINTS} to {LARGEST_POINTS}")
    return layers


def _sets(ask: CPUAsk, machine: CPUMachine, most: int) -> Callable[..., tuple[Bits, ...]]:
    def check(answer: Any, _: CPUAsk, cpus: Bits, *__: object) -> tuple[Bits, ...]:
        found: list[Bits] = []
        for candidate in answer or ():
            if len(found) == most:
                break
            _check_set(candidate, ask, cpus, machine)
            found.append(candidate)
        return tuple(found)

    return check


def _check_set(candidate: object, ask: CPUAsk, cpus: Bits, machine: CPUMachine) -> None:
    if type(candidate) is not int or candidate < 0 or candidate & ~(cpus | ask.anchor):
        raise _ContractError("a set has CPUs that it was not given")
    if candidate.bit_count() != ask.count or ask.anchor & ~candidate:
        raise _ContractError(f"a set has {candidate.bit_count()} CPUs, not the {ask.count} that are asked for")
    if ask.whole_cores and whole_objects(machine.cores, candidate & ~ask.anchor) & ~(candidate | ask.anchor):
        raise _ContractError("a set has part of a core")


def _score(answer: object, *_: object) -> int:
    if type(answer) is not int or not 0 <= answer <= LARGEST_SCORE:
        raise _ContractError(f"{answer!r} is not a score from 0 to {LARGEST_SCORE}")
    return answer


def _effects(answer: object, *_: object) -> CPUEffects | None:
    if answer is None:
        return None
    if type(answer) is not CPUEffects:
        raise _ContractError("the answer is not CPUEffects")
    mine: CPUEffects = msgspec.convert(msgspec.to_builtins(answer), CPUEffects)  # the plugin may keep its own
    if len(mine.memo.encode()) > LARGEST_MEMO:
        raise _ContractError(f"the memo has more than {LARGEST_MEMO} bytes")
    return mine
