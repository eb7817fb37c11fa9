"""Containers with exclusive and shared CPUs: what they get, when they are refused, and what survives a restart."""

from __future__ import annotations

import re
from typing import Any

import pytest

from podslice import KubeletConfig, Node, PodslicePolicy, StartError
from podslice.advise.explain.explain import explain_each
from podslice.config.policy import AnnotationRules, ClassMatch, CPUClass, MixedCPUs
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.render.picture import picture_of
from podslice.render.svg import to_svg
from podslice.render.terminal import to_text
from podslice.values.cpuset import format_bits
from tests.node.mixed.helpers import ELASTIC, TWO_NODES, node, owns, pod, runs_on

WHOLE_PODS: dict[str, Any] = {
    "topology_manager_scope": "pod",
    "topology_manager_policy": "restricted",
    "feature_gates": {"PodLevelResources": True, "PodLevelResourceManagers": True},
}


def test_the_worked_example() -> None:
    """5500m with 5 exclusive CPUs: these are assigned, and the container runs on the shared ones too."""
    one = node()
    decision = one.admit(pod("a", "5500m", asks="5"))
    (got,) = decision.containers
    assert (str(got.exclusive_cpus), str(got.cpus), got.isolation, got.cfs_quota) == ("2-6", "0-31", "mixed", False)
    assert (owns(one, "a"), format_bits(one.view.shared)) == ("2-6", "0-1,7-31")
    one.admit(pod("b", "4"))
    assert (owns(one, "b"), runs_on(one, "a")) == ("8-11", "0-7,12-31")


def test_shared_ones_nearby() -> None:
    """With near: numa the shared part is on the NUMA nodes of the exclusive one, and shrinks as others come."""
    one = node(MixedCPUs(near="numa"))
    one.admit(pod("a", "5500m", asks="5"))
    assert runs_on(one, "a") == "0-15"
    one.admit(pod("b", "4"))
    assert runs_on(one, "a") == "0-7,12-15"


def test_nothing_nearby() -> None:
    """A container shares CPUs of other nodes if its NUMA nodes have no shared CPU."""
    one = node(MixedCPUs(near="numa"), reserved_system_cpus="16-17")
    one.admit(pod("a", "16500m", asks="all"))
    assert (owns(one, "a"), runs_on(one, "a")) == ("0-15", "0-31")


def test_a_pool_by_hand() -> None:
    """Listed CPUs are the shared part whatever others have; ones that containers may own are no pool."""
    one = node(MixedCPUs(pool="0-1"))
    one.admit(pod("a", "5500m", asks="5"))
    one.admit(pod("b", "4"))
    assert runs_on(one, "a") == "0-6"
    with pytest.raises(StartError, match=r"mixed.pool names CPUs that containers may own: 2"):
        node(MixedCPUs(pool="0-2"))
    with pytest.raises(StartError, match=r"mixed.pool names 99"):
        node(MixedCPUs(pool="99"))
    with pytest.raises(StartError, match=r"mixed.pool 'all of them' is not a CPU, nor a range of CPUs"):
        node(MixedCPUs(pool="all of them"))
    with pytest.raises(StartError, match=r"mixed.pool '1-0' ends before it begins"):
        node(MixedCPUs(pool="1-0"))


def test_a_pool_of_a_class_that_nobody_owns() -> None:
    """CPUs of a class with exclusive: never are a pool too."""
    policy = PodslicePolicy(cpu_classes=(CPUClass("rest", ClassMatch(cpus="28-31"), exclusive="never"),))
    one = node(MixedCPUs(pool="28-31"), policy=policy)
    one.admit(pod("a", "2500m", asks="2"))
    assert runs_on(one, "a") == "2-3,28-31"


def test_the_shared_part_of_a_class() -> None:
    """The shared part is what a container that requests the same classes shares."""
    classes = (CPUClass("low", ClassMatch(cpus="0-15")), CPUClass("high", ClassMatch(cpus="16-31"), shared=False))
    one = node(policy=PodslicePolicy(cpu_classes=classes))
    one.admit(pod("a", "2500m", asks="2"))
    assert runs_on(one, "a") == "0-15"


