"""Properties of plugins: what any of them can do, and what none of them can."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import KubeletConfig, Node, PodslicePolicy
from podslice.config.policy import OnError, PluginEntry, PluginRules
from podslice.machine.model import Core, cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.cpu.picking.picker import Picker
from podslice.node.plugins.api import CPUMachine
from podslice.node.plugins.builtin import BUILT_IN
from podslice.node.plugins.profile import PluginProfile
from podslice.plugins import AskingPod, Bits, CPUAsk, CPUNode, CPUPlugin, Layer
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import iter_bits, union
from podslice.values.quirks import PODSLICE
from tests.conftest import make_pod
from tests.node.plugins.helpers import Base, config, own

MACHINES = (
    "pack:2 numa:1(memory=64GB) core:4 pu:2(indexes=pu)",
    "pack:2 numa:2(memory=64GB) l3:2 core:2 pu:2(indexes=pu)",
    "pack:1 numa:4(memory=64GB) core:3 pu:1",
)
"""Siblings are neighbours, so that the reserved CPUs 0 and 1 are a whole core; half of one leaves the rest to
containers, as in a kubelet."""
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
COUNTS = st.lists(st.integers(1, 7), min_size=1, max_size=6)
NAMES = sorted(set(BUILT_IN) - {"neighbours", "near-devices"})


class Drawn(Base):
    """A plugin whose answers are drawn: functions of the sets that it is given, and of nothing else."""

    def __init__(self, seed: int, *, filters: bool = True) -> None:
        super().__init__()
        self.seed, self.filters = seed, filters

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        return cpus & ~_mixed(self.seed, 1) if self.filters else cpus

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        return tuple((_mixed(self.seed, salt), 7 * salt - 20) for salt in range(2, 6))

    def select(
        self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
    ) -> Iterable[Bits]:
        ids = list(iter_bits(cpus))
        if ask.whole_cores or not ids:
            return
        for turn in (self.seed, self.seed // 7):
            turned = ids[turn % len(ids) :] + ids[: turn % len(ids)]
            yield union(1 << cpu for cpu in turned[: ask.count])

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        return (candidate * (self.seed | 1)) % 101


def _mixed(seed: int, salt: int) -> Bits:
    return (seed * 2654435761 * salt) >> 3 & seed | seed >> salt


def admit_all(node: Node, counts: list[int]) -> list[Any]:
    """Decisions about pods that come one after the other; every second one leaves again."""
    decisions = []
    for number, count in enumerate(counts):
        decisions.append(node.admit(make_pod(f"p{number}", ("c", str(count)))))
        if number % 3 == 2:
            node.remove(f"p{number - 1}")
    return decisions


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MACHINES), st.sampled_from(POLICIES), COUNTS, st.integers(0, 1 << 20), st.booleans())
def test_picks_are_what_was_asked_for(machine: str, policy: str, counts: list[int], seed: int, whole: bool) -> None:
    """Every pick has exactly as many CPUs as asked for, of those the filter leaves and no owner has, in whole cores
    where only these are given away; refused pods leave nothing."""
    options = {"full-pcpus-only": "true"} if whole else {}
    plugin = Drawn(seed)
    node = own(plugin, machine=machine, topology_manager_policy=policy, cpu_manager_policy_options=options)
    topology = cpu_topology(from_synthetic(machine))
    for number, count in enumerate(counts):
        before = node.state
        decision = node.admit(make_pod(f"p{number}", ("c", str(count))))
        if not decision.admitted:
            assert node.state == before
            continue
        cpus = node.view.owners[f"p{number}"]["c"]
        assert cpus.bit_count() == count
        assert not cpus & ~(before.cpu.default & ~_mixed(seed, 1))
        if whole:
            assert all(core & cpus in (0, core) for core in topology.cores.values())


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(MACHINES), st.sampled_from(POLICIES), COUNTS, st.integers(0, 1 << 20), st.integers(1, 7),
    st.booleans(), st.sampled_from(["container", "pod"]),
)  # fmt: skip
@pytest.mark.slow
def test_only_ties_are_broken(
    machine: str, policy: str, before: list[int], seed: int, count: int, scores: bool, scope: str
) -> None:
    """With filters that leave everything, a decision in a given state has the verdict, the message and the number of
    NUMA nodes that it has without plugins, whatever Select and Score say."""
    settings_ = {"machine": machine, "topology_manager_policy": policy, "topology_manager_scope": scope}
    plain = own(Base(), **settings_)
    admit_all(plain, before)
    node = own(Drawn(seed, filters=False), hint_scores=scores, **settings_)
    node.state = plain.state
    wanted, found = (one.admit(make_pod("new", ("c", str(count)))) for one in (plain, node))
    assert (found.admitted, found.reason, found.message) == (wanted.admitted, wanted.reason, wanted.message)
    if wanted.admitted and policy != "none":
        assert len(found.containers[0].numa_nodes) == len(wanted.containers[0].numa_nodes)
        assert found.containers[0].preferred == wanted.containers[0].preferred


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(MACHINES), st.integers(0, 1 << 16), st.integers(0, 1 << 16), st.integers(1, 6))
def test_hints_are_sound(machine: str, free: Bits, seed: int, count: int) -> None:
    """A set of NUMA nodes is hinted exactly if what the filter leaves of it is enough: all subsets are compared."""
    made = from_synthetic(machine)
    topology = cpu_topology(made)
    free &= topology.all_cpus
    profile = PluginProfile(CPUMachine(made, topology), [(PluginEntry("drawn"), Drawn(seed))])
    node = CPUNode(profile.machine, free=free, default=free, reserved=0)
    ask = CPUAsk(AskingPod("", "", "", {}, {}, "", 0, "", ()), "c", "app", "admit", count)
    left = profile.filter(ask, free, node, lambda *_: None)
    hints = cpu_topology_hints(topology, left, 0, count, align_by_socket=False)
    hinted = set() if hints is None else {hint.mask for hint in hints}
    nodes = list(topology.numa_nodes)
    subsets = [
        union(1 << node for node in some) for size in range(1, len(nodes) + 1) for some in combinations(nodes, size)
    ]
    for mask in subsets:
        enough = (topology.cpus_in_numa_nodes(mask) & free & ~_mixed(seed, 1)).bit_count() >= count
        assert (mask in hinted) == enough


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(NAMES), unique=True, min_size=1), st.sampled_from(MACHINES), COUNTS, st.booleans())
def test_the_same_twice(names: list[str], machine: str, counts: list[int], scores: bool) -> None:
    """Two nodes with the same plugins decide alike, and so do rules and a state that were kept."""
    rules = PluginRules(tuple(map(PluginEntry, names)), hint_scores=scores)
    nodes = [Node(from_synthetic(machine), config(), policy=PodslicePolicy(plugins=rules)) for _ in range(2)]
    assert admit_all(nodes[0], counts) == admit_all(nodes[1], counts)
    copies = [Node.of(node.rules, node.state) for node in nodes]
    pod = make_pod("last", ("c", "2"))
    assert copies[0].admit(pod) == nodes[0].admit(pod) == copies[1].admit(pod)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(MACHINES), st.sampled_from(POLICIES), COUNTS)
@pytest.mark.slow
def test_an_empty_profile_is_none(machine: str, policy: str, counts: list[int]) -> None:
    """`static` alone, a plugin that overrides nothing, and no plugins at all decide alike."""
    plain = Node(from_synthetic(machine), config(topology_manager_policy=policy))
    wanted = admit_all(plain, counts)
    rules = PluginRules((PluginEntry("static"),))
    named = Node(from_synthetic(machine), plain.rules.config, policy=PodslicePolicy(plugins=rules))
    assert admit_all(named, counts) == wanted
    assert admit_all(own(Base(), machine=machine, topology_manager_policy=policy), counts) == wanted
    assert named.files == plain.files


POINTS = ("sort_key", "filter", "post_filter", "prescore", "select", "score", "allocate", "deallocate")


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(MACHINES), st.sampled_from(POLICIES), COUNTS, st.sampled_from(POINTS),
    st.sampled_from(["refuse", "skip", "static"]), st.booleans(),
)  # fmt: skip
def test_an_exception_leaves_nothing_between(
    machine: str, policy: str, counts: list[int], point: str, on_error: OnError, scores: bool
) -> None:
    """Whatever point fails under whatever `onError`: the pod has what it asked for, or the state is as it was."""

    def fail(self: CPUPlugin, *arguments: object) -> None:
        raise RuntimeError("broken")

    plugin = type("Failing", (Drawn,), {point: fail})(77, filters=False)
    node = own(plugin, machine=machine, topology_manager_policy=policy, on_error=on_error, hint_scores=scores)
    for number, count in enumerate(counts):
        before = node.state
        if node.admit(make_pod(f"p{number}", ("c", str(count)))).admitted:
            assert node.view.owners[f"p{number}"]["c"].bit_count() == count
        else:
            assert node.state == before
        if number % 2:
            node.remove(f"p{number}")
    for number in range(len(counts)):
        node.remove(f"p{number}")
    assert node.shared_cpus.bits == cpu_topology(from_synthetic(machine)).all_cpus
    assert not node.state.cpu.grants


@pytest.mark.parametrize("machine", MACHINES)
def test_picks_follow_the_machine(machine: str) -> None:
    """Points alone decide where they differ: a mirrored plugin picks the mirrored CPUs."""
    made = from_synthetic(machine)
    topology = cpu_topology(made)
    last = topology.num_cpus - 1

    def mirrored(cpus: Bits) -> Bits:
        return union(1 << (last - cpu) for cpu in iter_bits(cpus))

    class Ordered(Base):
        def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
            return tuple((1 << cpu, cpu) for cpu in range(last + 1))

    class Mirrored(Base):
        def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
            return tuple((1 << (last - cpu), cpu) for cpu in range(last + 1))

    ask = CPUAsk(AskingPod("", "", "", {}, {}, "", 0, "", ()), "c", "app", "admit", 3)
    picker = Picker(topology, CPUPolicyOptions(), PODSLICE)
    picks = []
    for plugin in (Ordered(), Mirrored()):
        profile = PluginProfile(CPUMachine(made, topology), [(PluginEntry("p"), plugin)])
        node = CPUNode(profile.machine, free=topology.all_cpus, default=topology.all_cpus, reserved=0)
        found = profile.propose(
            ask, topology.all_cpus, None, node, picker, search_budget=None, on_broken=lambda *_: None
        )
        picks.append(found.pick.cpus)
    assert picks[0] == mirrored(picks[1])


def test_kubelets_decide_as_before() -> None:
    """A policy that names no plugin leaves the rules without any."""
    node = Node(from_synthetic(MACHINES[0]), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"),
                policy=PodslicePolicy(plugins=PluginRules(hint_scores=True)))  # fmt: skip
    assert node.rules.cpu.plugins is None


HISTORY = """
import json, sys
from random import Random
from msgspec.structs import replace
from podslice import Node, PodslicePolicy
from podslice.config.policy import ClassMatch, CPUClass, PluginEntry, PluginRules
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod
from tests.node.plugins.helpers import TWO_NODES, config

