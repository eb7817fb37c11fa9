"""Questions about a node or a pod beyond admission: why it is refused, what would help, what else would happen. No
function here changes a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

from podslice.advise.defrag.plan import Plan, moves_for_resize
from podslice.advise.defrag.plan import defragment as plan_moves
from podslice.advise.defrag.restarts import RestartPlan, plan_restarts
from podslice.advise.explain.explain import Explainer, Explanation, explain_each
from podslice.advise.explain.resize import ResizeExplanation
from podslice.advise.explain.resize import explain_resize as tell_resize
from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.facts import KnownNode
from podslice.advise.inspect.page import Page
from podslice.advise.lint.engine import lint_kubelet, lint_pod
from podslice.advise.lint.model import Finding
from podslice.advise.lint.registry import choose
from podslice.advise.lint.subject import NodeSubject, PodSubject, default_gates
from podslice.advise.trial.trial import Trial
from podslice.advise.whatif.compare import Outcome, Scenario, evaluate
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.machine.model import Machine
from podslice.node.node import Node, check_pod, with_default_uid
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.values.quirks import PROFILES

_FEW_RESTARTS = 3
# Weak keys: an explainer holds copies of the node, which should go when the node does.
_explainers: WeakKeyDictionary[Node, tuple[tuple[NodeRules, NodeState], Explainer]] = WeakKeyDictionary()


def explain(node: Node, pod: Pod, *, fixes: bool = True) -> Explanation:
    """Explain why a node admits or refuses a pod: the trace of the decision and its story in sentences.

    For a refused pod there are also the changes that make it fit, the best first; each was tried. The node stays as it
    is. Answers about the node are cached for the next pod until the node changes. `fixes` False leaves out the search
    for changes. Raises `InputError` for a pod with neither UID nor name.
    """
    pod = with_default_uid(pod)
    now = node.rules, node.state
    # Rules and state are immutable values, so an equal pair means that the cached answers still hold.
    known = _explainers.get(node)
    if known is None or known[0] != now:
        known = _explainers[node] = now, Explainer(Trial.of(node))
    return known[1].explain(pod, fixes=fixes)


def explain_all(node: Node, pods: Iterable[Pod], *, fixes: bool = True) -> Iterator[Explanation]:
    """Yield one explanation after the other, each as soon as it is ready. Admitted pods stay, on a copy of the node,
    for the pods after them."""
    for one in explain_each(node, map(with_default_uid, pods), fixes=fixes):
        yield one.explanation


def explain_resize(node: Node, pod: Pod, *, fixes: bool = True) -> ResizeExplanation:
    """Explain why a node grants or refuses the resize of a pod that is on it, and which changes would let it in; each
    was tried. The node stays as it is. Raises `InputError` as `Node.resize`."""
    return tell_resize(node, pod, fixes=fixes, moves=moves_for_resize)


def defragment(node: Node, pod: Pod, *, restarts: bool = False, most: int | None = None) -> Plan | RestartPlan:
    """Plan the fewest moves of running containers after which the node admits the pod, or with `restarts` the fewest
    pods that end and start again; at most `most`. Every plan was carried out on a copy of the node."""
    pod = with_default_uid(pod)
    if restarts:
        return plan_restarts(node, pod, most=_FEW_RESTARTS if most is None else most)
    return plan_moves(node, pod, most=most)


def whatif(pods: Sequence[Pod], scenarios: Iterable[Scenario], *, profile: str = "podslice") -> list[Outcome]:
    """Admit the same pods, in order, on an empty node of each scenario, and return numbers that can be compared."""
    return [evaluate(scenario, [with_default_uid(pod) for pod in pods], profile=profile) for scenario in scenarios]


def lint(
    subject: Pod | KubeletConfig,
    *,
    config: KubeletConfig | None = None,
    machine: Machine | None = None,
    policy: PodslicePolicy | None = None,
    profile: str = "podslice",
) -> list[Finding]:
    """Return findings about a pod, on a node with this configuration, machine and policy where they are given, or about
    a kubelet's configuration."""
    rules, beside = choose([], []), policy or NO_POLICY
    if isinstance(subject, KubeletConfig):
        return lint_kubelet(NodeSubject(subject, machine, profile=profile, policy=beside), rules)
    check_pod(subject)
    node = None if config is None else NodeSubject(config, machine, profile=profile, policy=beside)
    return lint_pod(PodSubject(subject, node, profile=profile, policy=policy), rules)


def inspect(pod: Pod, *, node: Node | None = None, profile: str = "podslice") -> Page:
    """Return what Kubernetes derives from a pod's resources: defaults, validation, QoS class, effective amounts, cgroup
    files, OOM scores, and what scheduler, quota and autoscalers count. With a node, also the pod's placement there."""
    check_pod(pod)
    if node is None:
        return inspect_pod(pod, default_gates(profile), PROFILES[profile])
    view = node.view
    memory = view.machine.memory
    known = KnownNode(view.config, memory_capacity=memory, allocatable=view.allocatable, policy=view.policy)
    return inspect_pod(with_default_uid(pod), view.gates, view.quirks, view=known, node=node.copy())
