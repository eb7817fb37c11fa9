"""Annotations of pods under `podslice.io/`, and the policies that allow them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice import KubeletConfig, Node, Pod, explain
from podslice.config.annotations import (
    CPU_POWER,
    IRQ,
    ISOLATION,
    LARGEST,
    MOVABLE,
    RESIZE,
    ResizeRequest,
    annotation_problems,
    container_movability,
    requested_guard,
    requested_resize,
)
from podslice.config.policy import (
    AnnotationRules,
    Defragmentation,
    ExclusiveResize,
    InterferenceGuards,
    PodslicePolicy,
    PowerProfile,
)
from podslice.node.decide import restart
from tests.node.resize.helpers import guaranteed, pod
from tests.node.resize.test_exclusive import MACHINE, held

ELASTIC = PodslicePolicy(resize=ExclusiveResize(exclusive=True), defrag=Defragmentation(carry_out="onRequest"))
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")


def annotated(cpu: str, *annotations: str, name: str = "p", namespace: str = "default", count: int = 1) -> Pod:
    """A pod with containers c0, c1… of this size; annotations as `KEY: VALUE`."""
    made = pod(*[guaranteed(cpu, "1Gi")] * count, name=name)
    said = dict(one.split(": ", 1) for one in annotations)
    metadata = msgspec.structs.replace(made.metadata, annotations=said, namespace=namespace)
    return msgspec.structs.replace(made, metadata=metadata)


def node(policy: PodslicePolicy = ELASTIC) -> Node:
    return Node(MACHINE, CONFIG, policy=policy)


def problem(text: str, key: str = RESIZE) -> str:
    """Return the error in a value, empty for a valid one."""
    found = list(annotation_problems(ELASTIC, annotated("2", f"{key}: {text}", count=2)))
    assert len(found) < 2
    return found[0].problem if found else ""


@pytest.mark.parametrize(
    ("text", "below", "delays"),
    [
        ("below-baseline=allow", {"c0", "c1"}, {}),
        ("shrink-delay=30", set(), {"c0": 30, "c1": 30}),
        (" shrink-delay=300 , below-baseline=allow ", {"c0", "c1"}, {"c0": 300, "c1": 300}),
        ("c1=below-baseline=allow", {"c1"}, {}),
        ("shrink-delay=30,c1=shrink-delay=0", set(), {"c0": 30, "c1": 0}),
    ],
)
def test_resize(text: str, below: set[str], delays: dict[str, float]) -> None:
    """Items are for every container or for one, which wins; white space around them does not count."""
    asked = requested_resize(ELASTIC, annotated("2", f"{RESIZE}: {text}", count=2))
    assert asked == ResizeRequest(
        frozenset(below), delays, pod_below=text.strip().endswith("allow") and "c1" not in text
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has an empty item"),
        ("below-baseline=allow,", "has an empty item"),
        ("below-baseline", 'below-baseline "" is not allow'),
        ("below-baseline=yes", 'below-baseline "yes" is not allow'),
        ("shrink-delay=301", 'shrink-delay "301" is not a whole number of seconds from 0 to 300'),
        ("shrink-delay=-1", 'shrink-delay "-1" is not a whole number of seconds from 0 to 300'),
        ("shrink-delay=1.5", 'shrink-delay "1.5" is not a whole number of seconds from 0 to 300'),
        ("shrink-delay=٣", 'shrink-delay "٣" is not a whole number of seconds from 0 to 300'),
        ("grow=4", 'names container "grow", which the pod does not have'),
        ("c0=grow=4", '"grow" is neither shrink-delay nor below-baseline'),
        ("web=below-baseline=allow", 'names container "web", which the pod does not have'),
        ("shrink-delay=1,shrink-delay=1", "has two values of shrink-delay for all containers"),
        ("c0=shrink-delay=1,c0=shrink-delay=2", "has two values of shrink-delay for container c0"),
        ("shrink-delay=1" + " " * LARGEST, f"is longer than {LARGEST} bytes"),
        ("c0=below-baseline=" + "x" * 99, f'below-baseline "{"x" * 37}..." is not allow'),
    ],
)
def test_wrong(text: str, expected: str) -> None:
    """An error is one line."""
    assert problem(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", {"c0": "true", "c1": "true"}),
        ("pinned-too,c1=false", {"c0": "pinned-too", "c1": "false"}),
        ("c1=true", {"c0": "false", "c1": "true"}),
        ("yes", '"yes" is none of true, false, pinned-too'),
        ("true,true", "has two values for all containers"),
        ("c9=true", 'names container "c9", which the pod does not have'),
        ("=true", 'names container "", which the pod does not have'),
    ],
)
def test_movable(text: str, expected: dict[str, str] | str) -> None:
    """A pod says which of its containers may be moved; one that says it wrongly has none."""
    if isinstance(expected, str):
        assert problem(text, MOVABLE) == expected
        expected = {"c0": "false", "c1": "false"}
    assert container_movability(ELASTIC, annotated("2", f"{MOVABLE}: {text}", count=2)) == expected


@pytest.mark.parametrize(("rule", "expected"), [("all", "true"), ("none", "false")])
def test_the_operator_decides(rule: Any, expected: str) -> None:
    """Where the policy says that all or no containers are movable, annotations are ignored."""
    policy = PodslicePolicy(defrag=Defragmentation(movable=rule))
    for said in ("true", "false"):
        assert container_movability(policy, annotated("2", f"{MOVABLE}: {said}")) == {"c0": expected}


def test_a_container_with_the_name_of_an_option() -> None:
    """Even such a name can be written."""
    made = annotated("2", f"{RESIZE}: shrink-delay=shrink-delay=7")
    (container,) = made.spec.containers
    spec = msgspec.structs.replace(made.spec, containers=(msgspec.structs.replace(container, name="shrink-delay"),))
    assert requested_resize(ELASTIC, msgspec.structs.replace(made, spec=spec)).delays == {"shrink-delay": 7}


@given(st.text(alphabet="c01=,-shrinkdelaybowte39 \x00é", max_size=60))
def test_any_text(text: str) -> None:
    """Whatever an annotation says, it counts whole or not at all, and what is wrong fits on one line."""
    made = annotated("2", f"{RESIZE}: {text}", f"{MOVABLE}: {text}")
    wrong = {one.key for one in annotation_problems(ELASTIC, made)}
    for one in annotation_problems(ELASTIC, made):
        assert one.message.isprintable()
    assert (requested_resize(ELASTIC, made) == ResizeRequest()) or RESIZE not in wrong
    assert container_movability(ELASTIC, made) == {"c0": "false"} or MOVABLE not in wrong


# On a node


def test_a_wrong_annotation_refuses_the_pod() -> None:
    """Nothing changes, and the message says which annotation and why."""
    here = node()
    before = here.files
    decision = here.admit(annotated("4", f"{RESIZE}: shrink-delay=soon"))
    assert (decision.admitted, decision.reason) == (False, "InvalidPodsliceAnnotation")
    assert decision.message == (
        f'annotation "{RESIZE}": shrink-delay "soon" is not a whole number of seconds from 0 to 300'
    )
    assert here.files == before


def test_it_can_count_for_nobody_instead() -> None:
    """With `invalid: ignore` the pod is admitted, the annotation does nothing, and an event says so."""
    policy = msgspec.structs.replace(ELASTIC, annotations=AnnotationRules(invalid="ignore"))
    here = node(policy)
    decision = here.admit(annotated("4", f"{RESIZE}: below-baseline=allow,shrink-delay=soon"))
    assert decision.admitted
    assert [(one.type, one.reason) for one in decision.events] == [("Warning", "InvalidPodsliceAnnotation")]
    assert here.resize(annotated("2")).outcome == "Infeasible"


@pytest.mark.parametrize(
    "policy",
    [
        PodslicePolicy(),
        PodslicePolicy(defrag=Defragmentation(carry_out="onRequest")),
        msgspec.structs.replace(ELASTIC, annotations=AnnotationRules(namespaces=("kube-*",))),
    ],
    ids=["no-policy", "other-section", "other-namespace"],
)
def test_elsewhere_it_is_passed_over(policy: PodslicePolicy) -> None:
    """Where no policy reads it, even a wrong annotation is no error: a pod may run on many clusters."""
    decision = node(policy).admit(annotated("4", f"{RESIZE}: nonsense"))
    assert decision.admitted
    assert decision.events == ()


def test_below_the_baseline() -> None:
    """A pod may give up what was promised to it where the policy alone would not let it."""
    here = node()
    here.admit(annotated("4", f"{RESIZE}: below-baseline=allow"))
    here.admit(annotated("4", name="q"))
    assert here.resize(annotated("2")).outcome == "Allocated"
    assert held(here) == "2-3"
    assert here.resize(annotated("2", name="q")).detail == "below_baseline"


def test_one_container_of_a_pod() -> None:
    """An option for one container does not apply to the other; the pod keeps everything."""
    here = node()
    here.admit(annotated("4", f"{RESIZE}: c1=below-baseline=allow", count=2))
    assert here.resize(annotated("2", count=2)).detail == "below_baseline"
    assert held(here) == "2-5"


def test_it_counts_from_the_admission_on() -> None:
    """A resize brings no annotations along, as for the API server."""
    here = node()
    here.admit(annotated("4"))
    assert here.resize(annotated("2", f"{RESIZE}: below-baseline=allow")).detail == "below_baseline"


def test_a_running_pod_stays() -> None:
    """A policy that came later refuses no running pod."""
    here = node(PodslicePolicy())
    running = annotated("4", f"{RESIZE}: nonsense")
    here.admit(running)
    again = Node(MACHINE, CONFIG, policy=ELASTIC, files=here.manager_files)
    assert again.readmit([running]) == []
    assert held(again) == "2-5"
    assert all(one.refusal is None for one in restart(again.rules, again.state).pods)


def test_explained() -> None:
    """The explanation names the annotation, and that leaving it out is what helps; nothing else is offered."""
    explanation = explain(node(), annotated("4", f"{RESIZE}: soon", f"{MOVABLE}: maybe"))
    assert explanation.trace.code == "invalid-annotation"
    assert f'annotation "{RESIZE}"' in " ".join(explanation.story)
    assert [(fix.code, fix.text) for fix in explanation.fixes] == [
        ("drop-annotation", f"Leave out the annotations {MOVABLE} and {RESIZE}")
    ]


GUARDED = PodslicePolicy(
    guards=InterferenceGuards(power_profiles={"latency": PowerProfile(governor="performance")}, claimable=("eth0-*",))
)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        (IRQ, "ban", {"": "ban", "c0": "ban", "c1": "ban"}),
        (IRQ, "keep,c1=claim:eth0-*", {"": "keep", "c0": "keep", "c1": "claim:eth0-*"}),
        (IRQ, "claim:nvme*", '"claim:nvme*" claims what guards.claimable does not name'),
        (IRQ, "sink", '"sink" is none of ban, keep, housekeeping, claim:GLOB'),
        (ISOLATION, "c0=isolated", {"c0": "isolated"}),
        (ISOLATION, "member", '"member" is none of shared, root, isolated'),
        (CPU_POWER, "latency", {"": "latency", "c0": "latency", "c1": "latency"}),
        (CPU_POWER, "fast", '"fast" is none of latency'),
    ],
)
def test_wishes_for_guards(key: str, text: str, expected: dict[str, str] | str) -> None:
    """Requests of containers to guards, as the policy allows; a wrong word is reported, and ignored."""
    made = annotated("2", f"{key}: {text}", count=2)
    problems = [one.problem for one in annotation_problems(GUARDED, made)]
    assert problems == ([expected] if isinstance(expected, str) else [])
    assert requested_guard(GUARDED, made, key) == ({} if isinstance(expected, str) else expected)
    assert requested_guard(ELASTIC, made, key) == {}


@given(st.text(max_size=40), st.sampled_from((IRQ, ISOLATION, CPU_POWER)))
def test_any_text_for_guards(text: str, key: str) -> None:
    """Any text can be parsed: a problem is one line, and without one there is at most one request per container."""
    made = annotated("2", count=2)
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations={key: text}))
    problems = [one.message for one in annotation_problems(GUARDED, made)]
    assert all("\n" not in one for one in problems)
    assert requested_guard(GUARDED, made, key).keys() <= ({"", "c0", "c1"} if not problems else set())
