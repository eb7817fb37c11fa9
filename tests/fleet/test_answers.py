"""States without names answer as nodes do, whatever is remembered."""

from __future__ import annotations

import pytest
from tools.judge.values import Counts, lockstep

from podslice import KubeletConfig, Node
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.answers import AnswerMemo, DifferentAnswerError, NodeAnswer, StateNumbers, ValueAnswers
from tests.conftest import make_pod


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_lockstep_with_real_nodes(profile: str) -> None:
    """Drawn nodes, configurations, devices and pods: verdict, reason and whole state are the node's after every step
    (`python -m tools.judge.values` asks as many more as you like)."""
    counts = Counts()
    seed = 1
    while counts.questions < (20_000 if profile == "podslice" else 2_000):
        counts = counts.plus(lockstep(seed, profile=profile))
        seed += 1
    assert counts.refusals > counts.questions // 10
    assert counts.removals > counts.questions // 10


def answers() -> tuple[ValueAnswers, AnswerMemo]:
    node = Node(
        from_synthetic("pack:2 numa:1 core:4 pu:2"),
        KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={}),
    )
    pods = [make_pod("p", ("c", cpus)) for cpus in ("1", "2", "3")]
    computing = ValueAnswers(node.rules, node.state, pods, StateNumbers())
    return computing, AnswerMemo([computing], len(pods), room=16, verify=1)


def test_equal_states_are_one() -> None:
    """A pod that comes and goes leaves the very state that was there; so do two in either order."""
    computing, remembered = answers()
    one = remembered.admit(0, computing.start, 0, 0)
    two = remembered.admit(0, one.state, 1, 1)
    assert one.holding is not None
    assert two.holding is not None
    assert remembered.release(0, remembered.release(0, two.state, two.holding), one.holding) is computing.start
    assert remembered.release(0, remembered.release(0, two.state, one.holding), two.holding) is computing.start


def test_a_wrong_memory_is_found() -> None:
    """An answer that is not what would be computed ends the run when its turn to be verified comes."""
    computing, remembered = answers()
    known = remembered.admit(0, computing.start, 0, 0)
    remembered._young[computing.start.number * 3] = NodeAnswer(computing.start, known.holding)
    with pytest.raises(DifferentAnswerError):
        remembered.admit(0, computing.start, 0, 1)


def test_room_is_bounded() -> None:
    """However many questions, no more answers are kept than there is room for, and a repeated one is remembered."""
    computing, remembered = answers()
    state = computing.start
    for step in range(60):
        answer = remembered.admit(0, state, step % 3, step)
        if answer.holding is None:
            state = computing.start
        else:
            state = answer.state
    assert len(remembered._young) + len(remembered._old) <= 16
    remembered.admit(0, state, 0, 98)
    computed = remembered.computed
    remembered.admit(0, state, 0, 99)
    assert remembered.computed == computed