def turned(entries):
    return dict(entries if sys.argv[1] == "0" else reversed(list(entries)))

r = Random(11)
names = ["balance-numa", "keep-whole", "neighbours", "pack-caches", "spread-power", "near-devices"]
arguments = {"neighbours": [("groupLabel", "app"), ("level", "core")], "near-devices": [("devices", ["0000:*"])]}
decisions = []
for life in range(25):
    profile = tuple(PluginEntry(one, arguments=turned(arguments.get(one, []))) for one in r.sample(names, 3))
    classes = (CPUClass("low", ClassMatch(cpus="0-15")), CPUClass("high")) if life % 2 else ()
    policy = PodslicePolicy(plugins=PluginRules(profile, hint_scores=life % 3 > 0), cpu_classes=classes)
    chosen = config(topology_manager_policy=r.choice(["none", "best-effort"]))
    node = Node(from_synthetic(TWO_NODES), chosen, policy=policy)
    for number in range(10):
        pod = make_pod(f"p{number}", ("c", str(r.randrange(1, 7))))
        labels = turned([("app", r.choice("ab")), ("tier", r.choice("xy"))])
        decision = node.admit(replace(pod, metadata=replace(pod.metadata, labels=labels)))
        decisions.append([decision.admitted, decision.message, [str(one.cpus) for one in decision.containers]])
        if number % 3 == 2:
            node.remove(f"p{number - 1}")