def test_in_a_pod_with_cpus_of_its_own() -> None:
    """In a pod with a budget of 8 the slice is 2-6, the pool 7-9, and the mixed container runs on both."""
    decision = node(**WHOLE_PODS).admit(pod("a", "5500m", "", asks="c0=5", budget="8"))
    mixed, plain = decision.containers
    assert str(decision.pod_cpus) == "2-9"
    assert (str(mixed.exclusive_cpus), str(mixed.cpus), mixed.isolation) == ("2-6", "2-9", "mixed")
    assert (str(plain.cpus), plain.isolation) == ("7-9", "pod")


def test_a_pod_whose_budget_is_used_up() -> None:
    """A mixed container needs a shared CPU of its pod: without one the pod is refused in upstream's words."""
    scope = {**WHOLE_PODS, "topology_manager_policy": "best-effort"}
    decision = node(**scope).admit(pod("a", "5500m", asks="c0=5", budget="5"))
    assert decision.reason == "EmptyPodSharedPoolError"
    assert node(**WHOLE_PODS).admit(pod("a", "5500m", asks="c0=5", budget="6")).admitted


def test_init_containers_and_mixed_sidecars() -> None:
    """While an init container runs that owns CPUs, a mixed sidecar leaves it alone; and it may be mixed itself."""
    one = node(**WHOLE_PODS)
    decision = one.admit(pod("a", "", asks="i0=1,i1=2", budget="8", init=(("1500m", True), ("2500m", False))))
    sidecar, init, app = decision.containers
    assert str(sidecar.exclusive_cpus) == "2"
    assert not set(sidecar.during_init["i1"]) & set(init.exclusive_cpus)
    assert set(sidecar.exclusive_cpus) <= set(sidecar.during_init["i1"])
    assert not set(init.cpus) & set(sidecar.exclusive_cpus)
    assert set(app.cpus) == set(range(3, 10))


@pytest.mark.parametrize(
    ("cpu", "asks", "problem"),
    [
        ("5500m", "0", '"0" is neither a number of CPUs nor all'),
        ("5500m", "6", "wants 6 exclusive CPUs for container c0, which asks for 5500m CPUs"),
        ("5500m", "some", '"some" is neither a number of CPUs nor all'),
        ("5500m", "-1", '"-1" is neither a number of CPUs nor all'),
        ("5500m", "²", '"²" is neither a number of CPUs nor all'),
        ("5500m", "00005", '"00005" is neither a number of CPUs nor all'),
        ("5500m", "x=5", 'names container "x", which the pod does not have'),
        ("5500m", "5,4", "has two values for all containers"),
        ("5500m", "c0=5,c0=5", "has two values for container c0"),
        ("5500m", "5,", "has an empty item"),
        ("500m", "all", "is about container c0, which asks for 500m CPUs, less than a whole one"),
        ("5", "5", "leaves container c0 nothing to share, and mixed.free lets no container share without"),
        ("", "1", "is about container c0, whose pod is not Guaranteed"),
    ],
)  # fmt: skip
def test_wrong_annotations(cpu: str, asks: str, problem: str) -> None:
    """A wrong annotation refuses the pod and says why; where wrong ones are ignored the pod is as without it."""
    refused = node().admit(pod("a", cpu, asks=asks))
    assert (refused.reason, refused.message) == (
        "InvalidPodsliceAnnotation",
        f'annotation "podslice.io/mixed-cpus": {problem}',
    )
    lenient = PodslicePolicy(annotations=AnnotationRules(invalid="ignore"))
    passed, plain = node(policy=lenient).admit(pod("a", cpu, asks=asks)), node(None).admit(pod("a", cpu))
    assert passed.containers == plain.containers
    assert [event.message for event in passed.events] == [refused.message]


