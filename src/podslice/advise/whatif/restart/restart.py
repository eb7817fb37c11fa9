"""Forecast what a start of the kubelet does to running pods: after a restart, a reboot, an upgrade, or with another
configuration.

A starting kubelet admits every running pod again on its state files. Before and after are two nodes on the same files:
one that goes on, and one that starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from podslice.advise.whatif.compare import Scenario
from podslice.api.pod.spec import Pod
from podslice.evidence.owners import read_owners
from podslice.node.checkpoints.content import Content, read_content
from podslice.node.decision import Decision
from podslice.node.node import Node, with_default_uid
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, format_bits, union
from podslice.values.errors import InputError, StartError, UpstreamDefectError
from podslice.values.go.gojson import CheckpointError

How = Literal["restart", "reboot"]
PodOutcome = Literal["stays", "moves", "refused", "ends"]
_NEVER = "Never"


class HoldingAfter(msgspec.Struct, frozen=True):
    """A holding of a container before and after the start (empty: none): `resource` is cpu, memory (its NUMA nodes) or
    a device's; `container` is empty for the CPUs of a whole pod."""

    container: str
    resource: str
    before: str
    after: str


class PodAfterRestart(msgspec.Struct, frozen=True):
    """A running pod after the start: it `stays`, `moves` (it goes on, and its holdings differ), is `refused` with the
    kubelet's reason and message, or `ends` (after a reboot nothing starts a pod with restartPolicy Never again)."""

    pod: str
    outcome: PodOutcome
    reason: str = ""
    message: str = ""
    holdings: tuple[HoldingAfter, ...] = ()


class RestartResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one start. `problem` and `remedy`: why the kubelet would not start, and what to do; then nothing
    else counts. `without_files`: the state files were deleted before. `leaked_cpus` are neither shared nor owned by a
    pod afterwards; `shared_before` and `shared_after` are the node's shared pool."""

    scenario: str
    how: How
    problem: str = ""
    remedy: str = ""
    without_files: bool = False
    pods: tuple[PodAfterRestart, ...] = ()
    leaked_cpus: str = ""
    shared_before: str = ""
    shared_after: str = ""

    @property
    def changes(self) -> bool:
        """Whether the start changes anything for a pod, or the kubelet does not start."""
        return bool(self.problem or self.leaked_cpus) or any(pod.outcome != "stays" for pod in self.pods)


class Before(NamedTuple):
    """What runs before the start: the pods, the state files by name, what each pod holds by UID, container and
    resource, the shared pool, and CPUs that leaked already. `whole`: all that pods hold is known, not CPUs alone."""

    pods: tuple[Pod, ...]
    files: Mapping[str, bytes]
    holdings: Mapping[str, Mapping[tuple[str, str], str]]
    shared: str = ""
    leaked: Bits = 0
    whole: bool = True


def look_before(scenario: Scenario, *, profile: str = "podslice") -> Before:
    """Return what runs on a scenario's node: as its state files say, or without them on a node that admits its running
    pods in order. Raises `StartError` for a kubelet that would not run, and `InputError` for running pods that it
    refuses."""
    pods = tuple(with_default_uid(pod) for pod in scenario.running)
    if not scenario.files:
        node = _node(scenario, {}, profile)
        for one in node.settle(pods, restored=False):
            raise InputError(
                f"{one.namespace}/{one.name} does not run there: {one.reason}",
                path="--pods",
                remedy="--state says what runs; without it the pods are admitted in order",
            )
        return _seen(pods, node.files, node.view)
    try:
        node = _node(scenario, scenario.files, profile)
        node.resume(pods)
    except (StartError, UpstreamDefectError):
        # The kubelet that wrote the files had another configuration; they say at least who owns which CPUs.
        return Before(pods, scenario.files, _owned_in(scenario.files), whole=False)
    return _seen(pods, scenario.files, node.view)


def _seen(pods: tuple[Pod, ...], files: Mapping[str, bytes], view: NodeView) -> Before:
    held = {pod.metadata.uid: _holdings(view, pod.metadata.uid) for pod in pods}
    return Before(pods, files, held, format_bits(view.shared), _leaked(view))


def _owned_in(files: Mapping[str, bytes]) -> dict[str, dict[tuple[str, str], str]]:
    """Return the CPUs of owners in state files by pod UID."""
    contents, found = dict[str, Content](), dict[str, dict[tuple[str, str], str]]()
    for name, data in files.items():
        with suppress(CheckpointError):
            contents[name] = read_content(data)
    for owner in read_owners(contents):
        found.setdefault(owner.uid, {})[owner.container, "cpu"] = format_bits(owner.cpus)
    return found


