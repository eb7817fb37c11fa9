"""Containers with exclusive CPUs grow and shrink in place."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import InputError, KubeletConfig, Node, Pod
from podslice.config.policy import ExclusiveResize, PodslicePolicy
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.decide import restart
from podslice.node.decision import ResizeDecision
from podslice.values.cpuset import format_bits
from tests.node.resize.helpers import guaranteed, pod

MACHINE = from_synthetic("pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)")
ELASTIC = ExclusiveResize(exclusive=True)
ALLOW = ExclusiveResize(exclusive=True, below_baseline="allow", eligibility_change="allow")
GATE = "InPlacePodVerticalScalingExclusiveCPUs"


def node(resize: ExclusiveResize = ELASTIC, *, profile: str = "podslice", gate: bool = False, **config: Any) -> Node:
    """32 CPUs on two sockets, siblings 2k and 2k+1, CPUs 0-1 reserved."""
    settings = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0-1",
        feature_gates={GATE: True} if gate else {},
        **config,
    )
    return Node(MACHINE, settings, profile=profile, policy=PodslicePolicy(resize=resize))


def one(cpu: str, name: str = "p") -> Any:
    return pod(guaranteed(cpu, "1Gi"), name=name)


def held(here: Node, name: str = "p", container: str = "c0") -> str:
    return format_bits(here.state.cpu.assignment(f"uid-{name}", container) or 0)


def resized(here: Node, *sizes: str) -> ResizeDecision:
    decisions = [here.resize(one(size)) for size in sizes]
    return decisions[-1]


@pytest.mark.parametrize(
    ("others", "sizes", "config", "expected"),
    [
        pytest.param((), ("4", "6"), {}, "2-7", id="grows-beside"),
        pytest.param(("10",), ("4", "8"), {"topology_manager_policy": "best-effort"}, "2-5,16-19", id="other-node"),
        pytest.param((), ("4", "12", "6"), {}, "2-7", id="any-order"),
        pytest.param((), ("4", "12", "4"), {}, "2-5", id="back-to-the-promise"),
        pytest.param((), ("4", "20"), {"topology_manager_policy": "restricted"}, "2-21", id="more-than-a-node"),
    ],
)
def test_sizes(others: tuple[str, ...], sizes: tuple[str, ...], config: dict[str, Any], expected: str) -> None:
    """A container keeps its CPUs when it grows and gives back loaned ones when it shrinks; the rest is shared."""
    here = node(**config)
    here.admit(one(sizes[0]))
    for index, size in enumerate(others):
        here.admit(one(size, f"other-{index}"))
    decision = resized(here, *sizes[1:])
    assert (decision.outcome, decision.message) == ("Allocated", "")
    assert held(here) == expected
    owned = here.state.cpu.assigned()
    assert here.state.cpu.default == here.topology.all_cpus & ~owned


def test_growth_waits_for_room() -> None:
    """A growth is deferred while another pod has the CPUs it needs; when that leaves, the container grows."""
    here = node(topology_manager_policy="single-numa-node")
    here.admit(one("4"))
    here.admit(one("10", "other"))
    before = here.files
    decision = here.resize(one("8"))
    assert decision.outcome == "Deferred"
    assert decision.message == "Resources cannot be allocated with Topology locality"
    assert here.files == before
    assert here.pending_resizes == ["uid-p"]
    here.remove("uid-other")
    assert [answer.outcome for answer in here.retry_resizes("pods_removed")] == ["Allocated"]
    assert held(here) == "2-9"


@pytest.mark.parametrize(
    ("size", "config", "message", "detail"),
    [
        ("2", {}, "cannot take exclusive CPUs below the 4 promised at admission (2-5)", "below_baseline"),
        ("4500m", {}, "resize would move the container between shared and exclusive CPUs", "eligibility_change"),
        (
            "5",
            {"cpu_manager_policy_options": {"full-pcpus-only": "true"}},
            "SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2",
            "smt_alignment",
        ),
        (
            "20",
            {"topology_manager_policy": "single-numa-node"},
            "Resources cannot be allocated with Topology locality",
            "topology",
        ),
        ("31", {}, "not enough cpus available to satisfy request: requested=31, available=30", "cpus"),
    ],
    ids=["below-the-promise", "shared", "part-of-a-core", "never-aligned", "more-than-there-are"],
)
def test_never(size: str, config: dict[str, Any], message: str, detail: str) -> None:
    """A resize that no departure would make possible is Infeasible at once, and changes no byte."""
    here = node(**config)
    here.admit(one("4"))
    before = here.files
    decision = here.resize(one(size))
    assert (decision.outcome, decision.detail) == ("Infeasible", detail)
    assert message in decision.message
    assert here.files == before
    assert here.pending_resizes == []


def test_the_last_shared_cpu() -> None:
    """Under `strict-cpu-reservation` a growth leaves the node a shared CPU: it waits where others have them, and is
    Infeasible where there are none without them either."""
    here = node(cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    here.admit(one("4"))
    never = here.resize(one("30"))
    assert (never.outcome, never.detail) == ("Infeasible", "cpus")
    assert "strict-cpu-reservation lends none" in never.message
    here.admit(one("20", "other"))
    assert here.resize(one("10")).outcome == "Deferred"
    assert here.resize(one("9")).outcome == "Allocated"
    assert here.shared_cpus.bits.bit_count() == 1


def test_the_policy_allows() -> None:
    """With the policy's leave a container gives up promised CPUs, all of them too, and gets some again."""
    here = node(ALLOW)
    here.admit(one("4"))
    assert resized(here, "2").outcome == "Allocated"
    assert held(here) == "2-3"
    assert here.state.cpu.promised("uid-p", "c0").bit_count() == 2
    assert resized(here, "2500m").outcome == "Allocated"
    assert here.state.cpu.assigned() == 0
    assert resized(here, "6").outcome == "Allocated"
    assert held(here) == "2-7"


