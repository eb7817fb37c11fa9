"""Assertions about pods for the tests of those who write manifests.

    node = Node(load_machine("epyc-9654-nps4"), load_kubelet_config("kubelet.yaml").config)
    for pod in load_pods("deploy/"):
        assert_aligned(node, pod)

A failed assertion says what `podslice explain` says: what is short, where, and changes that make the pod fit.
"""

from __future__ import annotations

from click import unstyle

from podslice.advise.explain.explain import explain
from podslice.advise.explain.table import fixes_text
from podslice.api.manifests.loaded import LoadedPod
from podslice.api.pod.spec import Pod
from podslice.node.decision import ContainerDecision, Decision
from podslice.node.node import Node

__all__ = ["assert_admitted", "assert_aligned"]

__tracebackhide__ = True
"""pytest shows the line of the test, not those of this module."""


def assert_admitted(node: Node, pod: Pod | LoadedPod) -> Decision:
    """Admit the pod and return the decision; the pod stays on the node, so that the next one finds less.

    Raises `AssertionError` for a refused pod, and `InputError` for a value that is no pod.
    """
    wanted = pod.pod if isinstance(pod, LoadedPod) else pod
    decision = node.admit(wanted)
    if not decision.admitted:
        # A refusal leaves the node as it was.
        found = explain(node, wanted)
        reasons = " ".join(found.why) or decision.why or decision.message
        fixes = unstyle(fixes_text(found.fixes, found.unsearched, wide=False))
        raise AssertionError(f"{_name(decision)} is refused ({decision.reason}): {reasons}\n\n{fixes}")
    return decision


def assert_aligned(node: Node, pod: Pod | LoadedPod) -> Decision:
    """Admit the pod as `assert_admitted` does, and return a decision that is `aligned`: every container that owns CPUs,
    memory of NUMA nodes or devices has all of them on one NUMA node.

    Raises `AssertionError` for a pod that is refused, owns nothing or is spread. The latter two stay on the node.
    """
    decision = assert_admitted(node, pod)
    if not decision.aligned:
        spread = "; ".join(filter(None, map(_places, decision.containers)))
        problem = f"is spread over NUMA nodes: {spread}" if spread else _nothing(node, decision)
        raise AssertionError(f"{_name(decision)} {problem}")
    return decision


def _name(decision: Decision) -> str:
    return f"{decision.namespace or 'default'}/{decision.name}"


def _nothing(node: Node, decision: Decision) -> str:
    policy = node.view.config.cpu_manager_policy
    return f"owns no CPUs, memory or devices: it is {decision.qos}, and the CPU Manager policy is {policy}"


def _places(one: ContainerDecision) -> str:
    """Return where a container is that is not on one NUMA node; empty for any other."""
    parts = (
        (f"CPUs {one.exclusive_cpus}", one.numa_nodes if one.exclusive_cpus else ()),
        ("memory", one.memory_nodes),
        ("devices", one.device_nodes),
    )
    nodes = {node for _, found in parts for node in found}
    if len(nodes) < 2:
        return ""
    return f"{one.name} has " + ", ".join(
        f"{what} on NUMA {','.join(map(str, found))}" for what, found in parts if found
    )
