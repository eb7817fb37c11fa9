"""Hints that are described by a rule merge like the lists they stand for (docs/development/merge.md)."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

import pytest

from podslice.machine.memory import MemoryTable, NUMANodeState
from podslice.node.devices.hints import Coverage
from podslice.node.memory.hints import memory_hints
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet, ResourceHints
from podslice.node.topology.merge import Merger
from podslice.node.topology.needs import Need, Reach
from podslice.node.topology.search import SearchBudget, Span, fewest, lowest
from podslice.node.topology.split import Split
from podslice.node.topology.spreads import Spreads
from podslice.values.cpuset import bits_of
from tests.node.topology.test_merge import brute_force

RESOURCES = ("memory", "hugepages-2Mi", "hugepages-1Gi")


def of_capacity(free: list[int], total: list[int], amount: int, required: int = 0) -> ResourceHints:
    """Hints for `amount` of something that nodes have `free` of `total`, on masks that contain `required`."""
    nodes = range(len(free))
    everything = (1 << len(free)) - 1
    values = dict(enumerate(free))
    needs = (Need(values, amount), Need.nodes(required, required.bit_count()))
    if sum(free) < amount:
        return []
    singles = bits_of(v for v in nodes if free[v] >= amount and required & ~(1 << v) == 0)
    smallest = fewest(everything, [Need(dict(enumerate(total)), amount)])
    open_nodes = everything if len(free) > 1 else 0
    size = smallest.nodes if smallest else len(free)
    return HintSet(tuple(nodes), size, singles, open_nodes=open_nodes, needs=needs)


def draw_free_cpus(random: Random, n: int, *, sockets: bool) -> ResourceHints:
    total = [random.choice([2, 4, 4, 4]) for _ in range(n)]
    free = [random.randint(0, most) for most in total]
    required = bits_of(v for v in range(n) if random.random() < 0.3) if random.random() < 0.3 else 0
    hints = of_capacity(free, total, random.randint(1, sum(free) + 1), required)
    count = random.randint(1, 3)
    if sockets and isinstance(hints, HintSet) and n >= count and random.random() < 0.3:
        of_nodes = {v: 1 << v * count // n for v in range(n)}
        hints.alignment = Span(of_nodes, -(-hints.smallest // (n // count)))
    return hints


def some_devices(random: Random, n: int) -> ResourceHints:
    count = random.randint(1, 2 * n)
    on_node: dict[int, int] = {}
    for device in range(count):
        for node in random.sample(range(n), 1 if random.random() < 0.7 else min(n, 2)):
            on_node[node] = on_node.get(node, 0) | 1 << device
    free = bits_of(d for d in range(count) if random.random() < 0.7)
    reusable = bits_of(d for d in range(count) if random.random() < 0.1) & ~free
    return Coverage(on_node, tuple(range(n))).hints(free, random.randint(1, count), reusable=reusable) or []


def some_memory(random: Random, n: int, resources: int) -> list[ResourceHints]:
    state: dict[int, NUMANodeState] = {}
    left = random.sample(range(n), n)
    groups = []
    while left:
        group = sorted(left.pop() for _ in range(min(len(left), random.choice([1, 1, 1, 2, 3]))))
        groups.append(group)
        used = len(group) > 1 or random.random() < 0.3
        for node in group:
            sizes = {name: random.choice([3, 4, 4, 5]) for name in RESOURCES[:resources]}
            tables = {
                name: MemoryTable(size, 0, size, 0, random.randint(0, size) if used else size)
                for name, size in sizes.items()
            }
            state[node] = NUMANodeState(int(used), tables, group)
    request = {name: random.randint(0, 5 * random.randint(1, n)) for name in RESOURCES[:resources]}
    reuse = {bits_of(random.choice(groups)): {"memory": 3}} if random.random() < 0.2 else {}
    return [memory_hints(state, request, reuse, crash=True) or []] * resources


def some_merge(seed: int, most_nodes: int) -> tuple[Merger, list[ResourceHints], list[list[int]], bool]:
    """A merger and hints of up to eight resources, the distances, and whether closer nodes are preferred."""
    random = Random(seed)
    n = random.randint(1, most_nodes)
    hints: list[ResourceHints] = [draw_free_cpus(random, n, sockets=i == 0) for i in range(random.randint(0, 2))]
    hints += [some_devices(random, n) for _ in range(random.randint(0, 2))]
    if random.random() < 0.6:
        hints += some_memory(random, n, random.choice([1, 1, 2, 3]))
    if random.random() < 0.1:
        hints.append(HintSet.only(random.randint(1, (1 << n) - 1)))
    distances = [[random.choice([10, 12, 32]) for _ in range(n)] for _ in range(n)]
    if random.random() < 0.5:
        distances = [[10 if i == j else 12 if i * 2 // n == j * 2 // n else 32 for j in range(n)] for i in range(n)]
    policy = random.choice(["best-effort", "restricted", "single-numa-node"])
    closest = random.random() < 0.5
    return Merger(policy, list(enumerate(distances)), closest=closest), hints, distances, closest


def both_ways(
    merger: Merger, hints: list[ResourceHints], search_budget: SearchBudget | None = None
) -> tuple[tuple[Hint, bool], tuple[Hint, bool]]:
    described = merger.merge([{str(i): one for i, one in enumerate(hints)}], search_budget)
    listed = merger.merge([{str(i): None if one is None else list(one) for i, one in enumerate(hints)}])
    return described.verdict, listed.verdict


@pytest.mark.parametrize("start", range(0, 4000, 500))
def test_random_resources(start: int) -> None:
    """CPUs, memory and devices in any state on up to 8 NUMA nodes merge as their lists do, whatever the policy."""
    for seed in range(start, start + 500):
        merger, hints, _, _ = some_merge(seed, 8 if seed % 20 == 0 else 5)
        described, listed = both_ways(merger, hints)
        assert described == listed, seed


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("closest", [False, True])
def test_every_pair_of_resources(nodes: int, closest: bool) -> None:
    """All states of two resources with up to two units per node (up to three nodes), or with one (up to five), merge as
    their lists do, and with few nodes those as every combination of one hint each does."""
    units = range(3) if nodes <= 3 else range(2)
    distances = [[10 if i == j else 12 if i // 2 == j // 2 else 32 for j in range(nodes)] for i in range(nodes)]
    merger = Merger("best-effort", list(enumerate(distances)), closest=closest)
    total = [max(units)] * nodes
    states = [list(state) for state in product(units, repeat=nodes)]
    for mine, theirs in product(states, states):
        for wanted, other in product({1, max(1, sum(mine) - 1), sum(mine)}, {1, sum(theirs)}):
            hints = [of_capacity(mine, total, wanted), of_capacity(theirs, total, other)]
            described, listed = both_ways(merger, hints)
            assert described == listed, (mine, wanted, theirs, other)
            if nodes <= 3:
                lists = [list(one or [Hint(None, False)]) for one in hints]
                assert described[0] == brute_force("best-effort", nodes, distances, closest, lists)


def test_an_ended_search_on_few_nodes_is_done_by_listing() -> None:
    """Up to 16 nodes a search that takes too long gives way to the lists, with the same result."""
    for seed in range(300):
        merger, hints, _, _ = some_merge(seed, 5)
        described, listed = both_ways(merger, hints, SearchBudget(0))
        assert described == listed, seed


def test_an_ended_search_on_many_nodes_still_answers() -> None:
    """Beyond 16 nodes the answer is an intersection of hints even when the search for the best one ends early."""
    random = Random(1)
    n = 40
    distances = [[random.randint(10, 90) for _ in range(n)] for _ in range(n)]
    free = [random.randint(0, 16) for _ in range(n)]
    first = of_capacity(free, [16] * n, sum(free) // 2)
    second = of_capacity(free[::-1], [16] * n, sum(free) // 2)
    merger = Merger("best-effort", list(enumerate(distances)), closest=True)
    merged = merger.merge([{"a": first, "b": second}])
    found, admitted, proven = merged.hint, merged.admitted, merged.proven
    assert admitted
    assert found.mask
    assert isinstance(first, HintSet)
    assert isinstance(second, HintSet)
    assert Split([first, second], SearchBudget(1 << 30)).is_possible((1 << n) - 1 & ~found.mask)
    assert not proven


def test_a_search_that_came_to_its_end_says_so() -> None:
    """A merge is proven unless a better set may exist."""
    merger, hints, _, _ = some_merge(7, 8)
    assert merger.merge([{str(i): one for i, one in enumerate(hints)}]).proven
    merger = Merger("best-effort", [(0, None), (1, None)])
    assert not merger.merge([{"a": HintSet((0, 1), 2, 0, open_nodes=0b11, proven=False)}]).proven
    assert merger.merge([{"a": HintSet((0, 1), 2, 0, open_nodes=0b11)}]).proven


def _all_sets(n: int, size: int) -> list[int]:
    return [bits_of(subset) for subset in combinations(range(n), size)]


def test_lowest_and_fewest_by_definition() -> None:
    """The searches find what trying every set finds."""
    for seed in range(400):
        random = Random(seed)
        n = random.randint(1, 7)
        needs: list[Need] = []
        for _ in range(random.randint(0, 3)):
            values = {v: random.randint(0, 5) for v in range(n)}
            needs.append(Need(values, random.randint(0, sum(values.values()) + 1)))
        if random.random() < 0.4:
            devices = {v: random.getrandbits(8) for v in range(n)}
            needs.append(Reach.of(devices, random.randint(0, 8)))
        if random.random() < 0.4:
            named = random.randint(1, (1 << n) - 1)
            needs.append(Need.nodes(named, named.bit_count()))
        nodes = random.randint(1, (1 << n) - 1)
        fitting = {
            size: [m for m in _all_sets(n, size) if not m & ~nodes and all(need.is_met_by(m) for need in needs)]
            for size in range(1, n + 1)
        }
        found = fewest(nodes, needs)
        assert (found and found.nodes) == next((size for size, masks in fitting.items() if masks), None), seed
        for size, masks in fitting.items():
            assert lowest(nodes, size, needs) == min(masks, default=None), seed
            below = random.randint(1, 1 << n)
            assert lowest(nodes, size, needs, below=below) == min((m for m in masks if m < below), default=None), seed


def test_spreads_come_closest_first() -> None:
    """The ways to fill groups come in order of the distance sum, all of them, whether walked or listed."""
    for seed in range(60):
        random = Random(seed)
        sizes = [random.randint(1, 3) for _ in range(random.randint(1, 4))]
        number = len(sizes)
        far = [[random.choice([12, 12, 32]) for _ in sizes] for _ in sizes]
        cross = [[far[a][b] + far[b][a] for b in range(number)] for a in range(number)]
        spreads = Spreads(sizes, [10] * number, [cross[a][a] for a in range(number)], cross)
        size = random.randint(1, sum(sizes))

        def cost(way: tuple[int, ...], cross: list[list[int]] = cross) -> int:
            groups = [group for group, count in enumerate(way) for _ in range(count)]
            return 10 * len(groups) + sum(cross[a][b] for a, b in combinations(groups, 2))

        ways = [way for way in product(*[range(most + 1) for most in sizes]) if sum(way) == size]
        for found in (list(spreads.walk(size, 10**9, SearchBudget())), list(spreads.list_all(size))):
            assert sorted(found) == sorted((cost(way), way) for way in ways)
            assert [total for total, _ in found] == sorted(total for total, _ in found)
        assert spreads.count_ways(size) == len(ways)


@pytest.mark.slow
def test_sockets_come_first() -> None:
    """With `sockets_first`, sets of few sockets win wherever every resource prefers one, and nothing else changes."""
    moved = 0
    for seed in range(3000):
        random = Random(seed)
        n = random.randint(4, 6)
        cpus = draw_free_cpus(random, n, sockets=True)
        if not isinstance(cpus, HintSet) or cpus.alignment is None:
            continue
        hints: list[ResourceHints] = [cpus, some_devices(random, n)] if random.random() < 0.3 else [cpus]
        merger = Merger("best-effort", [(node, None) for node in range(n)])
        usual = both_ways(merger, hints)[1]
        span = cpus.alignment
        assert span is not None
        strict = [Hint(hint.mask, hint.preferred and span.holds(hint.mask or 0)) for hint in cpus]
        lists = [None if one is None else strict if one is cpus else list(one) for one in hints]
        aligned = merger.merge([{str(i): one for i, one in enumerate(lists)}]).verdict
        cpus.sockets_first = True
        assert both_ways(merger, hints)[0] == (aligned if aligned[0].preferred else usual), seed
        moved += aligned[0].preferred and aligned != usual
    assert moved > 5