def test_alignment_is_kept_by_whole_cores() -> None:
    """An aligned container does not spread if a NUMA node has enough CPUs but too few whole cores."""
    for policy, outcome, expected in (("restricted", "Infeasible", "4-7"), ("best-effort", "Allocated", "4-17")):
        here = Node(
            from_synthetic("pack:2 numa:1 core:8 pu:2(indexes=pu)"),
            KubeletConfig(
                cpu_manager_policy="static",
                cpu_manager_policy_options={"full-pcpus-only": "true"},
                reserved_system_cpus="1,3",
                topology_manager_policy=policy,
            ),
            policy=PodslicePolicy(resize=ELASTIC),
        )
        here.admit(one("4"))
        assert resized(here, "14").outcome == outcome
        assert held(here).startswith(expected)


def test_as_the_kep_says() -> None:
    """With `misfit: infeasible` a growth without room is refused for good."""
    here = node(ExclusiveResize(exclusive=True, misfit="infeasible"), topology_manager_policy="single-numa-node")
    here.admit(one("4"))
    here.admit(one("10", "other"))
    assert here.resize(one("8")).outcome == "Infeasible"


def test_several_containers() -> None:
    """One container of the pod gets the CPUs that another frees in the same resize."""
    here = node(topology_manager_policy="single-numa-node")
    here.admit(pod(guaranteed("2", "1Gi"), guaranteed("2", "1Gi")))
    assert here.resize(pod(guaranteed("2", "1Gi"), guaranteed("12", "1Gi"))).outcome == "Allocated"
    assert here.resize(pod(guaranteed("12", "1Gi"), guaranteed("2", "1Gi"))).outcome == "Allocated"
    assert [held(here, container=name) for name in ("c0", "c1")] == ["2-3,6-15", "4-5"]


def test_the_gate_will_do() -> None:
    """With upstream's gate profile podslice resizes, and profile kubelet-1.36 grants and leaves the CPUs."""
    for profile, expected in (("podslice", "2-7"), ("kubelet-1.36", "2-5")):
        here = Node(
            MACHINE,
            KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1", feature_gates={GATE: True}),
            profile=profile,
        )
        here.admit(one("4"))
        assert here.resize(one("6")).outcome == "Allocated"
        assert held(here) == expected


def test_without_leave() -> None:
    """Without gate and policy the answer is a kubelet's."""
    here = node(ExclusiveResize())
    here.admit(one("4"))
    decision = here.resize(one("6"))
    assert (decision.outcome, decision.detail) == ("Infeasible", "guaranteed_pod_cpu_manager_static_policy")


