"""The merge of the answers of the kubelet's own PodResources API with the agent's.

The kubelet beside the agent runs with its CPU and Memory Managers off: it reports containers, the devices of its
plugins and claims. The agent adds CPUs. Together they are what a client expects from one kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from podslice.service.proto import podresources_pb2 as api

Resources = TypeVar("Resources", api.ContainerResources, api.AllocatableResourcesResponse)


class Ours(NamedTuple):
    """The resources beside CPUs that the agent decides about: memory, and those of its device plugins."""

    memory: bool = False
    devices: frozenset[str] = frozenset()


def merge_pods(
    theirs: Iterable[api.PodResources], ours: Iterable[api.PodResources], own: Ours
) -> list[api.PodResources]:
    """Return the kubelet's pods in its order, merged with ours, then pods that only we know, which hold resources."""
    known: dict[tuple[str, str], list[api.PodResources]] = {}
    for pod in ours:
        known.setdefault((pod.namespace, pod.name), []).append(pod)
    pods = []
    for pod in theirs:
        # By name: the API has no UIDs. Pods of one name are matched in order, the newest first.
        same = known.get((pod.namespace, pod.name))
        pods.append(merge_pod(pod, same.pop(), own) if same else pod)
    return pods + [pod for rest in known.values() for pod in rest]


def merge_pod(theirs: api.PodResources, ours: api.PodResources, own: Ours) -> api.PodResources:
    """Return the kubelet's pod with our resources. Containers and fields that we do not know stay as they are."""
    mine = {container.name: container for container in ours.containers}
    pod = api.PodResources()
    pod.CopyFrom(theirs)
    for container in pod.containers:
        # What is left in `mine` afterwards is known to us alone; it holds resources and must be listed.
        if (known := mine.pop(container.name, None)) is not None:
            _merge_into(container, known, own)
    pod.containers.extend(mine.values())
    return pod


def _merge_into(theirs: Resources, ours: Resources, own: Ours) -> None:
    # The kubelet's own CPU Manager is off, so whatever it lists here is no assignment.
    del theirs.cpu_ids[:]
    theirs.cpu_ids.extend(ours.cpu_ids)
    if own.memory:
        del theirs.memory[:]
        theirs.memory.extend(ours.memory)
    _merge_devices(theirs.devices, ours.devices, own)


def merge_allocatable(
    theirs: api.AllocatableResourcesResponse, ours: api.AllocatableResourcesResponse, own: Ours
) -> api.AllocatableResourcesResponse:
    """Return the allocatable resources: our CPUs, and of the rest ours where we decide about it, else the kubelet's."""
    answer = api.AllocatableResourcesResponse()
    answer.CopyFrom(theirs)
    _merge_into(answer, ours, own)
    return answer


def _merge_devices(theirs: Any, ours: Iterable[api.ContainerDevices], own: Ours) -> None:
    """Replace the devices of our resources. A plugin registers either with us or with the kubelet."""
    kept = [device for device in theirs if device.resource_name not in own.devices]
    kept = [*kept, *ours]
    del theirs[:]
    theirs.extend(kept)
