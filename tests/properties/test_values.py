"""Decisions as functions of values say what nodes do, and change nothing that went in (`node.decide`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import KubeletConfig, Node, NodeState, Pod
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.decide import decide, release, resize, restart, shape_of
from podslice.node.holding import Digester, digest, holding_of
from podslice.values.cpuset import ids_of, lowest_bits
from podslice.values.errors import InputError, UpstreamDefectError
from tests.conftest import make_pod
from tests.properties.test_node import GPU, with_gpus

MACHINE = from_synthetic("pack:2 numa:2(memory=20GiB) l3:1 core:3 pu:2(indexes=pu)")
PROFILES = ["podslice", "kubelet-1.36"]
CPUS = st.sampled_from([None, "500m", "1", "2", "4", "11"])
WISHES = st.tuples(
    st.lists(CPUS, min_size=1, max_size=2),
    st.lists(st.tuples(CPUS, st.booleans()), max_size=2),
    st.sampled_from([None, "2", "4"]),
    st.lists(st.integers(0, 2), max_size=3),
)
Wish = tuple[list[str | None], list[tuple[str | None, bool]], str | None, list[int]]
STEPS = st.lists(st.tuples(WISHES, st.integers(0, 3)), max_size=6)
"""Pods that come, and after each of them the place of the pod that leaves, if there is one."""
Steps = list[tuple[Wish, int]]
KINDS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["container", "pod"]),
        "policy": st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        "managed": st.booleans(),
    }
)
Kind = dict[str, Any]


def node_of(profile: str, kind: Kind) -> Node:
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy=kind["policy"],
        topology_manager_scope=kind["scope"],
        reserved_system_cpus="0-1",
        eviction_hard={},
        memory_manager_policy="Static",
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        feature_gates={"PodLevelResourceManagers": kind["managed"]},
    )
    return Node(MACHINE, config, profile=profile, devices=inventory_from_data([{"resource": GPU, "count": 4}]))


def pod_of(uid: str, wish: Wish, name: Callable[[str], str] = str) -> Pod:
    apps, init, budget, gpus = wish
    pod = make_pod(
        uid,
        *((name(f"c{i}"), cpu) for i, cpu in enumerate(apps)),
        init=tuple((name(f"i{i}"), cpu, sidecar) for i, (cpu, sidecar) in enumerate(init)),
        budget=budget,
    )
    return with_gpus(pod, gpus)


def live(node: Node, steps: Steps, name: Callable[[str], str] = str) -> list[tuple[bool, str, str]]:
    """A node's life; what became of every pod."""
    answers = []
    for number, (wish, leaves) in enumerate(steps):
        try:
            decision = node.admit(pod_of(name(f"p{number}"), wish, name))
            answers.append((decision.admitted, decision.reason, decision.message))
        except UpstreamDefectError as defect:
            answers.append((False, "", defect.name))
        if leaves < len(node.pods):
            node.remove(node.pods[leaves])
    return answers


def text(state: NodeState) -> str:
    """All a state says."""
    return repr(msgspec.structs.asdict(state))


def settled(state: NodeState) -> NodeState:
    """The state without what init containers of the last pod that came leave to that pod."""
    return replace(state, cpu=replace(state.cpu, reusable={}), device=replace(state.device, reusable={}))


@pytest.mark.parametrize("profile", PROFILES)
@given(steps=STEPS, wish=WISHES, kind=KINDS)
@settings(max_examples=60)
@pytest.mark.slow
def test_a_decision_on_a_value_is_that_of_the_node(profile: str, steps: Steps, wish: Wish, kind: Kind) -> None:
    """After any history: the same answer and the same next state, and the state that was asked is what it was."""
    node = node_of(profile, kind)
    live(node, steps)
    rules, state, pod = node.rules, node.state, pod_of("new", wish)
    before = text(state)
    try:
        decision = node.admit(pod)
    except UpstreamDefectError as defect:
        with pytest.raises(UpstreamDefectError, match=defect.name):
            decide(rules, state, pod)
        return
    for asked in (pod, shape_of(rules, pod)):
        decided = decide(rules, state, asked)
        assert (decided.refusal is None) == decision.admitted
        if decided.refusal is not None:
            assert (decided.refusal.reason, decided.refusal.message) == (decision.reason, decision.message)
        assert decided.state == node.state
        assert hash(decided.state) == hash(node.state)
    assert text(state) == before
    if not decision.admitted and profile == "podslice":
        assert node.state == state


@pytest.mark.parametrize("profile", PROFILES)
@given(steps=STEPS, kind=KINDS)
@settings(max_examples=60)
def test_a_release_of_a_value_is_that_of_the_node(profile: str, steps: Steps, kind: Kind) -> None:
    """Every pod of the node: released from the value, removed from the node, or named by what it has."""
    node = node_of(profile, kind)
    live(node, steps)
    rules, state = node.rules, node.state
    before = text(state)
    for uid in node.pods:
        other = Node.of(rules, state)
        assert other.remove(uid)
        assert release(rules, state, uid) == other.state
        by_holding = release(rules, state, holding_of(state, uid))
        assert len(by_holding.pods) == len(state.pods) - 1
        if profile == "podslice":
            assert digest(by_holding).allocation == digest(other.state).allocation
    assert release(rules, state, "nobody") is state
    assert text(state) == before


