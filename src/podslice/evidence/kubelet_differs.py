"""Whether the kubelet of the node's release answers otherwise than profile podslice, for the same pods on one node.

Who asks about a node of a cluster wants to know what its kubelet does; the default profile is a kubelet without the
defects in docs/deviations.md. Where these decide, one sentence says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from podslice.api.pod.spec import Pod
from podslice.config.policy import NO_POLICY
from podslice.node.decision import ContainerDecision, Decision
from podslice.node.node import Node
from podslice.values.errors import StartError, UpstreamDefectError
from podslice.values.quirks import PODSLICE

MOST_PODS: Final = 200
"""Pods that are compared at most: an answer about thousands is not made to wait."""


def kubelet_differs(node: Node, pods: Iterable[Pod]) -> str:
    """Return the first difference, as a sentence; empty where there is none, where the node's profile is a kubelet's,
    or where its PodslicePolicy asks for what no kubelet does. The node is left as it is."""
    rules = node.rules
    if rules.quirks != PODSLICE or rules.policy != NO_POLICY:
        return ""
    profile = f"kubelet-{rules.release}"
    try:
        empty = Node(
            rules.machine,
            rules.config,
            profile=profile,
            devices=rules.inventory,
            predicates=rules.predicates,
            cgroup_version=rules.cgroup_version,
        )
    except StartError as error:
        return _sentence(profile, f"would not start on this node: {error}")
    theirs, ours = Node.of(empty.rules, node.state), node.copy()
    for place, pod in enumerate(pods):
        if place == MOST_PODS:
            break
        name = pod.metadata.full_name
        try:
            theirs_answer = theirs.admit(pod)
        except UpstreamDefectError as defect:
            return _sentence(
                profile, f"would {'never answer' if defect.hangs else 'crash'} on {name}: {defect.because}"
            )
        difference = _difference(ours.admit(pod), theirs_answer, name)
        if difference:
            return _sentence(profile, difference)
    return ""


def _sentence(profile: str, difference: str) -> str:
    release = profile.partition("-")[2]
    return (
        f"A {release} kubelet {difference.rstrip('.')}. --profile {profile} predicts it; docs/deviations.md says why."
    )


def _difference(ours: Decision, theirs: Decision, name: str) -> str:
    if not theirs.admitted:
        if (ours.admitted, ours.reason, ours.message) == (False, theirs.reason, theirs.message):
            return ""
        return f"refuses {name} with {theirs.reason}: {theirs.message}"
    if not ours.admitted:
        return f"admits {name}"
    parts = list(_differing(ours.containers, theirs.containers))
    return f"places {name} otherwise: {'; '.join(parts)}" if parts else ""


def _differing(ours: Iterable[ContainerDecision], theirs: Iterable[ContainerDecision]) -> Iterator[str]:
    """Yield what containers get from a kubelet, and what from profile podslice."""
    for mine, other in zip(ours, theirs, strict=True):
        found = []
        if mine.exclusive_cpus != other.exclusive_cpus:
            found.append(f"CPUs {other.exclusive_cpus or 'none'} instead of {mine.exclusive_cpus or 'none'}")
        if mine.memory_nodes != other.memory_nodes:
            found.append(f"memory on NUMA {other.memory_nodes or 'any'} instead of {mine.memory_nodes or 'any'}")
        if mine.devices != other.devices:
            found.append(f"{_devices(other.devices)} instead of {_devices(mine.devices)}")
        if found:
            yield f"container {mine.name} gets {', '.join(found)}"


def _devices(devices: Mapping[str, list[str]]) -> str:
    return " ".join(f"{resource} {','.join(ids)}" for resource, ids in devices.items()) or "no devices"
