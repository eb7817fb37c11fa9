"""A node that goes on under another policy."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace

from podslice import ExclusiveResize, Hotplug, InputError, KubeletConfig, Node, PodslicePolicy, StartError, without_cpus
from podslice.host.boot import Boot
from podslice.host.state.store import NodeStore
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.replica.setup import build_rules, setup_of
from podslice.values.cpuset import format_bits, parse_bits
from tests.node.resize.helpers import guaranteed, pod

MACHINE = from_synthetic("pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)")
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1", topology_manager_policy="restricted")
NONE = PodslicePolicy()
ELASTIC = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
ALLOWING = PodslicePolicy(resize=ExclusiveResize(exclusive=True, below_baseline="allow"))
FINAL = PodslicePolicy(resize=ExclusiveResize(exclusive=True, misfit="infeasible"))
FOLLOWING = PodslicePolicy(resize=ExclusiveResize(exclusive=True), hotplug=Hotplug(lost_cpus="replace"))


def node(policy: PodslicePolicy) -> Node:
    """Container p has 2-5, another one 6-9."""
    made = Node(MACHINE, CONFIG, policy=policy)
    assert made.admit(pod(guaranteed("4", "1Gi"))).admitted
    assert made.admit(pod(guaranteed("4", "1Gi"), name="other")).admitted
    return made


def owned(made: Node) -> str:
    return format_bits(made.state.cpu.assignment("uid-p", "c0") or 0)


def test_new_rules_for_new_decisions() -> None:
    """A new policy decides from then on; holdings and the files stay as they are."""
    made = node(NONE)
    state, files = made.state, dict(made.files)
    assert made.resize(pod(guaranteed("6", "1Gi"))).outcome == "Infeasible"
    made.state = state
    made.change_policy(ALLOWING)
    assert (made.state, dict(made.files)) == (state, files)
    assert made.rules.policy == ALLOWING
    assert made.resize(pod(guaranteed("6", "1Gi"))).outcome == "Allocated"
    assert owned(made) == "2-5,10-11"
    assert made.resize(pod(guaranteed("2", "1Gi"))).outcome == "Allocated"
    made.change_policy(NONE)
    assert owned(made) == "2-3"
    assert made.resize(pod(guaranteed("4", "1Gi"))).outcome == "Infeasible"


def test_a_resize_that_waits_is_tried_by_the_new_rules() -> None:
    """A resize that was deferred is refused for good by the next try under a policy that says so."""
    made = node(ELASTIC)
    assert made.admit(pod(guaranteed("6", "1Gi"), name="third")).admitted
    assert made.resize(pod(guaranteed("12", "1Gi"))).outcome == "Deferred"
    made.change_policy(FINAL)
    assert made.pending_resizes == ["uid-p"]
    assert [one.outcome for one in made.retry_resizes()] == ["Infeasible"]


@pytest.mark.parametrize(("before", "after"), list(permutations((NONE, ELASTIC, ALLOWING, FINAL, FOLLOWING), 2)))
def test_as_after_a_restart(before: PodslicePolicy, after: PodslicePolicy) -> None:
    """A node whose policy changes decides as one that starts with the new policy on its files, and as a replica that
    gets the new setup."""
    made = node(before)
    made.resize(pod(guaranteed("6", "1Gi")))
    first = made.rules
    made.change_policy(after)
    again = Node(MACHINE, CONFIG, policy=after, files=made.files)
    again.readmit(one.spec for one in made.view.pods.values())
    replica = Node.of(build_rules(setup_of(made.rules, first)), made.state)
    for cpus in (6, 2, 7, 14, 20, 30):
        state = made.state
        answers = {
            (answer.outcome, answer.message, owned(one))
            for one in (made, again, replica)
            for answer in [one.resize(pod(guaranteed(str(cpus), "1Gi")))]
        }
        assert len(answers) == 1, (cpus, answers)
        assert made.state.cpu.default & (made.state.cpu.assigned()) == 0
        if cpus == 30:
            assert made.state.cpu == state.cpu


def test_nothing_changes_for_a_policy_that_does_not_go() -> None:
    """With an owned CPU offline the node would not start without `hotplug`, so it goes on with it; a profile that
    predicts takes no policy."""
    made = node(replace(FOLLOWING, hotplug=Hotplug()))
    made.change_machine(without_cpus(MACHINE, parse_bits("5")))
    state, rules = made.state, made.rules
    with pytest.raises(StartError, match="current set of available CPUs"):
        made.change_policy(ELASTIC)
    assert (made.state, made.rules) == (state, rules)
    made.change_policy(replace(FOLLOWING, hotplug=Hotplug(lost_cpus="drain")))
    made.change_machine(MACHINE)
    made.change_policy(ELASTIC)
    predicting = Node(MACHINE, CONFIG, profile="kubelet-1.36")
    with pytest.raises(InputError, match="a kubelet has no such policy"):
        predicting.change_policy(ELASTIC)


def test_the_affinity_holds_on_a_changed_machine() -> None:
    """On a machine that has changed, growth stays within the NUMA nodes of its affinity as before."""
    made = node(FOLLOWING)
    made.change_machine(without_cpus(MACHINE, parse_bits("31")))
    assert made.rules.cpu.resizer is not None
    assert made.rules.cpu.resizer.aligned


def test_a_store_remembers_by_the_new_policy(tmp_path: Path) -> None:
    """With `hotplug` from now on, the state directory says in which boot and on which machine it was written."""
    store = NodeStore(tmp_path, MACHINE, CONFIG, policy=ELASTIC, boot=Boot("one", None))
    store.admit(pod(guaranteed("4", "1Gi")))
    assert not (tmp_path / POLICY_STATE_FILE).exists()
    store.change_policy(replace(FOLLOWING, hotplug=Hotplug(drift_tolerance="auto")))
    assert b"one" in (tmp_path / POLICY_STATE_FILE).read_bytes()
    assert store.node.rules.policy.hotplug == Hotplug(drift_tolerance="off")
