"""The folded merge against the definition: every combination of one hint per list."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.config.policy_options import TopologyManagerOptions, check_machine, parse_topology_options
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.merge import Merger
from podslice.values.errors import StartError, UpstreamDefectError

POLICIES = ("best-effort", "restricted", "single-numa-node")


def brute_force(policy: str, nodes: int, distances: list[list[int]], closest: bool, lists: list[list[Hint]]) -> Hint:
    """Apply the rules (cpu-topology 9.3 to 9.5) word for word: all choices, all merged hints, the total order."""
    everything = (1 << nodes) - 1
    if policy == "single-numa-node":
        lists = [[h for h in hints if h.preferred and (h.mask is None or h.mask.bit_count() == 1)] for hints in lists]
    widest = max(
        (min((h.mask.bit_count() for h in hints if h.mask is not None), default=0) for hints in lists), default=0
    )
    merged = set()
    for choice in product(*lists):
        masks = {h.mask for h in choice if h.mask is not None}
        mask = everything
        for one in masks:
            mask &= one
        if mask:
            merged.add(Hint(mask, all(h.preferred for h in choice) and len(masks) <= 1))

    def fit(mask: int) -> tuple[int, int]:
        members = [i for i in range(nodes) if mask >> i & 1]
        far = sum(distances[i][j] for i in members for j in members)
        return (far if closest and policy != "single-numa-node" else 0, mask)

    def rank(hint: Hint) -> tuple[object, ...]:
        assert hint.mask is not None
        size = hint.mask.bit_count()
        if hint.preferred:
            return (0, size, 0, *fit(hint.mask))
        place = 0 if size == widest else 1 if size < widest else 2
        return (1, place, abs(size - widest), *fit(hint.mask))

    best = min(merged, key=rank, default=Hint(everything, False))
    if policy == "single-numa-node" and best.mask == everything:
        return Hint(None, best.preferred)
    return best


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, list[list[int]], list[list[Hint]]]:
    nodes = draw(st.integers(1, 4))
    distance = st.integers(10, 13)
    distances = [[draw(distance) for _ in range(nodes)] for _ in range(nodes)]
    mask = st.one_of(st.none(), st.integers(1, (1 << nodes) - 1))
    hints = st.lists(st.builds(Hint, mask, st.booleans()), min_size=1, max_size=6)
    return nodes, distances, draw(st.lists(hints, max_size=4))


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(problem=problems(), policy=st.sampled_from(POLICIES), closest=st.booleans())
def test_equals_the_cross_product(
    problem: tuple[int, list[list[int]], list[list[Hint]]], policy: str, closest: bool
) -> None:
    """The merge finds what trying every combination finds."""
    nodes, distances, lists = problem
    merger = Merger(policy, [(i, distances[i]) for i in range(nodes)], closest=closest)
    providers: list[ProviderHints] = [{"resource": hints} for hints in lists]
    found, admitted = merger.merge(providers).verdict
    assert found == brute_force(policy, nodes, distances, closest, lists)
    assert admitted == (policy == "best-effort" or found.preferred)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_pair_of_lists(nodes: int, policy: str) -> None:
    """On one and two NUMA nodes all pairs of lists of up to two hints agree with the cross product."""
    hints = [Hint(mask, flag) for mask in [None, *range(1, 1 << nodes)] for flag in (True, False)]
    lists = [[one] for one in hints] + [[one, other] for one in hints for other in hints if one != other]
    distances = [[10 if i == j else 20 for j in range(nodes)] for i in range(nodes)]
    merger = Merger(policy, [(i, distances[i]) for i in range(nodes)])
    for first in lists:
        for second in lists:
            found = merger.merge([{"a": first}, {"b": second}]).hint
            assert found == brute_force(policy, nodes, distances, False, [first, second])


def test_many_providers_cost_no_product() -> None:
    """Eight NUMA nodes and ten resources, 255**10 combinations upstream, merge at once."""
    hints = [Hint(mask, mask.bit_count() == 1) for mask in range(1, 256)]
    merger = Merger("restricted", [(i, None) for i in range(8)])
    assert merger.merge([{f"r{i}": hints for i in range(10)}]).verdict == (Hint(1, True), True)
    others = [Hint(mask, False) for mask in range(1, 256)]
    assert merger.merge([{f"r{i}": others for i in range(10)}]).verdict == (Hint(1, False), False)


def test_gaps_in_node_ids() -> None:
    """Distance lists are read by position; indexing by node id, as upstream does, is its named defect."""
    numa = [(0, [10, 30, 20]), (4, [30, 10, 20]), (8, [20, 20, 10])]
    hints: list[ProviderHints] = [{"cpu": [Hint(0b1_0001, True), Hint(0b1_0000_0001, True)]}]
    assert Merger("restricted", numa, closest=True).merge(hints).hint == Hint(0b1_0000_0001, True)
    with pytest.raises(UpstreamDefectError, match="distances_by_node_id"):
        Merger("restricted", numa, closest=True, distances_by_id=True).merge(hints)


def outcome(merger: Merger, providers: list[ProviderHints]) -> tuple[Hint, bool] | str:
    """Return the result of a merge, or the defect it meets."""
    try:
        return merger.merge(providers).verdict
    except UpstreamDefectError as defect:
        return defect.name


@given(problem=problems(), policy=st.sampled_from(["best-effort", "restricted"]), gap=st.integers(0, 2))
@pytest.mark.slow
def test_walk_equals_the_cross_product(
    problem: tuple[int, list[list[int]], list[list[Hint]]], policy: str, gap: int
) -> None:
    """With ids beyond the distance lists, a merge that compares no two sets of one size out of reach ends as every
    other one; otherwise it is the named defect."""
    nodes, distances, lists = problem
    lists = [[Hint(hint.mask and hint.mask << gap, hint.preferred) for hint in hints] for hints in lists]
    numa = [(i + gap, distances[i]) for i in range(nodes)]
    providers: list[ProviderHints] = [{"resource": hints} for hints in lists]
    near = Merger(policy, numa, closest=True).merge(providers).verdict
    found = outcome(Merger(policy, numa, closest=True, distances_by_id=True), providers)
    if isinstance(found, str):
        assert found == "distances_by_node_id"
        assert gap
    else:
        assert found[0].mask is not None
        assert near[0].mask is not None
        assert found[1] == near[1]
        assert found[0].mask.bit_count() == near[0].mask.bit_count()


def test_nodes_that_are_not_there() -> None:
    """Memory on a NUMA node that the machine lacks is on no node; nodes beside it count."""
    for policy in ("best-effort", "restricted"):
        merger = Merger(policy, [(0, None), (1, None)])
        assert merger.merge([{"memory": HintSet.only(0b100)}]).verdict == (Hint(0b11, False), policy == "best-effort")
        assert merger.merge([{"memory": HintSet.only(0b110)}]).verdict == (Hint(0b10, True), True)


def test_crash_depends_on_the_comparisons() -> None:
    """Two sets of one size are compared by distance although a larger one wins; a single set never is."""
    numa = [(1, [10, 20]), (4, [11, 10])]
    merger = Merger("best-effort", numa, closest=True, distances_by_id=True)
    both, low, high = Hint(0b1_0010, False), Hint(0b10, True), Hint(0b1_0000, True)
    with pytest.raises(UpstreamDefectError, match="distances_by_node_id"):
        merger.merge([{"a": [both]}, {"b": [low, high, both]}])
    assert merger.merge([{"a": [both]}, {"b": [both, both]}]).verdict == (both, True)
    assert merger.merge([{"a": [both]}, {"b": [low, both]}]).verdict == (both, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"x": "1"}, 'unknown Topology Manager Policy option: "x"', id="unknown"),
        pytest.param(
            {"prefer-closest-numa-nodes": "maybe"},
            'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "maybe": invalid syntax',
            id="boolean",
        ),
        pytest.param(
            {"max-allowable-numa-nodes": "many"},
            'unable to convert policy option to integer "max-allowable-numa-nodes": '
            'strconv.Atoi: parsing "many": invalid syntax',
            id="integer",
        ),
        pytest.param(
            {"max-allowable-numa-nodes": "7"},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
            id="small",
        ),
    ],
)
def test_option_errors(options: dict[str, str], message: str) -> None:
    """Wrong Topology Manager options are refused with upstream's words."""
    with pytest.raises(StartError) as error:
        parse_topology_options(options)
    assert error.value.message == message


def test_numa_limit_only_where_asked() -> None:
    """The limit of 8 NUMA nodes holds in profile kubelet-1.36 and not in podslice."""
    machine = from_synthetic("pack:10 numa:1 core:2 pu:1")
    check_machine(machine, "restricted", "pod", TopologyManagerOptions(), limited=False)
    with pytest.raises(StartError, match="unsupported on machines with more than 8 NUMA Nodes"):
        check_machine(machine, "restricted", "pod", TopologyManagerOptions(), limited=True)


def test_width_ties_go_to_the_narrower_set() -> None:
    """The narrower set wins if no set is preferred by all and two widths are equally near to the widest of the
    narrowest hints."""
    a = [Hint(0b0011, False), Hint(0b1110, False)]
    b = [Hint(0b1001, False), Hint(0b1110, False)]
    merger = Merger("best-effort", [(node, None) for node in range(4)])
    assert merger.merge([{"x": a}, {"y": b}]).verdict == (Hint(0b0001, False), True)
