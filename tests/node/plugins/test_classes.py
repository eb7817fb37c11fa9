"""CPU classes: which CPUs are of which class, who gets them, and what always holds."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import KubeletConfig, Node, PodslicePolicy, StartError, pod_from_dict
from podslice.advise.defrag.plan import defragment
from podslice.cli.options.machine import load_named_machine
from podslice.config.policy import (
    AnnotationRules,
    AssignRule,
    ClassMatch,
    CPUClass,
    Defragmentation,
    ExclusiveResize,
)
from podslice.machine.cores import reachable_sums
from podslice.machine.gallery import gallery_names
from podslice.machine.model import Machine, MaxFrequency, cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.replica.setup import build_rules, setup_of
from podslice.values.cpuset import CPUSet, bits_of, parse_bits, union
from tests.conftest import make_pod

HYBRID = load_named_machine("hybrid-i9-12900k", "--machine")
P = CPUClass("performance", ClassMatch(core_type="performance"), min_shared=2)
E = CPUClass("efficiency", ClassMatch(core_type="efficiency"), exclusive="onRequest", overflow=("performance",))
DAEMONS = AssignRule(("efficiency",), namespaces=("kube-system",))
STRICT = (DAEMONS, AssignRule(("performance!",), qos=("Guaranteed",), exclusive=True),
          AssignRule(("performance", "efficiency")))  # fmt: skip
SOFT = (DAEMONS, AssignRule(("performance", "efficiency")))
WHOLE = {"full-pcpus-only": "true"}


def node(
    assign: tuple[AssignRule, ...] = (),
    classes: tuple[CPUClass, ...] = (P, E),
    machine: Machine = HYBRID,
    policy: PodslicePolicy | None = None,
    **given: Any,
) -> Node:
    """A hybrid machine with E cores 16-17 reserved."""
    fields = {"reserved_system_cpus": "16-17", "topology_manager_policy": "best-effort", **given}
    config = KubeletConfig(cpu_manager_policy="static", **fields)
    base = policy or PodslicePolicy()
    return Node(machine, config, policy=replace(base, cpu_classes=classes, assign=assign))


def pod(name: str, cpu: str = "", *, namespace: str = "default", annotation: str = "", request: str = "") -> Any:
    """One container, Guaranteed with `cpu`, Burstable with `request`."""
    limits = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": limits, "limits": limits} if cpu else {"requests": {"cpu": request or "100m"}}
    annotations = {"podslice.io/cpu-class": annotation} if annotation else {}
    return pod_from_dict(
        {
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
        }
    )


def cpus(of: Node, asked: Any) -> str:
    """Return the CPUs of the pod's container, or why it was refused."""
    decision = of.admit(asked)
    return str(decision.containers[0].cpus) if decision.admitted else decision.reason


@pytest.mark.parametrize(
    ("assign", "options", "count", "wanted"),
    [
        (STRICT, {}, "4", "2-5"),
        (SOFT, {}, "4", "2-5"),
        (STRICT, WHOLE, "7", "SMTAlignmentError"),
        (SOFT, WHOLE, "7", "2-7,18"),
        (STRICT, {}, "14", "2-15"),
        (STRICT, {}, "16", "CPUClassUnavailable"),
        (SOFT, {}, "16", "2-15,18-19"),
    ],
)
def test_performance_cores_first(
    assign: tuple[AssignRule, ...], options: dict[str, str], count: str, wanted: str
) -> None:
    """Guaranteed pods get P cores, in whole cores where asked for; soft requests overflow, required ones are
    refused."""
    assert cpus(node(assign, cpu_manager_policy_options=options), pod("a", count)) == wanted


def test_what_is_said_of_a_full_class() -> None:
    """The message says how many are free, of how many, and which classes are not requested."""
    decision = node(STRICT).admit(pod("a", "16"))
    assert decision.message == (
        "not enough exclusive CPUs of class performance: requested 16, free 14 (of 16); efficiency is not requested"
    )
    refused = node(STRICT, topology_manager_policy="single-numa-node").admit(pod("a", "16"))
    assert refused.reason == "TopologyAffinityError"