def test_order_of_arrival() -> None:
    """Promised CPUs come first for good; a CPU that leaves and comes back is the last."""
    here = node()
    here.admit(one("4"))
    resized(here, "12", "6", "8")
    assert here.state.cpu.loans == {"uid-p": {"c0": (6, 7, 8, 9)}}
    here.remove("uid-p")
    assert here.state.cpu.loans == {}


def test_a_kubelet_has_no_policy() -> None:
    """A profile that predicts a kubelet takes no policy but the empty one."""
    with pytest.raises(InputError, match="a kubelet has no such policy"):
        node(profile="kubelet-1.36")
    assert node(ExclusiveResize(), profile="kubelet-1.36").pods == ()


def pod_node(resize: ExclusiveResize = ELASTIC) -> Node:
    """As `node`, where pods with pod-level resources get pod CPUs."""
    settings = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0-1",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    return Node(MACHINE, settings, policy=PodslicePolicy(resize=resize))


def budget(cpu: str, slice_: str) -> Pod:
    """A pod with a budget, one container with a slice of its own, and one that shares the rest."""
    amounts = {"cpu": cpu, "memory": "2Gi"}
    return pod(guaranteed(slice_, "1Gi"), {}, pod_level={"requests": amounts, "limits": dict(amounts)})


def shown(here: Node) -> tuple[str, ...]:
    cpu = here.state.cpu
    return format_bits(cpu.pod_cpus["uid-p"]), held(here), held(here, container="c1")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([("10", "4")], ("2-11", "2-5", "6-11"), id="all-new-is-shared"),
        pytest.param([("8", "6")], ("2-9", "2-7", "8-9"), id="a-slice-grows-in-it"),
        pytest.param([("12", "4"), ("8", "4")], ("2-9", "2-5", "6-9"), id="back-to-the-promise"),
        pytest.param([("12", "10"), ("12", "4")], ("2-13", "2-5", "6-13"), id="a-slice-gives-back"),
        pytest.param([("12", "6"), ("10", "8")], ("2-11", "2-9", "10-11"), id="shrinks-while-a-slice-grows"),
        pytest.param([("20", "4")], ("2-21", "2-5", "6-21"), id="more-than-a-node"),
    ],
)
def test_pods_as_a_whole(sizes: list[tuple[str, str]], expected: tuple[str, ...]) -> None:
    """Pod CPUs, their slices and the pod's shared pool are resized together; promised CPUs stay."""
    here = pod_node()
    here.admit(budget("8", "4"))
    assert shown(here) == ("2-9", "2-5", "6-9")
    for cpu, own in sizes:
        decision = here.resize(budget(cpu, own))
        assert (decision.outcome, decision.message) == ("Allocated", "")
    assert shown(here) == expected
    assert here.state.cpu.default == here.topology.all_cpus & ~here.state.cpu.pod_cpus["uid-p"]
    files = dict(here.files)
    again = Node.of(here.rules, restart(here.rules, here.state).state)
    assert shown(again) == expected
    now, then = again.state.cpu, here.state.cpu
    assert (now.assignments, now.loans, now.pod_loans) == (then.assignments, then.loans, then.pod_loans)
    assert dict(again.files) == files


def test_init_containers_of_a_divided_pod() -> None:
    """After a resize a plain init container has, as at admission, all pod CPUs but what sidecars before it own,
    or as much of that as it asks for."""
    inits = [
        {"name": "first"},
        guaranteed("2", "64Mi", name="sidecar", restartPolicy="Always"),
        {"name": "second"},
        guaranteed("3", "64Mi", name="third"),
    ]
    amounts = {"cpu": "8", "memory": "2Gi"}
    here = pod_node()
    here.admit(pod({}, init=inits, pod_level={"requests": amounts, "limits": amounts}))

    def sets() -> list[str]:
        return [held(here, container=name) for name in ("first", "sidecar", "second", "third", "c0")]

    assert sets() == ["2-9", "2-3", "4-9", "4-6", "4-9"]
    more = {"cpu": "12", "memory": "2Gi"}
    assert here.resize(pod({}, init=inits, pod_level={"requests": more, "limits": more})).outcome == "Allocated"
    assert sets() == ["2-13", "2-3", "4-13", "4-6", "4-13"]


