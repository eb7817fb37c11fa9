"""Compares the CPUs that running containers were given with those in the state.

A missing state file, or an old copy, looks like a good one. Containers that run on their own CPUs are better evidence:
the state is trusted only if it agrees with them, or they would be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from podslice.agent.kubelet.sources import ANY_CONTAINER, unit_uid
from podslice.agent.records import SandboxRecord
from podslice.agent.runtime.translate import pinning_in_environment
from podslice.node.cpu.state import Intent, PodCPUs
from podslice.node.node import Node
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import PodsliceError


class StateLostError(PodsliceError):
    """The state contradicts what a running container has."""


def check_claims(
    node: Node,
    sandboxes: Mapping[str, SandboxRecord],
    containers: Iterable[nri.Container],
    environment: Callable[[nri.Container], Mapping[str, str]],
    intents: Mapping[str, Intent],
    claimed: Callable[[nri.Container], Bits | None],
) -> None:
    """Check that every running container has the CPUs the state gives it. Raises `StateLostError`.

    CPUs of an unfinished resize (`intents`) are accepted as well. On a node that follows its machine, CPUs may have
    gone, come back or been replaced since. `environment` returns the variables a container was given; `claimed` the
    CPUs that a container has by claims of devices.
    """
    view = node.view
    follows = node.rules.policy.hotplug is not None
    for message in containers:
        sandbox = sandboxes.get(message.pod_sandbox_id)
        claim = pinning_in_environment(environment(message))
        if sandbox is None or message.state == nri.CONTAINER_STOPPED or claim is None:
            continue
        who = f"container {message.name} of pod {sandbox.identity}"
        by_claims = claimed(message)
        if by_claims:
            if by_claims != claim.cpus and not follows:
                raise StateLostError(f"its claims give {who} CPUs {format_bits(by_claims)}, it has {claim.cpu_list}")
            continue
        uid = sandbox.identity.uid
        pod = view.pods.get(uid) or view.pods.get(unit_uid(uid, message.name))
        if pod is None:
            raise StateLostError(f"the state knows nothing of CPUs {claim.cpu_list}, which {who} owns")
        names = {container.name: container for container in pod.containers}
        container = names.get(message.name) or names.get(ANY_CONTAINER)
        given = 0 if container is None else view.affinity(pod.uid, container.name)
        known = {given, *(had.assignments.get(message.name, 0) for had in _sides(intents, pod.uid))}
        ledger = 0 if container is None else view.assignment(pod.uid, container.name) or 0
        if follows and not claim.owned & view.topology.all_cpus & ~ledger:
            continue
        if claim.isolation == "mixed" and claim.own not in known | {ledger}:
            raise StateLostError(f"the state gives {who} CPUs {format_bits(ledger)}, it owns {format_bits(claim.own)}")
        if claim.isolation == "container" and claim.cpus not in known:
            raise StateLostError(f"the state gives {who} CPUs {format_bits(given)}, it owns {claim.cpu_list}")


def _sides(intents: Mapping[str, Intent], uid: str) -> tuple[PodCPUs, ...]:
    intent = intents.get(uid)
    return () if intent is None else intent.sides