def test_containers_that_share() -> None:
    """Shared containers of the same classes have the same CPUs, less what is owned; daemons run on E cores."""
    one = node(STRICT)
    assert cpus(one, pod("d", namespace="kube-system")) == "16-23"
    assert cpus(one, pod("a", "4")) == "2-5"
    assert cpus(one, pod("b")) == "0-1,6-23"
    assert cpus(one, pod("l", annotation="efficiency")) == "16-23"


def test_a_pool_is_never_empty() -> None:
    """Containers that share a class which is owned as a whole overflow."""
    every = replace(E, exclusive="always", overflow=())
    one = node((), (P, every), reserved_system_cpus="0-1")
    assert cpus(one, pod("e", "8", annotation="efficiency!")) == "16-23"
    assert cpus(one, pod("s", annotation="efficiency")) == "0-15"
    overflowing = node((), (P, replace(E, exclusive="always")), reserved_system_cpus="0-1")
    overflowing.admit(pod("e", "8", annotation="efficiency!"))
    assert cpus(overflowing, pod("s", annotation="efficiency")) == "0-15"


def test_annotations() -> None:
    """A pod asks for classes, for all of its containers or for one; a wrong one refuses it."""
    one = node(STRICT)
    assert cpus(one, pod("a", "2", annotation="efficiency!")) == "18-19"
    assert cpus(one, pod("b", "2", annotation="c=efficiency!")) == "20-21"
    assert cpus(one, pod("c", "2", annotation="prformance")) == "InvalidPodsliceAnnotation"
    ignoring = node(STRICT, policy=PodslicePolicy(annotations=AnnotationRules(invalid="ignore")))
    assert cpus(ignoring, pod("c", "2", annotation="prformance")) == "2-3"


def test_isolated_cpus_are_a_class() -> None:
    """CPUs that the kernel isolates are never shared and owned on request, as soon as there are classes."""
    machine = replace(HYBRID, isolated=CPUSet.parse("8-15"))
    assert cpus(node((), (), machine=machine), pod("b")) == "0-23", "without classes nothing changes"
    one = node(machine=machine)
    assert cpus(one, pod("b")) == "0-7,16-23"
    assert cpus(one, pod("a", "4")) == "2-5"
    assert cpus(one, pod("i", "4", annotation="isolated!")) == "8-11"


@pytest.mark.parametrize(
    ("match", "wanted"),
    [
        (ClassMatch(max_frequency_at_least=5_100_000), "4-7"),
        (ClassMatch(max_frequency_at_least=4_900_000), "0-15"),
        (ClassMatch(nohz_full=True), "6-9"),
        (ClassMatch(nohz_full=False, core_type="performance"), "0-5,10-15"),
        (ClassMatch(rcu_nocbs=True, max_frequency_at_least=5_100_000), "6-7"),
    ],
)
def test_what_a_class_matches(match: ClassMatch, wanted: str) -> None:
    """Highest clocks, and how the kernel was started; all that is said must hold."""
    clocks = MaxFrequency(5_200_000, CPUSet.parse("4-7")), MaxFrequency(4_900_000, CPUSet.parse("0-3,8-15"))
    ticking = CPUSet.parse("6-9")
    machine = replace(HYBRID, max_frequencies=clocks, nohz_full=ticking, rcu_nocbs=ticking)
    found = node((), (CPUClass("mine", match),), machine).view.cpu_classes
    assert found is not None
    assert found.cpus["mine"] == parse_bits(wanted)


def test_a_grown_container_stays_in_its_class() -> None:
    """A required class holds for a resize too."""
    policy = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
    one = node(STRICT, policy=policy)
    one.admit(pod("a", "10"))
    decision = one.resize(replace_cpu(pod("a", "14")))
    assert decision.outcome == "Allocated"
    assert one.view.owners["default.a"]["c"] == parse_bits("2-15")
    assert one.resize(replace_cpu(pod("a", "16"))).outcome == "Infeasible" or one.pending_resizes == ["default.a"]
    assert one.view.owners["default.a"]["c"] == parse_bits("2-15")


