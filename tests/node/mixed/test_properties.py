"""Properties of mixed containers, in lives of nodes with all kinds of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import KubeletConfig, Node
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.config.policy import ClassMatch, CPUClass, MixedCPUs, PodslicePolicy
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import union
from podslice.values.errors import InputError
from tests.node.mixed.helpers import ELASTIC, TWO_NODES, node, pod

CLASSES = (CPUClass("low", ClassMatch(cpus="0-7,16-19")), CPUClass("high", ClassMatch(cpus="8-15"), shared=False))
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"topology_manager_policy": "restricted"},
    {"cpu_manager_policy_options": {"full-pcpus-only": "true"}},
    {"cpu_manager_policy_options": {"strict-cpu-reservation": "true"}},
    {
        "topology_manager_scope": "pod",
        "feature_gates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
    },
)
mixed_rules = st.builds(
    MixedCPUs, pool=st.sampled_from(["default", "0-1"]), near=st.sampled_from(["any", "numa"]), free=st.integers(0, 2)
)
policies = st.sampled_from([PodslicePolicy(), ELASTIC, PodslicePolicy(cpu_classes=CLASSES)])


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    """Mixed, exclusive and sharing containers, now and then in a pod with CPUs of its own."""
    cpus = draw(
        st.lists(st.sampled_from(["", "1", "2", "500m", "1500m", "2250m", "3", "4500m"]), min_size=1, max_size=3)
    )
    asks = draw(st.sampled_from(["", "all", "c0=all", "c0=1", "c0=2,c1=1", "2"]))
    init = draw(st.sampled_from([(), (("1500m", True),), (("2500m", False),), (("2", False),)]))
    budget = draw(st.sampled_from(["", "", "6", "9"]))
    return pod(name, *cpus, asks=asks, budget=budget, init=init)


def _containers(of: Node) -> Iterator[tuple[AdmissionPod, AdmissionContainer]]:
    for active in of.view.pods.values():
        for container in active.containers:
            yield active, container


def check(one: Node) -> None:
    """Every promise, on the node as it is now."""
    view = one.view
    for active, container in _containers(one):
        own = view.assignment(active.uid, container.name) or 0
        if not container.mixed:
            assert view.shared_part(active.uid, container.name) == 0
            continue
        assert own.bit_count() == container.exclusive_cpus
        milli = (container.spec.resources.requests or {})["cpu"].milli_value()
        assert container.exclusive_cpus * 1000 + (container.remainder or 0) == milli
        shared = view.shared_part(active.uid, container.name)
        assert shared
        assert shared & own == 0
        assert view.affinity(active.uid, container.name) == own | shared
        pod_cpus = view.pod_cpus.get(active.uid)
        if pod_cpus is not None:
            assert shared & ~pod_cpus == 0
        elif view.mixed_pool is not None and view.mixed_pool.cpus is None:
            assert shared & ~_shared_by_others(one, active, container) == 0
        if not container.plain_init:
            _is_alone(one, active, container, own)


def _is_alone(one: Node, active: AdmissionPod, container: AdmissionContainer, own: int) -> None:
    """No other container runs on its own CPUs, but for init containers that have ended."""
    for other, beside in _containers(one):
        if (other.uid, beside.name) != (active.uid, container.name) and not beside.plain_init:
            assert one.view.affinity(other.uid, beside.name) & own == 0


def _shared_by_others(one: Node, active: AdmissionPod, container: AdmissionContainer) -> int:
    classes = one.view.cpu_classes
    if classes is None:
        return one.view.shared
    return classes.shared(classes.wish(active, container, exclusive=False), one.view.shared)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data(), rules=mixed_rules, policy=policies, given_settings=st.sampled_from(SETTINGS))
def test_lives(data: st.DataObject, rules: MixedCPUs, policy: PodslicePolicy, given_settings: dict[str, Any]) -> None:
    """Exclusive parts have one owner, shared parts are what sharers of the same classes have, and the accounts never
    change with the pool; over admissions, removals, resizes and restarts. A kubelet starts on the files."""
    one = node(rules, policy=policy, **given_settings)
    alive: dict[str, Pod] = {}
    for step in range(data.draw(st.integers(2, 7))):
        what = data.draw(st.sampled_from(["admit", "admit", "remove", "resize", "restart"]))
        if what == "admit":
            asked = data.draw(pods(f"p{step}"))
            if one.admit(asked).admitted:
                alive[asked.metadata.uid] = asked
        elif what == "remove" and alive:
            uid = data.draw(st.sampled_from(sorted(alive)))
            one.remove(uid)
            del alive[uid]
        elif what == "resize" and alive:
            _resize(data, one, alive)
        elif what == "restart":
            before = {uid: dict(named) for uid, named in one.view.owners.items()}
            again = node(rules, policy=policy, files=one.files, **given_settings)
            assert not again.readmit([active.spec for active in one.view.pods.values()])
            assert {uid: dict(named) for uid, named in again.view.owners.items()} == before
            one = again
        check(one)
    _kubelet_starts(one, given_settings)


def _resize(data: st.DataObject, one: Node, alive: dict[str, Pod]) -> None:
    uid = data.draw(st.sampled_from(sorted(alive)))
    had = one.view.pods[uid].spec
    cpu = data.draw(st.sampled_from(["1", "1750m", "3500m", "5500m"]))
    cpus = [str((c.resources.requests or {}).get("cpu", "")) for c in had.spec.containers]
    asks = (had.metadata.annotations or {}).get("podslice.io/mixed-cpus", "")
    if not cpus[0] or had.spec.resources is not None or had.spec.init_containers:
        return
    before = dict(one.view.owners), one.view.shared
    try:
        decision = one.resize(pod(uid, cpu, *cpus[1:], asks=asks))
    except InputError:
        return
    if decision.outcome != "Allocated":
        assert (dict(one.view.owners), one.view.shared) == before


def _kubelet_starts(one: Node, given_settings: dict[str, Any]) -> None:
    fields = {"reserved_system_cpus": "0-1", "topology_manager_policy": "best-effort", **given_settings}
    config = KubeletConfig(cpu_manager_policy="static", **fields)
    kubelet = Node(from_synthetic(TWO_NODES), config, profile="kubelet-1.36", files=one.files)
    assert kubelet.view.shared == one.view.shared
    assert union(cpus for named in kubelet.view.owners.values() for cpus in named.values()) == one.view.assigned


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(whole=st.integers(1, 12), remainder=st.integers(1, 999), others=st.lists(st.integers(1, 6), max_size=4))
def test_ledger_are_those_of_exclusive_cpus(whole: int, remainder: int, others: list[int]) -> None:
    """A mixed container gets the very CPUs that one with only its exclusive part gets beside one with the rest, with
    the same verdict; those after it too."""
    mixed, plain = node(), node()
    verdicts = []
    pods = pod("a", f"{whole * 1000 + remainder}m", asks="all"), pod("a", str(whole), f"{remainder}m")
    for each, asked in zip((mixed, plain), pods, strict=True):
        first = [each.admit(pod(f"o{n}", str(cpus))).admitted for n, cpus in enumerate(others)]
        verdicts.append([*first, each.admit(asked).admitted, each.admit(pod("z", "2")).admitted])
    assert verdicts[0] == verdicts[1]
    assert mixed.view.owners == plain.view.owners
    assert mixed.files["cpu_manager_state"] == plain.files["cpu_manager_state"]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from("0123456789al=,c! -²\x00x"), max_size=12), milli=st.integers(0, 9000))
def test_any_annotation(text: str, milli: int) -> None:
    """Whatever the annotation says, the pod is admitted with a mixed container, or refused with one line of reasons."""
    one = node(MixedCPUs(free=1))
    asked = pod("a", f"{milli}m" if milli else "")
    asked = pod("a", f"{milli}m" if milli else "", asks=text) if text else asked
    decision = one.admit(asked)
    if decision.admitted:
        assert not text or decision.containers[0].isolation == "mixed"
        check(one)
    else:
        assert decision.reason == "InvalidPodsliceAnnotation"
        assert "\n" not in decision.message
