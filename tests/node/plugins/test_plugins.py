"""Plugins of the CPU Manager: what each point does, and what becomes of a plugin that is broken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from podslice import InputError, KubeletConfig, Node, PodslicePolicy, StartError
from podslice.advise.defrag.plan import apply_move, defragment
from podslice.config.policy import ExclusiveResize, PluginEntry, PluginRules
from podslice.machine.model import PCIDevice
from podslice.machine.readers.synthetic import from_synthetic
from podslice.plugins import (
    AskingPod,
    Bits,
    CPUAsk,
    CPUEffects,
    CPUMove,
    CPUNode,
    CPUOwner,
    Layer,
    Moves,
    Relax,
    Remedy,
    Shortage,
)
from podslice.replica.setup import build_rules, setup_of
from tests.conftest import make_pod
from tests.node.plugins.helpers import TWO_NODES, Base, config, cpus_of, named, own

UPPER = ((1 << 16) - 1) << 16
"""CPUs of NUMA node 1."""


class OnlyUpper(Base):
    """Filter: NUMA node 1, and of node 0 three CPUs."""

    soft = True

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        return cpus & (UPPER | 0b11100)


class FromTheEnd(Base):
    """Select: the highest CPUs."""

    def select(
        self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
    ) -> Iterable[Bits]:
        chosen = 0
        while cpus and chosen.bit_count() < ask.count:
            high = 1 << (cpus.bit_length() - 1)
            chosen, cpus = chosen | high, cpus ^ high
        yield chosen


def test_static_alone_changes_nothing() -> None:
    """A profile of `static` picks what is picked without plugins."""
    plain, node = Node(from_synthetic(TWO_NODES), config()), named("static")
    for number, count in enumerate(("4", "3", "1", "6", "9")):
        pod = make_pod(f"p{number}", ("c", count))
        assert node.admit(pod) == plain.admit(pod)


def test_balance_numa() -> None:
    """With `balance-numa` and `hintScores` pods take turns on the NUMA nodes, where `static` fills one first."""
    nodes = named("static"), named("balance-numa", hint_scores=True)
    for node in nodes:
        for number in range(6):
            assert node.admit(make_pod(f"p{number}", ("c", "4"))).admitted
    fills, balances = ([cpus_of(node, f"p{number}") for number in range(6)] for node in nodes)
    assert fills == ["2-5", "6-9", "10-13", "16-19", "20-23", "24-27"]
    assert balances == ["16-19", "2-5", "20-23", "6-9", "24-27", "10-13"]


def labelled(uid: str, cpus: str, app: str) -> Any:
    """A pod with a label."""
    pod = make_pod(uid, ("c", cpus))
    return replace(pod, metadata=replace(pod.metadata, labels={"app": app}))


def test_neighbours() -> None:
    """Two replicas share no core as long as others are free, and the second knows that one of its CPUs does."""
    rules = PluginRules((PluginEntry("neighbours", arguments={"groupLabel": "app"}),))
    options = {"distribute-cpus-across-cores": "true"}
    node = Node(
        from_synthetic("pack:1 numa:1(memory=64GB) core:8 pu:2(indexes=pu)"),
        config(cpu_manager_policy_options=options, feature_gates={"CPUManagerPolicyAlphaOptions": True}),
        policy=PodslicePolicy(plugins=rules),
    )
    node.admit(labelled("a", "4", "web"))
    node.admit(labelled("b", "4", "web"))
    assert cpus_of(node, "a") == "2,4,6,8"
    assert cpus_of(node, "b") == "10-12,14", "one thread of each free core before anything beside the first replica"
    assert node.admit(labelled("c", "1", "db")).admitted


def test_a_cache_that_fits_is_filled() -> None:
    """`pack-caches` takes the L3 cache that has the least left, and leaves whole ones whole."""
    node = named("pack-caches", machine="pack:1 numa:1(memory=64GB) l3:4 core:4 pu:2(indexes=pu)")
    node.admit(make_pod("a", ("c", "6")))
    node.admit(make_pod("b", ("c", "2")))
    node.admit(make_pod("c", ("c", "8")))
    assert (cpus_of(node, "a"), cpus_of(node, "b"), cpus_of(node, "c")) == ("2-7", "8-9", "16-23")


def test_holes_stay_whole() -> None:
    """`keep-whole` takes the NUMA node that is broken already, where that is no worse; `static` takes the lower one."""
    for name, wanted in (("static", "0-3"), ("keep-whole", "20-23")):
        node = named(name, hint_scores=True, reserved_system_cpus="16-19")
        node.admit(make_pod("a", ("c", "4")))
        assert cpus_of(node, "a") == wanted


def test_power_is_spread() -> None:
    """`spread-power` takes CPUs of the socket with most free ones."""
    node = named("spread-power", "balance-numa", machine=TWO_NODES, topology_manager_policy="none")
    for number in range(4):
        node.admit(make_pod(f"p{number}", ("c", "4")))
    sockets = [int(cpus_of(node, f"p{number}").split("-")[0]) // 16 for number in range(4)]
    assert sockets == [1, 0, 1, 0]


def test_a_filter_counts_for_hints() -> None:
    """A NUMA node that a filter leaves too little of is not hinted: the pod lands beside it, not nowhere."""
    node = own(OnlyUpper(), topology_manager_policy="single-numa-node")
    assert node.admit(make_pod("a", ("c", "4"))).admitted
    assert cpus_of(node, "a") == "16-19"
    assert node.admit(make_pod("b", ("c", "3"))).admitted
    assert cpus_of(node, "b") == "2-4"


def test_what_a_filter_keeps_back_is_refused() -> None:
    """More than a filter leaves is refused under every policy, and changes nothing."""
    for policy in ("none", "best-effort", "restricted", "single-numa-node"):
        node = own(OnlyUpper(), topology_manager_policy=policy)
        before = node.state
        decision = node.admit(make_pod("a", ("c", "20")))
        assert not decision.admitted
        assert node.state == before
        if policy in ("none", "best-effort"):
            assert decision.message == (
                "Allocate failed due to not enough cpus available to satisfy request: requested=20, available=19, "
                "plugins keep it from 30 free ones, which is unexpected"
            )


class Relaxing(Base):
    """PostFilter: go without OnlyUpper."""

    def post_filter(self, ask: CPUAsk, node: CPUNode, short: Shortage) -> Relax:
        assert short.missing == ask.count - short.left.bit_count()
        return Relax("onlyupper")


def test_a_soft_filter_is_relaxed() -> None:
    """PostFilter lets a pod have what a soft filter kept back, only where it is short, and no hard one."""
    node = own(OnlyUpper(), Relaxing())
    assert node.admit(make_pod("a", ("c", "20"))).admitted
    assert cpus_of(node, "a") == "2-5,16-31"

    class Hard(OnlyUpper):
        soft = False

    node = own(Hard(), Relaxing())
    assert not node.admit(make_pod("a", ("c", "20"))).admitted


def test_select_and_score() -> None:
    """Without Score the first candidate is taken, with it the best; ties go to the first."""

    class LikesLow(Base):
        def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
            return 100 if candidate & 0xFF else 0

    class Even(Base):
        def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
            return 50

    for plugins, cpus in (
        ((FromTheEnd(),), "12-15"),
        ((FromTheEnd(), LikesLow()), "2-5"),
        ((FromTheEnd(), Even()), "12-15"),
    ):
        node = own(*plugins)
        node.admit(make_pod("a", ("c", "4")))
        assert cpus_of(node, "a") == cpus


def test_points_order_cpus() -> None:
    """PreScore: CPUs with more points first, as `static` would take them among equals."""

    class Likes(Base):
        def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
            return (0b1111 << 8, 5), (0b11 << 8, -10)

    node = own(Likes())
    node.admit(make_pod("a", ("c", "4")))
    assert cpus_of(node, "a") == "2-3,10-11"


def test_slices_of_a_pod_are_picked_too() -> None:
    """A pod with pod-level resources is filtered as a whole, and its slices are picked by the plugins."""
    gates = {"PodLevelResourceManagers": True}
    node = own(OnlyUpper(), FromTheEnd(), topology_manager_scope="pod", feature_gates=gates)
    assert node.admit(make_pod("a", ("c", "2"), ("d", None), budget="8")).admitted
    assert str(node.view.pod_cpus["a"] >> 24) == "255"
    assert f"{node.view.owners['a']['c']:x}" == "c0000000"


def test_pod_scope_knows_the_last_container_first() -> None:
    """In pod scope all containers are settled before the first one is given anything."""
    seen: list[str] = []

    class Watching(Base):
        sees_pods = True

        def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
            seen.append(f"{ask.container} {node.default.bit_count()}")
            return ()

    node = own(Watching(), topology_manager_scope="pod")
    assert node.admit(make_pod("a", ("c", "2"), ("d", "4"))).admitted
    assert seen == ["c 32", "d 30"]


def test_allocate_and_deallocate() -> None:
    """Plugins return effects for a container, and are called when it releases its CPUs."""

    class Telling(Base):
        def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects:
            return CPUEffects(environment={"HAS": f"{cpus:x}"})

        def deallocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects:
            return CPUEffects(memo=f"{ask.kind} had {cpus:x}")

    node = own(Telling())
    node.admit(make_pod("a", ("c", "2")))
    assert node.cpu_effects("a", "c")["telling"].environment == {"HAS": "c"}
    node.remove("a")
    assert [(one.uid, one.container, one.plugin, one.effects.memo) for one in node.released_cpus] == [
        ("a", "c", "telling", "app had c")
    ]
    assert node.state.cpu.grants == {}


def test_sort() -> None:
    """Pods that wait together are tried as plugins say."""

    class ByPriority(Base):
        sees_pods = True

        def sort_key(self, pod: AskingPod) -> tuple[int, ...]:
            return (-pod.priority,)

    pods = [make_pod("low", ("c", "2")), make_pod("high", ("c", "2"))]
    pods[1] = replace(pods[1], spec=replace(pods[1].spec, priority=10))
    node = own(ByPriority())
    assert [pod.metadata.uid for pod in node.in_order(pods)] == ["high", "low"]
    assert [pod.metadata.uid for pod in named("static").in_order(pods)] == ["low", "high"]
    node.readmit(pods)
    assert (cpus_of(node, "high"), cpus_of(node, "low")) == ("2-3", "4-5")


def test_sort_of_resizes() -> None:
    """Resizes that wait together are tried as plugins say, where priority and QoS class do not: before who has waited
    longest. A plugin whose Sort is broken sorts no pod, and refuses none."""

    class ByName(Base):
        sees_pods = True

        def sort_key(self, pod: AskingPod) -> tuple[int, ...]:
            return (-ord(pod.name),)

    class Failing(Base):
        def sort_key(self, pod: AskingPod) -> tuple[int, ...]:
            raise KeyError

    for plugin, waiting in ((ByName(), ["c", "b", "a"]), (Failing(), ["b", "a", "c"])):
        node = own(plugin, policy=PodslicePolicy(resize=ExclusiveResize(exclusive=True)))
        for name in "abcd":
            assert node.admit(make_pod(name, ("c", "7"))).admitted
        for since, name in enumerate("bac"):
            assert node.resize(make_pod(name, ("c", "12")), since=float(since)).outcome == "Deferred"
        assert node.pending_resizes == waiting
        node.remove("d")
        node.retry_resizes()
        assert [uid for uid in "abc" if cpus_count(node, uid) == 12] == [waiting[0]]
    assert sum(count for series, count in node.counters.items() if "plugin" in series.name)


def cpus_count(node: Node, uid: str) -> int:
    """Return how many CPUs the only container of a pod has."""
    return node.view.owners[uid]["c"].bit_count()


def test_owners_are_told_only_to_who_says_so() -> None:
    """A plugin sees names of pods and who has which CPUs only if it says that it looks."""
    seen: list[tuple[str, CPUOwner | None]] = []

    class Blind(Base):
        def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
            seen.append((ask.pod.name, node.owner_of(2)))
            return ()

    class Seeing(Blind):
        sees_pods = sees_owners = True

    for plugin in (Blind(), Seeing()):
        node = own(plugin)
        node.admit(make_pod("a", ("c", "2")))
        node.admit(make_pod("b", ("c", "2")))
    blind, seeing = seen[1], seen[3]
    assert blind == ("", None)
    assert seeing[0] == "b"
    assert seeing[1] is not None
    assert (seeing[1].pod.name, seeing[1].container, seeing[1].cpus) == ("a", "c", 0b1100)


def test_part_of_a_core_is_no_set() -> None:
    """Under `full-pcpus-only` a set of a plugin has whole cores, and a filter leaves none in part."""

    class Halves(Base):
        def select(
            self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
        ) -> Iterable[Bits]:
            yield 0b10100

    options = {"full-pcpus-only": "true"}
    node = own(Halves(), cpu_manager_policy_options=options)
    assert 'plugin "halves" Select: a set has part of a core' in node.admit(make_pod("a", ("c", "2"))).message
    node = own(OnlyUpper(), cpu_manager_policy_options=options, topology_manager_policy="none")
    assert node.admit(make_pod("a", ("c", "18"))).admitted
    assert cpus_of(node, "a") == "2-3,16-31"


# Policies and other processes


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ((PluginEntry("nobody"),), "plugins.profile names nobody, which is not installed"),
        ((PluginEntry("static"), PluginEntry("static")), "plugins.profile names static twice"),
        ((PluginEntry("static", arguments={"a": 1}),), "plugin static does not start: arguments.a is unknown"),
        ((PluginEntry("neighbours"),), "plugin neighbours does not start: arguments.groupLabel is not a text"),
        (
            (PluginEntry("neighbours", arguments={"groupLabel": "a", "level": "die"}),),
            "plugin neighbours does not start: arguments.level 'die' is none of core, l3, numa",
        ),
    ],
)
def test_plugins_that_cannot_start(entries: tuple[PluginEntry, ...], problem: str) -> None:
    """A node whose plugins are not there, or do not take their arguments, does not start."""
    with pytest.raises(StartError, match=r"does not start|names") as error:
        Node(from_synthetic(TWO_NODES), config(), policy=PodslicePolicy(plugins=PluginRules(entries)))
    assert (error.value.stage, problem in str(error.value)) == ("policy", True)


def test_a_kubelet_has_no_plugins() -> None:
    """Profile `kubelet-1.36` takes no plugins."""
    policy = PodslicePolicy(plugins=PluginRules((PluginEntry("static"),)))
    with pytest.raises(InputError, match="a kubelet has no such policy"):
        Node(from_synthetic(TWO_NODES), KubeletConfig(), profile="kubelet-1.36", policy=policy)


def test_another_process_has_the_same_plugins_or_does_not_answer() -> None:
    """Rules that are sent name plugins with their versions; who has others, or cannot see what they see, says so."""
    rules = named("pack-caches").rules
    setup = setup_of(rules)
    assert setup.plugins == {"pack-caches": "1"}
    assert build_rules(setup).cpu.plugins is not None
    other = replace(setup, plugins={"pack-caches": "0.9"})
    assert other.digests != setup.digests
    with pytest.raises(InputError, match=r"pack-caches is version 0.9 on the node and 1 here"):
        build_rules(other)
    plain = setup_of(Node(from_synthetic(TWO_NODES), config()).rules)
    assert plain.plugins == {}
    spread = Node(
        from_synthetic(TWO_NODES),
        config(),
        policy=PodslicePolicy(plugins=PluginRules((PluginEntry("neighbours", arguments={"groupLabel": "a"}),))),
    )
    with pytest.raises(InputError, match="which do not leave the node"):
        build_rules(setup_of(spread.rules))


TWO_CARDS = replace(
    from_synthetic("pack:2 numa:2(memory=64GB) core:4 pu:2(indexes=pu)"),
    pci_devices=(PCIDevice("0000:98:00.0", 3, ("eth0", "eth0np0")), PCIDevice("0000:17:00.0", 0)),
)
"""CPUs 0-7 and 8-15 are a socket, 16-23 and 24-31 another, with a network card."""


def near(policy: str, **arguments: Any) -> Node:
    """A node whose containers go near devices."""
    rules = PluginRules((PluginEntry("near-devices", arguments=arguments),), hint_scores=True)
    return Node(TWO_CARDS, config(topology_manager_policy=policy), policy=PodslicePolicy(plugins=rules))


@pytest.mark.parametrize("policy", ["none", "best-effort", "single-numa-node"])
def test_near_a_device(policy: str) -> None:
    """`near-devices` takes CPUs of the card's NUMA node, then of its socket, then others."""
    node = near(policy, devices=["eth0*", "nowhere0"])
    for number, cpus in enumerate(("6", "2", "2", "6", "2", "2")):
        assert node.admit(make_pod(f"p{number}", ("c", cpus))).admitted
    assert [cpus_of(node, f"p{number}") for number in range(3)] == ["24-29", "30-31", "16-17"]
    assert [cpus_of(node, f"p{number}") for number in range(3, 6)] == ["18-23", "2-3", "4-5"]