@pytest.mark.parametrize("requested", ["efficiency!", "efficiency"])
def test_growth_stays_in_the_class_of_the_admission(requested: str) -> None:
    """Other rules count for who comes after them: a container grows in the class that its CPUs are of, where the
    rules of now would give it none of those."""
    policy = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
    classes = (P, replace(E, overflow=()))
    one = node(STRICT, classes, policy=policy)
    assert cpus(one, pod("a", "4")) == "2-5"
    by_now = node((AssignRule((requested,)),), classes, policy=policy).rules.policy
    one.change_policy(by_now)
    assert cpus(one, pod("b", "2")) == "18-19"
    assert one.resize(pod("a", "8")).outcome == "Allocated"
    assert one.view.owners["default.a"]["c"] == parse_bits("2-9")


GROWS = PodslicePolicy(resize=ExclusiveResize(exclusive=True))


def test_the_class_of_the_admission_is_remembered() -> None:
    """A container that got performance cores and nothing else grows in them and nothing else, whatever the rules say by
    then, also after a restart; without the file by the rules of then."""
    one, soft = node(STRICT, policy=GROWS), node(SOFT, policy=GROWS).rules.policy
    assert cpus(one, pod("a", "14")) == "2-15"
    one.change_policy(soft)
    assert policy_state.decode(one.files[POLICY_STATE_FILE]).classes == {"default.a": {"c": ["performance!"]}}
    assert cpus(one, pod("b", "2")) == "18-19"
    assert policy_state.decode(one.files[POLICY_STATE_FILE]).classes["default.b"] == {
        "c": ["performance", "efficiency"]
    }
    again = restarted(one, [pod("a", "14"), pod("b", "2")])
    lost = restarted(one, [pod("a", "14"), pod("b", "2")], without=POLICY_STATE_FILE)
    outcomes = [each.resize(pod("a", "16")).outcome for each in (one, again, lost)]
    assert outcomes == ["Infeasible", "Infeasible", "Allocated"]
    assert lost.view.owners["default.a"]["c"] == parse_bits("2-15,20-21")
    again.remove("default.a")
    assert "default.a" not in policy_state.decode(again.files[POLICY_STATE_FILE]).classes


def test_the_class_of_a_pod_as_a_whole_is_remembered() -> None:
    """A pod that has CPUs as a whole grows in the classes of the pod."""
    config = {"topology_manager_scope": "pod", "feature_gates": {"PodLevelResourceManagers": True}}
    one, soft = node(STRICT, policy=GROWS, **config), node(SOFT, policy=GROWS).rules.policy
    assert one.admit(whole("14")).admitted
    one.change_policy(soft)
    assert policy_state.decode(one.files[POLICY_STATE_FILE]).classes == {"uid-w": {"": ["performance!"]}}
    again = restarted(one, [whole("14")])
    assert [each.resize(whole("16")).outcome for each in (one, again)] == ["Infeasible", "Infeasible"]


def test_without_classes_nothing_is_remembered() -> None:
    """The side-car is not there for the sake of nodes without classes, and one that a policy with classes left is
    dropped where it is about no pod."""
    one = node((), (), policy=GROWS)
    assert cpus(one, pod("a", "4")) == "18-21"
    assert POLICY_STATE_FILE not in one.files
    gone = restarted(node_with_a(), [])
    assert policy_state.decode(gone.files[POLICY_STATE_FILE]).classes == {}


def node_with_a() -> Node:
    one = node(STRICT, policy=GROWS)
    one.admit(pod("a", "4"))
    return one


def restarted(one: Node, pods: list[Any], without: str = "") -> Node:
    """Return the node on its own files, with its pods readmitted."""
    files = {name: data for name, data in one.files.items() if name != without}
    made = Node(one.rules.machine, one.rules.config, files=files, policy=one.rules.policy)
    assert made.readmit(pods) == []
    return made