def restart(
    scenario: Scenario, before: Before, *, how: How = "restart", profile: str = "podslice"
) -> tuple[RestartResult, ...]:
    """Return the result of a start with the scenario's configuration. Where the kubelet does not start with the files
    there is a second one: that of a start after the files were deleted."""
    # A kubelet takes pods up in the order of their creation; without dates in the order given.
    pods = sorted(before.pods, key=_created)
    try:
        node = _node(scenario, before.files, profile)
        refused = _readmit(node, pods, how)
    except (StartError, UpstreamDefectError) as error:
        failed = _failed(scenario.name, how, error)
        fresh = _start_anew(scenario, before, pods, how, profile)
        return (failed,) if fresh is None else (failed, fresh)
    return (_result(scenario.name, how, before, _After(node.view, pods, refused)),)


def _start_anew(
    scenario: Scenario, before: Before, pods: Sequence[Pod], how: How, profile: str
) -> RestartResult | None:
    """Return the result of a start without state files; None where the kubelet does not start then either."""
    try:
        node = _node(scenario, {}, profile)
        refused = node.settle(pods, restored=False)
    except (StartError, UpstreamDefectError):
        return None
    found = _result(scenario.name, how, before, _After(node.view, pods, refused))
    return msgspec.structs.replace(found, without_files=True)


def _failed(scenario: str, how: How, error: StartError | UpstreamDefectError) -> RestartResult:
    if isinstance(error, UpstreamDefectError):
        return RestartResult(scenario, how, problem=f"the kubelet crashes or hangs ({error.name})")
    return RestartResult(scenario, how, problem=error.message, remedy=error.remedy)


def _node(scenario: Scenario, files: Mapping[str, bytes], profile: str) -> Node:
    return Node(
        scenario.machine,
        scenario.config,
        profile=profile,
        devices=scenario.devices,
        predicates=scenario.predicates,
        files=files,
        policy=scenario.policy,
    )


def _readmit(node: Node, pods: Sequence[Pod], how: How) -> list[Decision]:
    if how == "reboot":
        # Pods come back before the device plugins do.
        for resource in node.view.devices.resources:
            node.disconnect_devices(resource.resource, now=0)
    return node.readmit(pods)


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp


class _After(NamedTuple):
    view: NodeView
    pods: Sequence[Pod]
    refused: Sequence[Decision]


def _result(scenario: str, how: How, before: Before, after: _After) -> RestartResult:
    return RestartResult(
        scenario,
        how,
        pods=tuple(_pod_after(how, before, after, pod) for pod in after.pods),
        leaked_cpus=format_bits(_leaked(after.view) & ~before.leaked),
        shared_before=before.shared,
        shared_after=format_bits(after.view.shared),
    )


def _leaked(view: NodeView) -> int:
    """Return the CPUs that are neither shared nor owned by a pod of the node."""
    if not view.pins_cpus:
        return 0
    used = view.shared | view.reserved | union(view.owned_by(uid) for uid in view.pods)
    return view.topology.all_cpus & ~used & ~view.offline


def _pod_after(how: How, before: Before, after: _After, pod: Pod) -> PodAfterRestart:
    uid = pod.metadata.uid
    name = pod.metadata.full_name
    held = before.holdings.get(uid, {})
    refusal = next((one for one in after.refused if one.uid == uid), None)
    if refusal is not None:
        lost = tuple(HoldingAfter(container, resource, was, "") for (container, resource), was in held.items())
        return PodAfterRestart(name, "refused", refusal.reason, refusal.message, lost)
    holdings = tuple(_compare(held, _holdings(after.view, uid), whole=before.whole))
    if how == "reboot" and pod.spec.restart_policy == _NEVER:
        return PodAfterRestart(name, "ends", holdings=holdings)
    moves = any(one.before != one.after for one in holdings)
    return PodAfterRestart(name, "moves" if moves else "stays", holdings=holdings)


def _compare(
    held: Mapping[tuple[str, str], str], holds: Mapping[tuple[str, str], str], *, whole: bool
) -> Iterator[HoldingAfter]:
    """Yield every holding before and after; unless the `whole` is known before, only those that are."""
    for container, resource in dict.fromkeys((*held, *(holds if whole else ()))):
        key = container, resource
        yield HoldingAfter(container, resource, held.get(key, ""), holds.get(key, ""))


def _holdings(view: NodeView, uid: str) -> dict[tuple[str, str], str]:
    """Return what a pod holds by container and resource, as text."""
    pod = view.pods.get(uid)
    if pod is None:
        return {}
    found = {}
    if view.pod_cpus.get(uid):
        found["", "cpu"] = format_bits(view.pod_cpus[uid])
    for container in pod.containers:
        if cpus := view.assignment(uid, container.name):
            found[container.name, "cpu"] = format_bits(cpus)
        if nodes := view.numa_nodes(uid, container.name):
            found[container.name, "memory"] = format_bits(nodes)
        for resource, ids in view.devices_of(uid, container.name).items():
            found[container.name, resource] = ", ".join(ids)
    return found