def test_a_container_that_is_not_guaranteed_by_itself() -> None:
    """In a pod with pod-level resources the container itself must be Guaranteed."""
    refused = node(**WHOLE_PODS).admit(pod("a", "", "2", asks="c0=1", budget="8"))
    assert "whose CPU and memory limits are not its requests" in refused.message


def test_no_section_no_effect() -> None:
    """Without the section, or in a namespace that may not ask, the annotation is passed over in silence."""
    plain = node(None).admit(pod("a", "5500m")).containers
    assert node(None).admit(pod("a", "5500m", asks="nonsense")).containers == plain
    elsewhere = PodslicePolicy(annotations=AnnotationRules(namespaces=("telco-*",)))
    assert node(policy=elsewhere).admit(pod("a", "5500m", asks="5")).containers == plain


def test_access_only() -> None:
    """Whole CPUs with access to shared ones are for so many containers as the policy says, on the node as a whole."""
    one = node(MixedCPUs(free=1))
    assert one.admit(pod("a", "5", asks="5")).containers[0].isolation == "mixed"
    again = one.admit(pod("b", "5", asks="all"))
    assert again.message.endswith(
        "leaves a container nothing to share, and 1 on the node share without already (mixed.free)"
    )
    one.remove("a")
    assert one.admit(pod("b", "5", asks="all")).admitted


def test_access_that_is_ignored() -> None:
    """With wrong annotations ignored, one container too many owns its CPUs and shares none; an event reports it."""
    one = node(MixedCPUs(free=1), policy=PodslicePolicy(annotations=AnnotationRules(invalid="ignore")))
    one.admit(pod("a", "5", asks="5"))
    decision = one.admit(pod("b", "3", asks="all"))
    assert (decision.containers[0].isolation, len(decision.containers[0].cpus)) == ("container", 3)
    assert [event.reason for event in decision.events] == ["InvalidPodsliceAnnotation"]
    assert not one.view.pods["b"].mixed


def test_quota() -> None:
    """CPU limits of mixed containers and their pods are off; with quota: total the container's counts."""
    for rules, wanted in ((MixedCPUs(), "max 100000"), (MixedCPUs(quota="total"), "550000 100000")):
        one = node(rules)
        one.admit(pod("a", "5500m", asks="5"))
        effects = one.effects("a")
        assert effects.containers[0].files["cpu.max"] == wanted
        assert effects.files["cpu.max"] == "max 100000"
        assert effects.containers[0].files["cpuset.cpus"] == "0-31"
        plain = node(None)
        plain.admit(pod("a", "5500m"))
        assert effects.containers[0].files["cpu.weight"] == plain.effects("a").containers[0].files["cpu.weight"]


def test_full_cores() -> None:
    """Only the exclusive part has to be whole cores."""
    options = {"cpu_manager_policy_options": {"full-pcpus-only": "true"}}
    assert node(**options).admit(pod("a", "4500m", asks="4")).admitted
    refused = node(**options).admit(pod("a", "5500m", asks="5"))
    assert refused.reason == "SMTAlignmentError"


@pytest.mark.parametrize(
    ("cpu", "outcome", "exclusive"),
    [
        ("5700m", "Allocated", "2-6"),
        ("7200m", "Allocated", "2-8"),
        ("4500m", "Infeasible", "2-6"),
        ("6", "Infeasible", "2-6"),
    ],
)
def test_resizes(cpu: str, outcome: str, exclusive: str) -> None:
    """The exclusive part is resized as exclusive CPUs are; the remainder alone changes nothing but the weight."""
    one = node(policy=ELASTIC)
    one.admit(pod("a", "5500m", asks="all"))
    assert one.resize(pod("a", cpu, asks="all")).outcome == outcome
    assert owns(one, "a") == exclusive
    assert runs_on(one, "a") == "0-31"