def test_near_two_devices_for_some() -> None:
    """Only pods with the labels are drawn to it; a bus address names a device too."""
    node = near("best-effort", devices=["0000:98:*"], labels={"app": "web"})
    for pod in (make_pod("a", ("c", "4")), labelled("b", "4", "web"), labelled("c", "4", "db")):
        assert node.admit(pod).admitted
    assert [cpus_of(node, uid) for uid in "abc"] == ["2-5", "24-27", "8-11"]


class NodeZeroOnly(Base):
    """Filter: NUMA node 0; PostFilter: the first owner there goes to the highest free CPUs of node 1."""

    sees_pods = True
    sees_owners = True

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        return cpus & 0xFFFF if ask.pod.name != "other" else cpus

    def post_filter(self, ask: CPUAsk, node: CPUNode, short: Shortage) -> Remedy | None:
        owner = node.owners[0]
        target = 0
        for cpu in range(31, 15, -1):
            if target.bit_count() < owner.cpus.bit_count() and node.free >> cpu & 1:
                target |= 1 << cpu
        return Moves((CPUMove(owner.pod.uid, owner.container, target),))


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_moves_that_a_plugin_proposes(policy: str) -> None:
    """A pod that filters keep out is refused with the moves that would help; defrag plans just these, and they do."""
    node = own(NodeZeroOnly(), topology_manager_policy=policy)
    assert node.admit(make_pod("other", ("c", "8"))).admitted
    wants = make_pod("wants", ("c", "10"))
    before = node.state
    refused = node.admit(wants)
    said = 'Plugin "nodezeroonly": it would do once c of default/other moves to 24-31.'
    assert not refused.admitted
    assert refused.why.endswith(said)
    assert node.state.cpu == before.cpu
    plan = defragment(node, wants)
    assert plan.fits
    assert [str(one.cpus_after) for move in plan.moves for one in move.containers] == ["24-31"]
    for move in plan.moves:
        apply_move(node, move)
    assert node.admit(wants).admitted
    assert cpus_of(node, "wants") == "2-11"


