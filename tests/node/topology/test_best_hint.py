"""The best of many hints, and the result of a search whose budget has run out."""

from __future__ import annotations

from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import HintSet
from podslice.node.topology.needs import Need, pick_enough

ONE_EACH = Need(dict.fromkeys(range(4), 1), 2)
NODES = (0, 1, 2, 3)


def best(hints: HintSet, within: int = 0) -> Hint | None:
    found = hints.best(within)
    return None if found is None else found.hint


def test_a_single_node_is_better_than_two() -> None:
    """Fewer nodes win, and of single nodes the lowest."""
    assert best(HintSet(NODES, 1, 0b1100, open_nodes=0b0011, needs=(ONE_EACH,))) == Hint(0b0100, True)


def test_of_sets_of_one_size_the_lowest_wins() -> None:
    """A group in use and two free nodes are equally many: the lower mask wins, whichever kind it is of."""
    rule = {"open_nodes": 0b0011, "needs": (ONE_EACH,)}
    assert best(HintSet(NODES, 2, 0, multis=(0b1100,), **rule)) == Hint(0b0011, True)
    rule = {"open_nodes": 0b1100, "needs": (ONE_EACH,)}
    assert best(HintSet(NODES, 2, 0, multis=(0b0011,), **rule)) == Hint(0b0011, True)


def test_the_best_that_contains_a_set() -> None:
    """Only hints that contain all of the given nodes count."""
    hints = HintSet(NODES, 2, 0b0001, multis=(0b1100,))
    assert best(hints, 0b0100) == Hint(0b1100, True)
    assert best(hints, 0b0110) is None


def test_enough_nodes_are_taken_from_below() -> None:
    """A search that must end adds nodes by what they supply; of equal ones the lower first."""
    assert pick_enough(0b1111, [ONE_EACH]) == 0b0011
    assert pick_enough(0b1111, [Need({0: 1, 1: 1, 2: 3, 3: 1}, 4)]) == 0b0101
    assert pick_enough(0b0101, [Need(dict.fromkeys(range(4), 1), 3)]) == 0b0101
