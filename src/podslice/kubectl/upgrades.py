"""Effects of another kubelet release on the nodes of a cluster: each node by itself, equal ones as one pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from podslice.advise.upgrade.engine import Upgrade, walk
from podslice.advise.upgrade.table import count_pods
from podslice.evidence.provenance import describe_configuration, describe_machine
from podslice.kubectl.agents import AgentPod, Agents, NoAgentError, ask_agents, ask_in_parallel
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.documents import ClusterUpgradeReport, UnknownUpgrade, UpgradedNode, UpgradedPool
from podslice.kubectl.live import kubelet_version, remote_node
from podslice.node.node import Node
from podslice.replica.json_values import to_json
from podslice.replica.setup import setup_of
from podslice.values.errors import InputError
from podslice.values.releases.release import Release


class NodeOnItsWay(NamedTuple):
    """A node, the version of its kubelet (empty: not known), and the steps to the new release."""

    name: str
    kubelet: str
    node: Node
    steps: tuple[Upgrade, ...]


def _look(document: Mapping[Any, Any], name: str, to: Release, now: str, *, step_by_step: bool) -> NodeOnItsWay:
    """Return the upgrade of the node of a `LiveNode`. Raises `InputError` where nothing can be said of the node."""
    stated = kubelet_version(document)
    remote = remote_node(document, "", now or stated)
    if remote.node is None:
        raise InputError(f"nothing can be decided there: {remote.problem}", remedy="see podslice status")
    node = remote.node
    pods = [pod.spec for pod in node.view.pods.values()]
    steps = () if node.rules.release is to else tuple(walk(node, pods, to, step_by_step=step_by_step))
    return NodeOnItsWay(name, stated, node, steps)


def report_upgrades(
    answers: Iterable[tuple[str, Any]], to: Release, *, now: str = "", step_by_step: bool = False
) -> ClusterUpgradeReport:
    """Return the report about nodes, each with its name and its `LiveNode`, or the error in its place. `now`: the
    release that runs on them, instead of the one that each states."""
    alike: dict[bytes, list[NodeOnItsWay]] = {}
    unknown = []
    for name, answer in answers:
        try:
            if isinstance(answer, InputError):
                raise answer
            one = _look(answer, name, to, now, step_by_step=step_by_step)
        except InputError as error:
            unknown.append(UnknownUpgrade(name, str(error)))
            continue
        # Equal machines, configurations, devices, policies and releases have equal setups.
        alike.setdefault(to_json(replace(setup_of(one.node.rules), restored=())), []).append(one)
    pools = tuple(map(_pool, alike.values()))
    return ClusterUpgradeReport(str(to), any(pool.harms for pool in pools), pools, tuple(unknown))


def _pool(members: Sequence[NodeOnItsWay]) -> UpgradedPool:
    first = members[0]
    merged = tuple(
        _merge([(one.name, step) for one, step in zip(members, steps, strict=True)])
        for steps in zip(*(one.steps for one in members), strict=True)
    )
    rules = first.node.rules
    return UpgradedPool(
        tuple(map(_node, members)),
        describe_machine(replace(rules.machine, name="")),
        describe_configuration(rules.config),
        str(rules.release),
        any(step.harms for step in merged),
        merged,
    )


def _node(one: NodeOnItsWay) -> UpgradedNode:
    running = [change for step in one.steps for change in step.running]
    changed, harmed = count_pods(running), count_pods(change for change in running if change.harms)
    return UpgradedNode(one.name, one.kubelet, len(one.node.view.pods), changed, harmed)


def _merge(steps: Sequence[tuple[str, Upgrade]]) -> Upgrade:
    """Return the same step of several nodes as one: what is of the configuration once, and changes with their nodes."""
    first = steps[0][1]
    shared = [error for error in first.errors if all(error in step.errors for _, step in steps)]
    own = [f"{name}: {error}" for name, step in steps for error in step.errors if error not in shared]

    def with_nodes(field: str) -> Any:
        return tuple(replace(one, node=name) for name, step in steps for one in getattr(step, field))

    return replace(
        first,
        errors=(*shared, *own),
        configuration=tuple(dict.fromkeys(one for _, step in steps for one in step.configuration)),
        running=with_nodes("running"),
        recreated=with_nodes("recreated"),
        rollback=with_nodes("rollback"),
        also=tuple(dict.fromkeys(text for _, step in steps for text in step.also)),
    )


def ask_nodes(agents: Agents, names: Sequence[str], selector: str) -> list[tuple[str, Any]]:
    """Return the `LiveNode` of each node, or the error in its place: of the named nodes, else of those that a selector
    chooses, else of all with an agent. Raises `InputError`."""

    def ask(agent: AgentPod) -> Any:
        return agents.ask(agent, "/node")

    if not selector:
        return [(agent.node, answer) for agent, answer in ask_agents(agents, names, ask)]
    chosen = _selected_nodes(agents, selector)
    known = {agent.node: agent for agent in reversed(agents.all())}
    found = dict(ask_in_parallel([known[name] for name in chosen if name in known], ask))
    answers: dict[str, Any] = {agent.node: answer for agent, answer in found.items()}
    return [(name, answers.get(name, NoAgentError("no agent runs on it"))) for name in chosen]


def _selected_nodes(agents: Agents, selector: str) -> list[str]:
    """Return the names of the nodes with these labels. Raises `InputError` where there is none, or for what is no
    selector."""
    try:
        found = agents.cluster.items("/api/v1/nodes", {"labelSelector": selector})
    except ClusterError as error:
        if error.status != 400:
            raise
        remedy = "write a label selector such as node.kubernetes.io/instance-type=m7i.metal"
        raise InputError(error.problem, path="--selector", remedy=remedy) from None
    try:
        names = [str(node["metadata"]["name"]) for node in found]
    except (KeyError, TypeError):
        raise InputError("what answers is no API server: it lists what is no Node") from None
    if not names:
        raise InputError(f"no node has {selector}", path="--selector", remedy="kubectl get nodes --show-labels")
    return sorted(names)