@given(steps=STEPS, wish=WISHES, kind=KINDS)
@settings(max_examples=100)
@pytest.mark.slow
def test_a_release_undoes_a_decision(steps: Steps, wish: Wish, kind: Kind) -> None:
    """A pod that comes and goes again leaves the node as it was."""
    node = node_of("podslice", kind)
    live(node, steps)
    rules, state = node.rules, node.state
    decided = decide(rules, state, pod_of("new", wish))
    released = release(rules, decided.state, "new")
    assert settled(released) == settled(state)
    assert digest(released) == digest(state)
    if decided.refusal is None:
        assert digest(decided.state).named != digest(state).named


def _called_back(said: object) -> object:
    """A message with the first names of what was called otherwise."""
    if not isinstance(said, str):
        return said
    return re.sub(r"\b(\d)-other-(\w)\b", lambda found: f"{found[2]}{9 - int(found[1])}", said)


@pytest.mark.parametrize("profile", PROFILES)
@given(steps=STEPS, kind=KINDS)
@settings(max_examples=60)
@pytest.mark.slow
def test_other_names_change_names_only(profile: str, steps: Steps, kind: Kind) -> None:
    """Pods and containers that are called otherwise, in another order of names, get the same."""
    plain, renamed = node_of(profile, kind), node_of(profile, kind)
    answers = live(plain, steps)
    others = live(renamed, steps, lambda name: f"{9 - int(name[1:])}-other-{name[0]}")
    assert [tuple(map(_called_back, one)) for one in others] == answers
    assert digest(renamed.state).allocation == digest(plain.state).allocation
    if plain.pods:
        assert digest(renamed.state).named != digest(plain.state).named


@pytest.mark.parametrize("profile", PROFILES)
@given(steps=STEPS, kind=KINDS)
@settings(max_examples=40)
def test_a_digester_remembers_and_agrees(profile: str, steps: Steps, kind: Kind) -> None:
    """Digests of a life, one after the other, are those of each state by itself."""
    node, digester = node_of(profile, kind), Digester()
    for number, (wish, leaves) in enumerate(steps):
        live(node, [(wish, leaves)], lambda name, number=number: f"{name}-{number}")  # type: ignore[misc]
        assert digester.of(node.state) == digest(node.state)


@given(steps=STEPS, kind=KINDS)
@settings(max_examples=40)
@pytest.mark.slow
def test_a_restart_keeps_what_pods_have(steps: Steps, kind: Kind) -> None:
    """A kubelet that restarts on the files of a state refuses nobody, and all have what they had."""
    node = node_of("podslice", kind)
    live(node, steps)
    rules, state = node.rules, node.state
    before, files = text(state), dict(node.files)
    again = restart(rules, state)
    assert [pod.refusal for pod in again.pods] == [None] * len(state.pods)
    assert digest(again.state) == digest(state)
    gone = list(state.pods)[:1]
    assert list(restart(rules, state, gone=gone).state.pods) == list(state.pods)[1:]
    assert (text(state), dict(node.files)) == (before, files)


@pytest.mark.parametrize("profile", PROFILES)
@given(steps=STEPS, wish=WISHES, kind=KINDS)
@settings(max_examples=40)
def test_a_resize_of_a_value_is_that_of_the_node(profile: str, steps: Steps, wish: Wish, kind: Kind) -> None:
    """The same answer and the same next state, whatever is asked of a running pod."""
    node = node_of(profile, kind)
    live(node, steps)
    if not node.pods:
        return
    uid = node.pods[0]
    rules, state, pod = node.rules, node.state, pod_of(uid, wish)
    before = text(state)
    try:
        decision = node.resize(pod)
    except (InputError, UpstreamDefectError) as error:
        with pytest.raises(type(error)):
            resize(rules, state, pod)
        return
    assert resize(rules, state, pod) == (node.state, decision)
    assert text(state) == before


def test_a_node_goes_back() -> None:
    """A state that was kept can be put back, and what happens on copies happens to nobody else."""
    node = node_of("podslice", {"scope": "pod", "policy": "restricted", "managed": False})
    assert node.admit(make_pod("a", ("c", "2"))).admitted
    kept, files = node.state, dict(node.files)
    other = node.copy()
    assert other.remove("a")
    assert node.state == kept
    assert node.remove("a")
    node.state = kept
    assert node.pods == ("a",)
    assert dict(node.files) == files
    assert Node.of(node.rules, kept).view == node.view


def test_states_of_a_start_are_equal_and_rules_are_shared() -> None:
    """Two starts come to equal states; a copy has the very rules."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    first, again = Node(MACHINE, config), Node(MACHINE, config)
    rules, state = first.rules, first.state
    assert (state, hash(state)) == (again.state, hash(again.state))
    node = Node.of(rules, state)
    assert node.copy().rules is rules


PRINT_DIGEST = """
from tests.properties.test_values import digest, live, node_of
node = node_of("podslice", {"scope": "container", "policy": "restricted", "managed": True})
live(node, [((["2", None], [("1", True)], "4", [1]), 3), ((["4"], [], None, [0, 2]), 3)])
print(*digest(node.state))
"""


@pytest.mark.process
def test_digests_are_the_same_everywhere() -> None:
    """Whatever Python hashes names to, the digests of a known state are these."""
    for seed in ("0", "1"):
        shown = subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        assert shown.split() == ["f8b587fbb920cf9bd2e399bd441d74cd", "b7195f50910a3d6304c225ffe3f68d5b"]


@given(st.integers(0, (1 << 70) - 1), st.integers(0, 80))
def test_the_lowest_of_a_set(bits: int, count: int) -> None:
    """As many as are asked for, or all."""
    assert ids_of(lowest_bits(bits, count)) == ids_of(bits)[:count]
