"""The searched merge against the cross product, without samples: `python -m tests.node.topology.exhaustive`.

Every state of two resources on up to five NUMA nodes with up to two units each, and of three resources on up to three
nodes, with every request, with and without distances, under every policy; then random CPUs, devices, memory groups,
reuse and sockets on up to eight nodes (`--random N`, `--seed N`). Ends with status 1 at the first difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement, product

from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import ResourceHints
from podslice.node.topology.merge import Merger
from tests.node.topology.test_described_hints import of_capacity, some_merge

Listed = tuple[Hint, ...]
Order = Callable[[int], tuple[int, int]]


def cross_product(lists: Sequence[Listed], everything: int) -> tuple[set[int], set[int]]:
    """Masks of all preferred and of all other merged hints, choosing one hint of each list in every way.

    What is left of a choice is its intersection, and whether all its hints are preferred and equal.
    """
    equal: set[int | None] = {None}
    others: set[int] = set()
    for hints in lists:
        preferred = {hint.mask for hint in hints if hint.preferred}
        masks = {everything if hint.mask is None else hint.mask & everything for hint in hints}
        rest = {everything if hint.mask is None else hint.mask & everything for hint in hints if not hint.preferred}
        narrowed = {mask & other for mask in others for other in masks}
        kept: set[int | None] = set()
        for mask in equal:
            whole = everything if mask is None else mask
            narrowed |= {whole & other for other in rest}
            for other in preferred:
                if mask is None or other is None or mask == other:
                    kept.add(other if mask is None else mask)
                else:
                    narrowed.add(mask & other)
        equal, others = kept, narrowed
    return {everything if mask is None else mask & everything for mask in equal} - {0}, others - {0}


def winner(merger: Merger, lists: Sequence[Listed], everything: int, order: Order) -> Hint:
    """Return the best of all merged hints (cpu-topology 9.4, 9.5)."""
    if merger.single_numa_node:
        lists = [
            tuple(hint for hint in hints if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1))
            for hints in lists
        ]
    preferred, others = cross_product(lists, everything)
    if preferred:
        return _result(
            merger, Hint(min(preferred, key=lambda mask: (mask.bit_count(), *order(mask))), True), everything
        )
    target = max(
        (min((hint.mask.bit_count() for hint in hints if hint.mask is not None), default=0) for hints in lists),
        default=0,
    )

    def rank(mask: int) -> tuple[int, ...]:
        size = mask.bit_count()
        return (0 if size == target else 1 if size < target else 2, abs(size - target), *order(mask))

    return _result(merger, Hint(min(others, key=rank, default=everything), False), everything)


def _result(merger: Merger, hint: Hint, everything: int) -> Hint:
    return Hint(None, hint.preferred) if merger.single_numa_node and hint.mask == everything else hint


def _order(distances: Sequence[Sequence[int]], closest: bool) -> Order:
    @cache
    def order(mask: int) -> tuple[int, int]:
        members = [node for node in range(len(distances)) if mask >> node & 1] if closest else []
        return sum(distances[node][other] for node in members for other in members), mask

    return order


def _listed(hints: ResourceHints) -> Listed:
    return tuple(hints) if hints else (Hint(None, False),)


def every_state(nodes: int) -> Iterator[tuple[ResourceHints, Listed]]:
    """Return the hints of one resource in every state of so many nodes of two units, for every request, and their
    list."""
    yield [], _listed([])
    for frees in product(range(3), repeat=nodes):
        for amount in range(1, sum(frees) + 1):
            hints = of_capacity(list(frees), [2] * nodes, amount)
            yield hints, _listed(hints)


def differences(nodes: int, resources: int) -> tuple[int, int]:
    """Cases and differences over all states."""
    chain = [[10 if i == j else 12 if i // 2 == j // 2 else 32 for j in range(nodes)] for i in range(nodes)]
    uneven = [[10 if i == j else 11 + (i * i + j * j) % 7 for j in range(nodes)] for i in range(nodes)]
    everything = (1 << nodes) - 1
    cases = different = 0
    for policy, distances, closest in (
        ("best-effort", chain, False),
        ("single-numa-node", chain, False),
        ("restricted", chain, True),
        ("restricted", uneven, True),
    ):
        merger = Merger(policy, list(enumerate(distances)), closest=closest)
        order = _order(distances, closest)
        expected: dict[tuple[Listed, ...], Hint] = {}
        for chosen in combinations_with_replacement(every_state(nodes), resources):
            lists = tuple(listed for _, listed in chosen)
            if lists not in expected:
                expected[lists] = winner(merger, lists, everything, order)
            found = merger.merge([{str(i): hints for i, (hints, _) in enumerate(chosen)}]).hint
            cases += 1
            different += found != expected[lists]
    return cases, different


def random_differences(seeds: range) -> tuple[int, int]:
    """Cases and differences over random resources on up to eight nodes."""
    different = 0
    for seed in seeds:
        merger, hints, distances, closest = some_merge(seed, 8)
        found = merger.merge([{str(i): one for i, one in enumerate(hints)}]).hint
        lists = [_listed(one) for one in hints if one is not None]
        order = _order(distances, closest and not merger.single_numa_node)
        different += found != winner(merger, lists, merger.all_nodes, order)
    return len(seeds), different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=100_000, metavar="N", help="random cases (100 000)")
    parser.add_argument("--seed", type=int, default=1_000_000, metavar="N", help="first seed of the random cases")
    parser.add_argument("--nodes", type=int, default=5, metavar="N", help="most NUMA nodes to look at fully (5)")
    arguments = parser.parse_args()
    for nodes in range(1, arguments.nodes + 1):
        for resources in (1, 2, 3) if nodes <= 3 else (1, 2):
            _report(f"every state, {nodes} NUMA nodes, {resources} resources", *differences(nodes, resources))
    seeds = range(arguments.seed, arguments.seed + arguments.random)
    _report("random states, up to 8 NUMA nodes, up to 8 resources", *random_differences(seeds))


def _report(what: str, cases: int, different: int) -> None:
    print(f"{what}: {cases} cases, {different} different", flush=True)
    if different:
        sys.exit(1)


if __name__ == "__main__":
    main()