@pytest.mark.parametrize(
    ("cpu", "own", "detail", "message"),
    [
        ("8", "8", "empty_pod_pool", "leaving no cpus for shared containers"),
        ("6", "4", "below_baseline", "cannot take exclusive CPUs below the 8 promised at admission (2-9)"),
        ("8", "2", "below_baseline", "cannot take exclusive CPUs below the 4 promised at admission (2-5)"),
        ("8500m", "4", "eligibility_change", "resize would move the pod between shared and exclusive CPUs"),
    ],
)
def test_never_for_a_pod(cpu: str, own: str, detail: str, message: str) -> None:
    """A resize that a pod as a whole can never have is Infeasible, and changes no byte."""
    here = pod_node()
    here.admit(budget("8", "4"))
    before = here.files
    decision = here.resize(budget(cpu, own))
    assert (decision.outcome, decision.detail) == ("Infeasible", detail)
    assert message in decision.message
    assert here.files == before


def test_a_pod_of_other_amounts() -> None:
    """A pod whose budget is not a whole number of CPUs shares the node's, whatever its containers ask for; it does not
    begin to own CPUs in a resize."""
    here = pod_node(ALLOW)
    here.admit(budget("7500m", "4"))
    assert here.resize(budget("7500m", "3")).outcome == "Allocated"
    assert here.resize(budget("7800m", "1500m")).outcome == "Allocated"
    assert here.resize(budget("8", "4")).detail == "eligibility_change"
    assert here.state.cpu.assignments == {}


def test_a_pod_below_its_promise() -> None:
    """With the policy's leave a pod gives up promised CPUs as well."""
    here = pod_node(ALLOW)
    here.admit(budget("8", "4"))
    assert here.resize(budget("4", "2")).outcome == "Allocated"
    assert shown(here) == ("2-5", "2-3", "4-5")
    assert here.resize(budget("6", "2500m")).outcome == "Allocated"
    assert shown(here) == ("2-7", "2-7", "2-7")
    assert here.resize(budget("6", "4")).outcome == "Allocated"
    assert shown(here) == ("2-7", "2-5", "6-7")


def again(here: Node, *pods: Pod) -> Node:
    """Return another process on the managers' files alone: an interrupted write is not known."""
    files = {name: data for name, data in here.manager_files.items() if name != "podslice_policy_state"}
    other = Node(MACHINE, here.rules.config, policy=here.rules.policy, files=files)
    assert other.readmit(pods) == []
    return other


@pytest.mark.parametrize("policy", ["none", "single-numa-node"])
def test_a_granted_growth_that_cannot_be_had(policy: str) -> None:
    """A running pod that was granted a growth of which the files know nothing, and for which there is no room, keeps
    what it has and is not refused; the growth waits, and comes when there is room."""
    here = node(topology_manager_policy=policy)
    for size in (one("4"), one("10", "q"), one("16", "r")):
        assert here.admit(size).admitted
    had = held(here)
    other = again(here, one("6"), one("10", "q"), one("16", "r"))
    assert held(other) == had
    assert other.pending_resizes == ["uid-p"]
    assert [decision.outcome for decision in other.retry_resizes()] == ["Deferred"]
    other.remove("uid-q")
    assert [decision.outcome for decision in other.retry_resizes("pods_removed")] == ["Allocated"]
    assert (held(other), other.pending_resizes) == ("2-7", [])


def test_a_granted_growth_that_can_be_had() -> None:
    """With room the pod grows at the start, and a shrink of which the files know nothing is carried out too."""
    here = node()
    here.admit(one("4"))
    assert held(again(here, one("6"))) == "2-7"
    here.resize(one("8"))
    assert held(again(here, one("8"))) == "2-9"
    assert held(again(here, one("6"))) == "2-7"


def test_pod_cpus_keeps_what_it_has() -> None:
    """So does a pod that has CPUs as a whole, with its slices."""
    here = pod_node()
    assert here.admit(budget("8", "4")).admitted
    assert here.admit(one("22", "q")).admitted
    other = again(here, budget("10", "6"), one("22", "q"))
    assert (format_bits(other.state.cpu.pod_cpus["uid-p"]), other.pending_resizes) == ("2-9", ["uid-p"])
    assert other.state.cpu.assignments["uid-p"] == here.state.cpu.assignments["uid-p"]