def whole(cpu: str) -> Any:
    """Return a pod with pod CPUs, of which its container shares all."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    metadata = {"name": "w", "uid": "uid-w"}
    return pod_from_dict({"metadata": metadata, "spec": {"resources": resources, "containers": [{"name": "c"}]}})


def replace_cpu(resized: Any) -> Any:
    """Return the same pod, as it is resized."""
    return resized


@pytest.mark.parametrize(
    ("classes", "assign", "problem"),
    [
        ((P, P), (), "cpuClasses names performance twice"),
        ((P,), (AssignRule(("fast",)),), "assign[0].classes names fast, which is not a CPU class"),
        ((replace(P, overflow=("fast",)),), (), "cpuClasses[0].overflow names fast, which is not a CPU class"),
        ((CPUClass("x", ClassMatch(cpus="0-99")),), (), "cpuClasses[0].match.cpus names 24-99"),
        ((CPUClass("x", ClassMatch(cpus="a")),), (), "cpuClasses[0].match.cpus"),
    ],
)
def test_wrong_classes(classes: tuple[CPUClass, ...], assign: tuple[AssignRule, ...], problem: str) -> None:
    """A class that is not there, is named twice or lists CPUs that the machine lacks keeps the node from starting."""
    with pytest.raises(StartError) as error:
        node(assign, classes)
    assert error.value.stage == "policy"
    assert problem in str(error.value)


def test_answers_in_another_process() -> None:
    """Another process makes the same rules, with the machine's core types; not where rules look at pods."""
    one = node((AssignRule(("performance!",), qos=("Guaranteed",)),))
    other = build_rules(setup_of(one.rules))
    assert cpus(Node.of(other, one.state), pod("a", "4")) == cpus(one, pod("a", "4")) == "2-5"
    with pytest.raises(Exception, match="do not leave the node"):
        build_rules(setup_of(node(STRICT).rules))


@pytest.mark.parametrize("requested", ["", "low!"])
def test_moves_stay_in_a_class(requested: str) -> None:
    """A plan that makes room moves no container to CPUs that its required class leaves out."""
    machine = from_synthetic("pack:2 numa:1(memory=64GB) core:4 pu:1")
    halves = CPUClass("low", ClassMatch(cpus="0-3")), CPUClass("high", ClassMatch(cpus="4-7"))
    moving = PodslicePolicy(defrag=Defragmentation(movable="all"))
    one = node((), halves, machine, moving, reserved_system_cpus="0", topology_manager_policy="single-numa-node")
    assert cpus(one, pod("a", "1", annotation=requested)) == "1"
    plan = defragment(one, pod("new", "3", annotation="low!"))
    assert plan.fits == (not requested)
    assert [str(move.containers[0].cpus_after) for move in plan.moves] == ([] if requested else ["4"])


# Properties


@pytest.mark.parametrize("name", gallery_names())
def test_every_cpu_has_one_class(name: str) -> None:
    """On every machine of the gallery classes are disjoint and have all CPUs."""
    machine = load_named_machine(name, "--machine")
    classes = (CPUClass("low", ClassMatch(cpus="0")), P, E, CPUClass("first", ClassMatch(numa_nodes=(0,))))
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus=str(machine.cpus.bits.bit_length() - 1))
    policy = PodslicePolicy(cpu_classes=classes)
    found = Node(machine, config, policy=policy).view.cpu_classes
    assert found is not None
    assert union(found.cpus.values()) == cpu_topology(machine).all_cpus
    assert sum(members.bit_count() for members in found.cpus.values()) == cpu_topology(machine).all_cpus.bit_count()