def test_an_exact_number_stays() -> None:
    """A container that asked for 5 exclusive CPUs has 5 whatever its request becomes, and never asks for fewer."""
    one = node(policy=ELASTIC)
    one.admit(pod("a", "5500m", asks="5"))
    assert one.resize(pod("a", "7500m", asks="5")).outcome == "Allocated"
    assert owns(one, "a") == "2-6"
    refused = one.resize(pod("a", "4500m", asks="5"))
    assert (refused.outcome, refused.detail) == ("Infeasible", "mixed_cpus")


def test_between_access_and_a_remainder() -> None:
    """With room in mixed.free a container moves between a remainder and none."""
    one = node(MixedCPUs(free=1), policy=ELASTIC)
    one.admit(pod("a", "4", asks="all"))
    assert one.resize(pod("a", "4500m", asks="all")).outcome == "Allocated"
    assert one.resize(pod("a", "4", asks="all")).outcome == "Allocated"
    assert (owns(one, "a"), runs_on(one, "a")) == ("2-5", "0-31")


def test_the_state_file() -> None:
    """The policy's state file names both parts; it goes with the pod."""
    one = node()
    one.admit(pod("a", "5500m", asks="5"))
    content = policy_state.decode(one.files[POLICY_STATE_FILE])
    assert {uid: {name: (part.exclusive, part.shared) for name, part in named.items()}
            for uid, named in content.mixed.items()} == {"a": {"c0": (5, 500)}}  # fmt: skip
    one.remove("a")
    assert not policy_state.decode(one.files[POLICY_STATE_FILE]).mixed


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("still", [MixedCPUs(), None])
def test_a_restart(still: MixedCPUs | None, *, lost: bool) -> None:
    """After a start the container has what it had, also where the policy says nothing of it any more; without our file
    the annotation says it again."""
    one = node()
    asked = pod("a", "5500m", asks="5")
    one.admit(asked)
    files = {name: data for name, data in one.files.items() if not (lost and name == POLICY_STATE_FILE)}
    again = node(still, files=files)
    assert not again.readmit([asked])
    assert owns(again, "a") == "2-6"
    assert runs_on(again, "a") == ("2-6" if lost and still is None else "0-31")


def test_another_policy_takes_nothing_away() -> None:
    """A policy without the section counts for pods to come; one that has shared CPUs keeps them."""
    one = node()
    one.admit(pod("a", "5500m", asks="5"))
    one.change_policy(PodslicePolicy())
    assert runs_on(one, "a") == "0-31"
    one.admit(pod("b", "5500m", asks="5"))
    assert owns(one, "b") == ""


def test_back_to_a_kubelet() -> None:
    """A kubelet starts on the files; the container keeps its exclusive CPUs and loses the shared ones."""
    one = node()
    asked = pod("a", "5500m", asks="5")
    one.admit(asked)
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0-1", topology_manager_policy="best-effort"
    )
    kubelet = Node(from_synthetic(TWO_NODES), config, profile="kubelet-1.36", files=one.files)
    assert not kubelet.readmit([asked])
    assert runs_on(kubelet, "a") == "2-6"


def test_what_people_are_shown() -> None:
    """A picture says what a mixed container runs on besides, and the classes of CPUs; explain says why it owns some."""
    classes = (CPUClass("low", ClassMatch(cpus="0-15")),)
    one = node(MixedCPUs(near="numa"), policy=PodslicePolicy(cpu_classes=classes))
    asked = pod("a", "5500m", asks="5")
    one.admit(asked)
    picture = picture_of(one.view)
    text = to_text(picture, width=120)
    assert "2-6  (exclusive; also on shared CPUs 0-1,7-15)" in text
    assert re.search(r"class low +0-15\n", text)
    drawn = to_svg(picture)
    assert "also on shared CPUs 0-1,7-15" in drawn
    assert "class default · 16-31" in drawn
    (explained,) = explain_each(node(), [asked])
    (facts,) = explained.explanation.trace.containers
    assert (facts.eligibility, facts.exclusive_cpus) == ("mixed", 5)