print(json.dumps(decisions))
"""


@pytest.mark.process
def test_the_same_under_other_hashes() -> None:
    """Processes that hash otherwise, and keep what they are given in another order, decide alike."""
    root = Path(__file__).parents[3]
    answers = {
        subprocess.run(
            [sys.executable, "-c", HISTORY, order],
            check=True, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed, order in (("1", "0"), ("2", "1"), ("77", "0"))
    }  # fmt: skip
    (answer,) = answers
    assert answer.count("true") > 100


class ByPoints(Base):
    """Points and scores of CPUs, each other than all others."""

    def __init__(self, points: dict[int, int]) -> None:
        super().__init__()
        self.points = points

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        return tuple((1 << cpu, points) for cpu, points in self.points.items())


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(MACHINES), st.randoms(use_true_random=False), st.integers(1, 5), st.booleans())
@pytest.mark.slow
def test_picks_follow_renumbered_machines(machine: str, r: Random, count: int, whole: bool) -> None:
    """The same CPUs are picked under other numbers, if plugins leave no ties to numbers."""
    made = from_synthetic(machine)
    ids = list(iter_bits(cpu_topology(made).all_cpus))
    shuffled = r.sample(ids, len(ids))
    called = dict(zip(ids, shuffled, strict=True))

    def renumbered(core: Core) -> Core:
        return replace(core, threads=tuple(called[cpu] for cpu in core.threads))

    other = replace(
        made, nodes=tuple(replace(one, cores=tuple(map(renumbered, one.cores))) for one in made.nodes), groups=()
    )
    points = dict(zip(ids, r.sample(range(-500, 500), len(ids)), strict=True))
    cores = list(cpu_topology(made).cores.values())
    units = cores if whole else [1 << cpu for cpu in ids]
    free, count = union(r.sample(units, len(units) * 3 // 4)), count * units[0].bit_count()
    picks = []
    for on, names in ((made, {cpu: cpu for cpu in ids}), (other, called)):
        topology = cpu_topology(on)
        plugin = ByPoints({names[cpu]: points[cpu] for cpu in ids})
        profile = PluginProfile(CPUMachine(on, topology), [(PluginEntry("p"), plugin)])
        there = union(1 << names[cpu] for cpu in iter_bits(free))
        node = CPUNode(profile.machine, free=there, default=there, reserved=0)
        ask = CPUAsk(AskingPod("", "", "", {}, {}, "", 0, "", ()), "c", "app", "admit", count, whole_cores=whole)
        picker = Picker(topology, CPUPolicyOptions(), PODSLICE)
        if count > free.bit_count():
            return
        found = profile.propose(ask, there, None, node, picker, search_budget=None, on_broken=lambda *_: None).pick.cpus
        back = {name: cpu for cpu, name in names.items()}
        picks.append({back[cpu] for cpu in iter_bits(found)})
    assert picks[0] == picks[1]