ASKS = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(["", "performance", "performance!", "efficiency", "efficiency!", "isolated!"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=80)
@given(ASKS, st.sampled_from(["none", "best-effort", "restricted"]), st.sampled_from(["", "8-15", "20-23"]))
@pytest.mark.slow
def test_what_always_holds(asks: list[tuple[int, str, bool]], policy: str, isolated: str) -> None:
    """Required classes are never violated, `minShared` holds, and no sharer runs on nothing, on owned CPUs, or
    on isolated ones as long as there are others; the state files are those of a kubelet."""
    machine = replace(HYBRID, isolated=CPUSet.parse(isolated))
    one = node(SOFT, machine=machine, topology_manager_policy=policy)
    classes = one.view.cpu_classes
    assert classes is not None
    for number, (count, requested, leaves) in enumerate(asks):
        asked = pod(f"p{number}", str(count) if count else "", annotation=requested)
        decision = one.admit(asked)
        if decision.admitted and count and requested.endswith("!"):
            assert not decision.containers[0].cpus.bits & ~classes.cpus.get(requested[:-1], 0)
        if leaves and number % 2:
            one.remove(f"default.p{number - 1}")
        view = one.view
        assert (view.shared & classes.cpus["performance"]).bit_count() >= min(
            2, classes.cpus["performance"].bit_count()
        )
        for uid, held in view.pods.items():
            if uid in view.owners:
                continue
            runs = view.affinity(uid, held.containers[0].name)
            assert runs
            assert not runs & ~view.shared
            assert not runs & machine.isolated.bits or not view.shared & ~machine.isolated.bits
    Node(HYBRID, one.rules.config, profile="kubelet-1.36", files=one.manager_files)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.sampled_from(["none", "restricted", "single-numa-node"]))
def test_one_class_is_none(counts: list[int], policy: str) -> None:
    """With one class that has everything all decisions are those without classes."""
    machine = from_synthetic("pack:2 numa:2(memory=64GB) core:3 pu:2")
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy=policy)
    with_class = Node(machine, config, policy=PodslicePolicy(cpu_classes=(CPUClass("all"),)))
    without = Node(machine, config)
    for number, count in enumerate(counts):
        asked = make_pod(f"p{number}", ("c", str(count)))
        assert with_class.admit(asked) == without.admit(asked)


@given(st.lists(st.sampled_from([1, 2, 4]), max_size=12), st.integers(0, 30))
def test_sums_of_cores(sizes: list[int], limit: int) -> None:
    """The numbers that cores make up are those of all their subsets."""
    sums = {sum(some) for number in range(len(sizes) + 1) for some in combinations(sizes, number)}
    assert reachable_sums(sizes, limit) == bits_of(number for number in sums if number <= limit)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from(["none", "best-effort", "restricted"]))
def test_whole_cores_of_any_size(counts: list[int], policy: str) -> None:
    """Under `full-pcpus-only` no container gets part of a core, also where cores differ in size; a request is refused
    only if no free cores make it up."""
    one = node((), (), topology_manager_policy=policy, cpu_manager_policy_options=WHOLE)
    cores = cpu_topology(HYBRID).cores.values()
    for number, count in enumerate(counts):
        free = [core.bit_count() for core in cores if core & one.view.assignable == core]
        decision = one.admit(pod(f"p{number}", str(count)))
        assert decision.admitted == bool(reachable_sums(free, count) >> count & 1)
        if decision.admitted:
            mine = decision.containers[0].cpus.bits
            assert all(core & mine in (0, core) for core in cores)


@pytest.mark.parametrize(("strict", "most"), [("true", 54), ("false", 58)])
def test_min_shared_beside_a_reservation(strict: str, most: int) -> None:
    """Of 64 CPUs with 6 reserved and 4 kept shared 54 can be owned where the reservation is strict (KEP-4540's own
    example); without it the reserved ones are the shared ones."""
    machine = from_synthetic("pack:2 numa:1(memory=64GiB) core:16 pu:2")
    options = {"strict-cpu-reservation": strict}
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0-2,32-34", cpu_manager_policy_options=options,
        eviction_hard={},
    )  # fmt: skip
    policy = PodslicePolicy(cpu_classes=(CPUClass("all", min_shared=4),))
    for count in (most, most + 1):
        node = Node(machine, config, policy=policy)
        assert node.admit(make_pod("p", ("c", str(count)), memory="64Mi")).admitted == (count == most)
