"""Fixes for a resize that is not granted: another size, other pods gone, another policy or configuration.

Every change is tried: on a copy of the node with the change in place, the same kubelet gets the resize again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import TypeAlias

import msgspec

from podslice.advise.explain.fixes.bench import disruption
from podslice.advise.explain.fixes.changes import (
    Change,
    ChangePolicy,
    EditPod,
    MoveContainers,
    Reconfigure,
    Remove,
    grants,
)
from podslice.advise.explain.fixes.commands import in_full
from podslice.advise.explain.fixes.edits import POD, differences, places, request_of, with_amounts
from podslice.advise.explain.fixes.fix import COSTS, Edit, Fix, price, shrink_cost, text_of
from podslice.advise.explain.fixes.losses import config_losses
from podslice.advise.explain.fixes.node_fixes import (
    config_differences,
    option_configs,
    settings_text,
    topology_configs,
)
from podslice.advise.explain.fixes.other_pods import removal
from podslice.advise.trial.trial import Moved, Trial
from podslice.api.pod.eligibility import integral_cpus
from podslice.api.pod.spec import Pod
from podslice.config.policy import ExclusiveResize, PodslicePolicy
from podslice.node.resize.allocation import DEFERRED, ResizeVerdict
from podslice.node.resize.exclusive import SMT_ALIGNMENT
from podslice.values.cpuset import format_bits
from podslice.values.quantity import BINARY_SI, Quantity
from podslice.values.quirks import PODSLICE

MovesFor: TypeAlias = Callable[[Trial, Pod], tuple[Moved, ...]]
"""Returns moves of other containers after which a resize is granted (`advise.defrag`)."""
replace = msgspec.structs.replace
_MOST_PAIRS = 60
_MOST_ROUNDED = 8
"""Most CPUs that filling a core may add."""
_MI = 1 << 20
_MOST_SIZES = 20
"""Most halvings of an amount of memory."""


class ResizeFixes:
    """Searches changes for one resize. `node` is as it was before the resize, and stays so."""

    def __init__(self, node: Trial, pod: Pod, verdict: ResizeVerdict, moves: MovesFor) -> None:
        self._node = node
        self._moves = moves
        self._view = node.view
        self._pod = pod
        self._verdict = verdict

    def find(self) -> list[Fix]:
        """Return at most one fix for each amount, class and setting: those that give up no guarantee first, then by
        cost."""
        found = [*self._sizes(), *self._moves_of_others(), *self._removals(), *self._policies()]
        # A restart of the kubelet is worth proposing only where no policy helps.
        if not any(fix.code == "policy" for fix in found):
            found += self._configurations()
        ranked = sorted(found, key=lambda fix: (bool(fix.losses), fix.cost, fix.text))
        return [in_full(fix, self._pod, self._view) for fix in ranked]

    def _works(self, change: Change) -> bool:
        return grants(self._node, self._pod, change)

    # Another size

    def _sizes(self) -> Iterator[Fix]:
        was = dict(places(self._view.pods[self._pod.metadata.uid].spec))
        for place, resources in places(self._pod):
            before = was.get(place)
            desired, current = request_of(resources, "cpu"), None if before is None else request_of(before, "cpu")
            if desired is not None and current is not None and desired != current:
                yield from self._cpus(place, desired, current)
            desired, current = request_of(resources, "memory"), None if before is None else request_of(before, "memory")
            if desired is not None and current is not None and desired > current:
                yield from self._memory(place, desired.value(), current.value())

    def _cpus(self, place: str, desired: Quantity, current: Quantity) -> Iterator[Fix]:
        wants, has = integral_cpus(desired), integral_cpus(current)
        if not wants:
            milli = desired.milli_value()
            whole = [n for n in dict.fromkeys((-(-milli // 1000), milli // 1000)) if n and n != has]
            yield from self._first_that_works(place, desired, "whole-number", whole)
            return
        if self._verdict.detail == SMT_ALIGNMENT:
            yield from self._first_that_works(place, desired, "whole-cores", range(wants + 1, wants + _MOST_ROUNDED))
        if wants > has:
            yield from self._first_that_works(place, desired, "shrink", range(wants - 1, has, -1))
        else:
            yield from self._first_that_works(place, desired, "promised", range(wants + 1, has))

    def _first_that_works(self, place: str, desired: Quantity, code: str, counts: Iterable[int]) -> Iterator[Fix]:
        for count in counts:
            quantity = Quantity.of(count)
            pod = with_amounts(self._pod, {(place, "cpu"): quantity})
            if self._works(EditPod(pod)):
                lost = max(0.0, 1 - count * 1000 / desired.milli_value()) if code == "shrink" else 0.0
                yield self._size_fix(place, "CPUs", desired, quantity, code, pod, lost)
                return

    def _memory(self, place: str, desired: int, current: int) -> Iterator[Fix]:
        low, high = current, desired
        for _ in range(_MOST_SIZES):
            middle = (low + high) // 2 // _MI * _MI
            if not low < middle < high:
                break
            # A pod grows where it is: less memory fits wherever more does, so that bisection finds the largest size.
            works = self._works(EditPod(self._with_memory(place, middle)))
            low, high = (middle, high) if works else (low, middle)
        if low > current:
            after, pod = Quantity.of(low, BINARY_SI), self._with_memory(place, low)
            lost = 1 - low / desired
            yield self._size_fix(place, "memory", Quantity.of(desired, BINARY_SI), after, "shrink", pod, lost)

    def _with_memory(self, place: str, size: int) -> Pod:
        return with_amounts(self._pod, {(place, "memory"): Quantity.of(size, BINARY_SI)})

    def _size_fix(
        self, place: str, what: str, desired: Quantity, after: Quantity, code: str, pod: Pod, lost: float
    ) -> Fix:
        whose = "for the pod as a whole" if place == POD else f"in container {place}"
        words = f"Ask for {text_of(after)} instead of {text_of(desired)} {what} {whose}"
        return Fix(code, words, shrink_cost(code, lost), EditPod(pod), differences(self._pod, pod))

    # Other pods

    def _moves_of_others(self) -> Iterator[Fix]:
        """Yield a fix that moves the fewest containers on the node; only for a deferred resize."""
        # An infeasible resize would not fit if no other pod were here either, so no move helps it.
        if self._verdict.outcome != DEFERRED:
            return
        change = MoveContainers(self._moves(self._node, self._pod))
        if not change.moves or not self._works(change):
            return
        cost = round(COSTS["move-containers"] + 0.2 * (len(change.moves) - 1), 3)
        places = "; ".join(self._place(one) for one in change.moves)
        yield Fix("move-containers", f"Move running containers within the node: {places}", cost, change)

    def _place(self, moved: Moved) -> str:
        metadata = self._view.pods[moved.uid].spec.metadata
        who, current = metadata.full_name, self._view.owners.get(moved.uid, {})
        parts = [
            f"{name} from {format_bits(current.get(name, 0))} to {format_bits(cpus)}"
            for name, cpus in moved.sets.items()
        ]
        if moved.nodes:
            parts.append(f"memory to NUMA {format_bits(moved.nodes)}")
        return f"{who} {', '.join(parts)}"

    def _removals(self) -> Iterator[Fix]:
        """Yield the removal of the least pod whose departure is enough, else of two, else of a set none of which can
        stay."""
        uid = self._pod.metadata.uid
        others = [one.uid for one in sorted(self._view.pods.values(), key=disruption) if one.uid != uid]
        if not others or not self._works(Remove(tuple(others))):
            return
        few = [*((other,) for other in others), *list(combinations(others, 2))[:_MOST_PAIRS]]
        leaving = next((uids for uids in few if self._works(Remove(uids))), None)
        yield removal(self._view, leaving or self._fewest(others))

    def _fewest(self, others: list[str]) -> tuple[str, ...]:
        leaving = list(others)
        for one in reversed(others):
            fewer = [uid for uid in leaving if uid != one]
            if fewer and self._works(Remove(tuple(fewer))):
                leaving = fewer
        return tuple(leaving)

    # Another policy

    def _policies(self) -> Iterator[Fix]:
        # The profile of v1.36.2 has no PodslicePolicy.
        if self._view.quirks != PODSLICE:
            return
        enough: list[set[Edit]] = []
        for resize in _more_permissive(self._view.policy.resize):
            policy = replace(self._view.policy, resize=resize)
            edits = policy_differences(self._view.policy, policy)
            if any(fewer < set(edits) for fewer in enough) or not self._works(ChangePolicy(policy)):
                continue
            enough.append(set(edits))
            settings = " and ".join(f"{edit.path.removeprefix('spec.')}: {edit.after}" for edit in edits)
            losses = ("promised-cpus",) if resize.below_baseline != self._view.policy.resize.below_baseline else ()
            cost = round(COSTS["policy"] + 0.1 * (len(edits) - 1), 3)
            text = f"Set {settings} in the PodslicePolicy"
            yield Fix("policy", text, cost, ChangePolicy(policy), edits, losses)

    # Another configuration

    def _configurations(self) -> Iterator[Fix]:
        config = self._view.config
        enough: list[set[Edit]] = []
        for other in (*topology_configs(config), *option_configs(config)):
            edits = config_differences(config, other)
            if any(fewer < set(edits) for fewer in enough) or not self._works(Reconfigure(other)):
                continue
            enough.append(set(edits))
            text = f"{settings_text(edits)} and restart the kubelet; running pods keep what they have"
            cost = price("config", extra=0.1 * (len(edits) - 1))
            yield Fix("config", text, cost, Reconfigure(other), edits, config_losses(config, other))


def _more_permissive(resize: ExclusiveResize) -> Iterator[ExclusiveResize]:
    """Yield policies that allow one thing more, then several."""
    fields = [("exclusive", True), ("below_baseline", "allow"), ("eligibility_change", "allow")]
    missing = [(name, value) for name, value in fields if getattr(resize, name) != value]
    for size in range(1, len(missing) + 1):
        for some in combinations(missing, size):
            yield replace(resize, **dict(some))


def policy_differences(before: PodslicePolicy, after: PodslicePolicy) -> tuple[Edit, ...]:
    """Return the fields in which two policies differ, as in a file."""
    return tuple(_differences("spec", before, after))


def _differences(path: str, before: object, after: object) -> Iterator[Edit]:
    if before == after:
        return
    if isinstance(before, msgspec.Struct) and isinstance(after, type(before)):
        for field in msgspec.structs.fields(before):
            old, new = getattr(before, field.name), getattr(after, field.name)
            yield from _differences(f"{path}.{field.encode_name}", old, new)
    else:
        yield Edit(path, _yaml(before), _yaml(after))


def _yaml(value: object) -> str:
    """Return a value as in a file, on one line; empty for a missing one."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
