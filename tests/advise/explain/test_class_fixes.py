"""Fixes of pods that CPU classes exclude: another class in the annotation, tried like every fix."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from podslice import PodslicePolicy
from podslice.advise.explain.explain import Explainer, explain
from podslice.advise.explain.fixes.changes import admits
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import Pod
from podslice.config.policy import AnnotationRules
from podslice.node.node import Node
from tests.node.plugins.test_classes import STRICT, node, pod


def class_fixes(on: Node, asked: Pod) -> list[Fix]:
    """Return those of a refused pod; each works."""
    told = explain(on, asked)
    assert not told.trace.admitted
    found = [fix for fix in told.fixes if fix.code == "other-class"]
    for fix in found:
        edited = fix.change.pod  # type: ignore[union-attr]
        assert admits(Trial.of(on), edited, fix.change)
        assert on.try_admit(edited).admitted
    return found


@pytest.mark.parametrize(
    ("cpu", "annotation", "text"),
    [("5", "efficiency!", "performance"), ("6", "c=efficiency!", "performance")],
    ids=["pod", "container"],
)
def test_another_class(cpu: str, annotation: str, text: str) -> None:
    """A pod that requires E cores, of which only six can be owned, gets P cores instead; the fix names what is given
    up."""
    on = node(STRICT)
    assert on.admit(pod("first", "3", annotation="efficiency!")).admitted
    (fix,) = class_fixes(on, pod("a", cpu, annotation=annotation))
    assert fix.losses == ("cpu-class",)
    assert [(edit.path, edit.before, edit.after) for edit in fix.edits] == [
        ("metadata.annotations[podslice.io/cpu-class]", annotation, text)
    ]
    assert fix.text == f"Request CPUs of class performance (annotation podslice.io/cpu-class: {text})"


def test_containers_keep_their_own_wishes() -> None:
    """Of a pod with several containers only those that own CPUs get another class."""
    on = node(STRICT)
    one = pod("a", "7", annotation="c=efficiency!,log=efficiency")
    (owner,) = one.spec.containers
    spec = replace(one.spec, containers=(owner, replace(owner, name="log", resources=half())))
    (fix,) = class_fixes(on, replace(one, spec=spec))
    assert fix.edits[0].after == "c=performance,log=efficiency"


def test_pods_are_told_apart_by_their_wishes() -> None:
    """One explainer for many pods: answers for one pod do not serve another with other classes."""
    on = node(STRICT)
    explainer = Explainer(Trial.of(on))
    refused = explainer.explain(pod("a", "9", annotation="efficiency!"))
    assert [fix.code for fix in refused.fixes if fix.code == "shrink"] == ["shrink"]
    again = explainer.explain(pod("twin", "9", annotation="efficiency!"))
    for told, name in ((refused, "a"), (again, "twin")):
        (fix,) = [one for one in told.fixes if one.code == "other-class"]
        edited = fix.change.pod  # type: ignore[union-attr]
        wish = (edited.metadata.annotations or {})["podslice.io/cpu-class"]
        assert (edited.metadata.name, wish) == (name, "performance")
    (larger,) = [fix for fix in explainer.explain(pod("b", "15")).fixes if fix.code == "shrink"]
    assert larger.edits[0].after == "14"


def half() -> Any:
    """Return half a CPU, which is shared."""
    (container,) = pod("x", "500m").spec.containers
    return container.resources


def test_no_class_does() -> None:
    """Nothing is proposed where no class has the CPUs, without classes, or where the namespace may not use
    annotations."""
    assert not class_fixes(node(STRICT), pod("a", "23"))
    asked = pod("a", "15")
    barred = PodslicePolicy(annotations=AnnotationRules(namespaces=("other",)))
    assert not class_fixes(node(STRICT, policy=barred), asked)
    plain = node((), ())
    assert not class_fixes(plain, pod("a", "23"))
