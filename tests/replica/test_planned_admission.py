"""A plan is used where it is free and no worse than the node's own choice, and never otherwise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import Node
from podslice.node.decide import decide
from podslice.node.holding import Holding, digest, holding_of
from podslice.replica.events import PodAdmitted
from podslice.replica.journal import Journal
from podslice.replica.planned_admission import admit_as_planned
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.values.cpuset import parse_bits
from tests.conftest import make_node, make_pod
from tests.properties.test_node import NodeMachine
from tests.replica.lives import VERSION, Life


def planned(node: Node, uid: str, cpus: str = "2") -> Holding:
    """Return the holding that a pod would get here."""
    return holding_of(decide(node.rules, node.state, make_pod(uid, ("c", cpus))).state, uid)


def with_cpus(plan: Holding, cpus: str) -> Holding:
    (only,) = plan.containers
    return replace(plan, containers=(replace(only, cpus=parse_bits(cpus)),))


def test_two_pods_in_the_other_order_get_what_was_planned() -> None:
    """Pods that start in another order than they were planned in get their own plans, not each other's."""
    model, node = make_node(), make_node()
    plans = {}
    for uid in ("p1", "p2"):
        plans[uid] = planned(model, uid)
        model.admit(make_pod(uid, ("c", "2")))
    for uid in ("p2", "p1"):
        admit_as_planned(node, make_pod(uid, ("c", "2")), plans[uid])
    assert {uid: holding_of(node.state, uid) for uid in plans} == plans
    assert digest(node.state) == digest(model.state)


def test_the_answer_names_what_the_pod_was_given() -> None:
    """The decision about a pod that was moved to its plan says the planned CPUs; where it was moved from is free."""
    node = make_node()
    before = node.shared_cpus
    plan = with_cpus(planned(node, "p"), "10,11")
    answer = admit_as_planned(node, make_pod("p", ("c", "2")), plan)
    assert answer.moved
    assert str(answer.decision.containers[0].cpus) == "10-11"
    assert node.shared_cpus == before - answer.decision.containers[0].cpus
    node.remove("p")
    assert node.shared_cpus == before


@pytest.mark.parametrize(
    ("cpus", "why"),
    [
        ("0,1", "reserved"),
        ("6,7,8", "more CPUs"),
        ("6", "fewer CPUs"),
        ("15,16", "on two NUMA nodes"),
        ("7,8", "two halves of cores in place of a core"),
        ("40,41", "not on this machine"),
        ("4,5", "somebody else's"),
    ],
)
def test_a_plan_that_breaks_a_promise_is_declined(cpus: str, why: str) -> None:
    """A plan is not used where it is not free, or worse than what the node would give."""
    node = make_node()
    other = with_cpus(planned(node, "other"), "4,5")
    assert admit_as_planned(node, make_pod("other", ("c", "2")), other).moved
    free = planned(node, "p")
    answer = admit_as_planned(node, make_pod("p", ("c", "2")), with_cpus(planned(node, "p"), cpus))
    assert not answer.moved, why
    assert holding_of(node.state, "p") == free


def test_a_refused_pod_stays_refused() -> None:
    """No plan gives a pod what the node has not."""
    node = make_node()
    plan = planned(node, "p")
    answer = admit_as_planned(node, make_pod("p", ("c", "64")), plan)
    assert not answer.decision.admitted
    assert node.pods == ()


class _Ledger(NodeMachine):
    """The invariants of random nodes, for a node of another making."""

    def __init__(self, node: Node) -> None:
        self.node, self.machine = node, node.machine
        self.strict = "strict-cpu-reservation" in node.rules.config.cpu_manager_policy_options


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_random_plans_keep_every_invariant_and_the_replica_follows(seed: int) -> None:
    """Plans of another history of the same node: what is honoured keeps the ledgers, and replicas come to the same."""
    life, rng = Life(seed), random.Random(seed)
    if not life.node.rules.cpu.static:
        return
    other = Node.of(life.node.rules, life.node.state)
    replica = Replica(Rulebook(), {VERSION})
    for _ in range(12):
        life.happen()
    node = Node.of(life.node.rules, life.node.state)
    journal = Journal(node.rules, node.state, epoch=1, version=VERSION)
    replica.apply(journal.whole_state())
    moved = 0
    for number in range(8):
        pod = make_pod(f"n{number}", ("c", rng.choice(["1", "2", "3"])), ("d", rng.choice(["1", "500m"])))
        elsewhere = other.admit(pod)
        if rng.random() < 0.4 and elsewhere.admitted:
            other.remove(pod.metadata.uid)
        before = node.state
        answer = admit_as_planned(node, pod, holding_of(other.state, pod.metadata.uid))
        if not answer.decision.admitted:
            node.state = before
            continue
        moved += answer.moved
        fate = "honoured" if answer.moved else "declined"
        applied = replica.apply(journal.record_admission(node.rules, before, node.state, pod, plan=fate))
        assert applied.outcome in ("equal", "adopted"), applied.why
        assert replica.digest == digest(node.state)
        _Ledger(node).ledger_balance()
        _Ledger(node).memory_is_booked_once()


def test_a_replica_follows_a_plan_that_was_used() -> None:
    """The event says that the plan was used, and the replica uses it too."""
    node, replica = make_node(), Replica(Rulebook(), {VERSION})
    journal = Journal(node.rules, node.state, epoch=1, version=VERSION)
    replica.apply(journal.whole_state())
    plan, before, pod = with_cpus(planned(node, "p"), "10,11"), node.state, make_pod("p", ("c", "2"))
    assert admit_as_planned(node, pod, plan).moved
    event = journal.record_admission(node.rules, before, node.state, pod, plan="honoured")
    assert isinstance(event.event, PodAdmitted)
    assert replica.apply(event).outcome == "equal"
    another = Replica(Rulebook(), {VERSION})
    another.apply(Journal(node.rules, before, epoch=1, version=VERSION).whole_state())
    assert another.apply(replace(event, event=replace(event.event, plan="declined"))).outcome == "mismatch"