@pytest.mark.parametrize(
    ("moves", "problem"),
    [
        ((CPUMove("other", "c", 0xFF0000),), None),
        ((CPUMove("other", "c", 0xF0000),), "c cannot go from 2-9 to 16-19"),
        ((CPUMove("other", "c", 0x1FE),), "c cannot go from 2-9 to 1-8"),
        ((CPUMove("nobody", "c", 0xFF0000),), "c of pod nobody owns no CPUs"),
        ((), "the moves are not a tuple of 1 to 16"),
        ([CPUMove("other", "c", 0xFF0000)], "the moves are not a tuple of 1 to 16"),
        ((("other", "c", 1),), "a move is not a CPUMove"),
    ],
)
def test_moves_that_cannot_be(moves: Any, problem: str | None) -> None:
    """A plugin that proposes impossible moves is broken; nothing moves in any case."""

    class Proposes(NodeZeroOnly):
        def post_filter(self, ask: CPUAsk, node: CPUNode, short: Shortage) -> Remedy | None:
            return Moves(moves)

    node = own(Proposes())
    node.admit(make_pod("other", ("c", "8")))
    refused = node.admit(make_pod("wants", ("c", "10")))
    assert not refused.admitted
    assert cpus_of(node, "other") == "2-9"
    if problem is None:
        assert refused.why.endswith("moves to 16-23.")
    else:
        assert refused.message == f'Allocate failed due to plugin "proposes" PostFilter: {problem}, which is unexpected'
