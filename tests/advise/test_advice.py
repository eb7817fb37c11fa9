"""The questions of a program, by the names of `podslice`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import podslice
from podslice import InputError, KubeletConfig, Node, NodeStore
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_node, make_pod


def test_explain_tells_why_and_what_helps() -> None:
    """A refused pod has a code, a story and fixes; asking changes nothing, and after the fix the pod is admitted."""
    node = make_node("pack:2 numa:1(memory=64GB) core:8 pu:2", topology_manager_policy="single-numa-node")
    before = dict(node.files)
    pod = make_pod("big", ("c", "20"))
    explanation = podslice.explain(node, pod)
    assert (explanation.trace.admitted, explanation.trace.code) == (False, "cpu-too-big")
    change = explanation.fixes[0].change
    assert isinstance(change, podslice.EditPod)
    assert dict(node.files) == before
    assert node.admit(change.pod).admitted


def test_explanations_follow_the_node() -> None:
    """Cached answers about a node serve only until the node changes."""
    node = make_node("pack:1 numa:1(memory=64GB) core:4 pu:2", topology_manager_policy="none")
    pod = make_pod("x", ("c", "6"))
    assert podslice.explain(node, pod).trace.admitted
    assert node.admit(make_pod("a", ("c", "4"))).admitted
    explanation = podslice.explain(node, pod)
    assert [fix.code for fix in explanation.fixes if fix.code == "evict-pods"] == ["evict-pods"]
    assert not node.admit(pod).admitted
    assert podslice.explain(node, pod) == explanation
    assert node.remove("a") is True
    assert podslice.explain(node, pod).trace.admitted


def test_explain_all_is_in_turn() -> None:
    """Explanations come one by one; admitted pods are there for the next, and not on the node."""
    node = make_node("pack:1 numa:1(memory=64GB) core:4 pu:2", topology_manager_policy="none")
    explanation = podslice.explain_all(node, [make_pod("a", ("c", "4")), make_pod("b", ("c", "4"))])
    assert [next(explanation).trace.admitted, next(explanation).trace.admitted] == [True, False]
    assert node.pods == ()


def test_defragment_by_moves_and_by_restarts() -> None:
    """A fragmented node gets a plan of one move, or of one restart."""
    node = make_node("pack:1 numa:2(memory=32GB) core:4 pu:2", topology_manager_policy="single-numa-node")
    for name in ("a", "b", "c"):
        assert node.admit(make_pod(name, ("c", "4"))).admitted
    node.remove("b" if node.kubelet.manager.cpu.state.assignments["b"]["c"] & 1 << 9 else "a")
    pod = make_pod("x", ("c", "7"))
    plan = podslice.defragment(node, pod)
    assert isinstance(plan, podslice.Plan)
    restart = podslice.defragment(node, pod, restarts=True)
    assert isinstance(restart, podslice.RestartPlan)
    assert plan.fits == restart.fits


def test_inspect_lint_and_whatif() -> None:
    """A page with the node's verdict, findings of a pod and of a configuration, outcomes of scenarios."""
    node = make_node()
    page = podslice.inspect(make_pod("p", ("c", "2")), node=node)
    assert page.placement is not None
    assert page.placement.admitted
    assert node.pods == ()
    assert podslice.inspect(make_pod("p", ("c", "2"))).placement is None
    config = node.kubelet.config
    found = podslice.lint(make_pod("p", ("c", "99")), config=config, machine=node.machine)
    assert "PS501" in {finding.id for finding in found}
    assert podslice.lint(KubeletConfig(cpu_manager_policy="static"))
    scenarios = [podslice.Scenario("now", node.machine, config)]
    outcomes = podslice.whatif([make_pod("p", ("c", "2"))], scenarios)
    assert [(one.scenario, one.admitted) for one in outcomes] == [("now", 1)]


def test_trying_leaves_the_node_alone() -> None:
    """`try_admit` answers what `admit` would, for pods that fit and pods that do not; a copy goes its own way."""
    node = make_node()
    before = dict(node.files)
    for pod in (make_pod("fits", ("c", "3")), make_pod("not", ("c", "99"))):
        tried = node.try_admit(pod)
        assert dict(node.files) == before
        assert tried == node.copy().admit(pod)
    assert node.pods == ()
    assert node.try_admit(make_pod("fits", ("c", "3"))) == node.admit(make_pod("fits", ("c", "3")))


def test_removing_says_whether_the_pod_was_there() -> None:
    """Removing an unknown pod changes nothing and answers False."""
    node = make_node()
    assert node.admit(make_pod("a", ("c", "1"))).admitted
    assert (node.remove("nope"), node.remove("a"), node.remove("a")) == (False, True, False)


@pytest.mark.parametrize(
    "ask",
    [
        lambda node, pod: node.admit(pod),
        podslice.explain,
        podslice.defragment,
        lambda _, pod: podslice.inspect(pod),
        lambda node, pod: podslice.inspect(pod, node=node),
        lambda _, pod: podslice.lint(pod),
    ],
)
def test_what_is_no_pod_is_said_to_be_none(ask: Any) -> None:
    """Plain data where a pod is meant is an InputError that names the function to make one."""
    with pytest.raises(InputError, match=r"pod: is a dict, not a Pod \(Pod.load"):
        ask(make_node(), {"kind": "Pod"})


def test_node_and_pod_in_the_wrong_order() -> None:
    """The node is named first."""
    with pytest.raises(InputError, match="pod: is a Node, not a Pod"):
        podslice.explain(make_pod("a", ("c", "1")), make_node())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cpuManagerPolicy": "static"}, "cpuManagerPolicy: .*did you mean cpu_manager_policy"),
        ({"cpu_manager_polici": "static"}, "did you mean cpu_manager_policy"),
        ({"max_pods": "5"}, "max_pods: '5': Expected `int`"),
        ({"reserved_memory": [{"numaNode": "x"}]}, "reserved_memory: "),
    ],
)
def test_mistakes_in_a_configuration_are_told_at_once(fields: dict[str, Any], said: str) -> None:
    """A field that does not exist, or a value of another type, is an InputError where it is written."""
    with pytest.raises(InputError, match=said):
        KubeletConfig(**fields)


def test_a_store_takes_a_path_as_text(tmp_path: Path) -> None:
    """The directory of a store may be a string."""
    store = NodeStore(str(tmp_path / "state"), from_synthetic("pack:1 numa:1(memory=8GB) core:4 pu:1"))
    assert (tmp_path / "state" / "cpu_manager_state").exists()
    assert isinstance(store.node, Node)
    assert store.remove("nope") is False
