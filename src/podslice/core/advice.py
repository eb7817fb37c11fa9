"""What a program asks about a node or a pod besides "may it run?": why not, what would help, what becomes of it.

Nothing here changes a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.defrag.plan import Plan
from podslice.core.defrag.plan import defragment as plan_moves
from podslice.core.defrag.restarts import RestartPlan, plan_restarts
from podslice.core.explain.explain import Explanation, explain_each
from podslice.core.inspect.build import inspect_pod
from podslice.core.inspect.facts import NodeView
from podslice.core.inspect.page import Page
from podslice.core.lint.engine import lint_kubelet, lint_pod
from podslice.core.lint.model import Finding
from podslice.core.lint.registry import choose
from podslice.core.lint.subject import NodeSubject, PodSubject, default_gates
from podslice.core.machine.model import Machine
from podslice.core.node import Node, identified
from podslice.core.pod.spec import Pod
from podslice.core.quirks import profile as quirks_of
from podslice.core.whatif import Outcome, Scenario, evaluate

_FEW_RESTARTS = 3


def explain(node: Node, pod: Pod, *, fixes: bool = True) -> Explanation:
    """Why a node admits or refuses a pod, and what would make a refused one fit: `Node.explain`."""
    return node.explain(pod, fixes=fixes)


def explain_all(node: Node, pods: Iterable[Pod], *, fixes: bool = True) -> Iterator[Explanation]:
    """One explanation after the other, each as soon as it is known; admitted pods are there for those after them, on a
    copy of the node."""
    for one in explain_each(node.kubelet, map(identified, pods), fixes=fixes):
        yield one.explanation


def defragment(node: Node, pod: Pod, *, restarts: bool = False, most: int | None = None) -> Plan | RestartPlan:
    """The fewest moves of running containers after which the node admits the pod, or with `restarts` the fewest pods
    that end and start again; at most so many. Every plan was carried out on a copy of the node."""
    pod = identified(pod)
    if restarts:
        return plan_restarts(node.kubelet, pod, most=_FEW_RESTARTS if most is None else most)
    return plan_moves(node.kubelet, pod, most=most)


def whatif(pods: Sequence[Pod], scenarios: Iterable[Scenario], *, profile: str = "podslice") -> list[Outcome]:
    """The same pods, in order, on an empty node of each scenario, in numbers that can be compared."""
    return [evaluate(scenario, [identified(pod) for pod in pods], profile=profile) for scenario in scenarios]


def lint(
    subject: Pod | KubeletConfig,
    *,
    config: KubeletConfig | None = None,
    machine: Machine | None = None,
    profile: str = "podslice",
) -> list[Finding]:
    """Findings about a pod, on a node with this configuration and machine where they are given, or about a kubelet's
    configuration."""
    rules = choose([], [])
    if isinstance(subject, KubeletConfig):
        return lint_kubelet(NodeSubject(subject, machine, profile=profile), rules)
    node = None if config is None else NodeSubject(config, machine, profile=profile)
    return lint_pod(PodSubject(subject, node, profile=profile), rules)


def inspect(pod: Pod, *, node: Node | None = None, profile: str = "podslice") -> Page:
    """What Kubernetes makes of a pod's resources: defaults, validation, QoS class, effective amounts, cgroup files, OOM
    scores, what scheduler, quota and autoscalers count. With a node, also what becomes of the pod there."""
    if node is None:
        return inspect_pod(pod, default_gates(profile), quirks_of(profile))
    kubelet = node.kubelet
    allocatable = kubelet.node_resources().allocatable
    view = NodeView(kubelet.config, memory_capacity=node.machine.memory, allocatable=allocatable)
    gates = kubelet.manager.context.gates
    return inspect_pod(identified(pod), gates, kubelet.quirks, view=view, node=node.copy())
