"""`allocated_pods_state` and `actuated_pods_state`: the resources that a kubelet granted to its pods, and those that it
last wrote into cgroups (pod-level-resources 15.4).

Both files have the same format: the content is a JSON string under a checksum of that string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.api.pod.spec import PodAllocation, ResourceList, ResourceRequirements
from podslice.values.go.godump import data_checksum, decode_data
from podslice.values.go.gojson import (
    CORRUPT,
    CheckpointError,
    GoMap,
    GoStruct,
    GoText,
    dump_map,
    dump_string,
    unmarshal,
)
from podslice.values.golang import quote
from podslice.values.quantity import ZERO, Quantity


def dump_requirements(resources: ResourceRequirements) -> str:
    """Return a `resources` stanza as Go writes it: limits before requests, empty ones left out."""
    members = []
    for name, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts:
            members.append(f'"{name}":{_dump_amounts(amounts)}')
    return f"{{{','.join(members)}}}"


def _dump_amounts(amounts: ResourceList) -> str:
    return dump_map({name: dump_string(str(quantity)) for name, quantity in amounts.items()})


def dump_data(allocations: Mapping[str, PodAllocation]) -> str:
    """Return the content of the file: allocations by pod UID."""
    if not allocations:
        return "{}"
    return f'{{"entries":{dump_map({uid: _dump_pod(pod) for uid, pod in allocations.items()})}}}'


def _dump_pod(allocation: PodAllocation) -> str:
    containers = dump_map({name: dump_requirements(own) for name, own in allocation.containers.items()})
    pod_level = "null" if allocation.pod_level is None else dump_requirements(allocation.pod_level)
    return f'{{"ContainerResources":{containers},"PodLevelResources":{pod_level}}}'


def encode(allocations: Mapping[str, PodAllocation]) -> bytes:
    """Return the file a kubelet writes, with its checksum."""
    data = dump_data(allocations)
    return f'{{"data":{dump_string(data)},"checksum":{data_checksum(data)}}}'.encode()


_AMOUNTS = GoMap("v1.ResourceList", GoText("string", Quantity.parse, ZERO))
_REQUIREMENTS: dict[str, Any] = {"limits": _AMOUNTS, "requests": _AMOUNTS}
_CONTENT = GoStruct(
    "state.PodResourceCheckpointInfo",
    {
        "entries": GoMap(
            "state.PodResourceInfoMap",
            GoStruct(
                "state.PodResourceInfo",
                {
                    "ContainerResources": GoMap(
                        "map[string]v1.ResourceRequirements", GoStruct("v1.ResourceRequirements", _REQUIREMENTS)
                    ),
                    "PodLevelResources": GoStruct("v1.ResourceRequirements", _REQUIREMENTS, pointer=True),
                },
            ),
        )
    },
)


def decode(data: bytes) -> dict[str, PodAllocation]:
    """Read a file without checking its checksum. Raises `CheckpointError`."""
    return _parse_allocations(decode_data(data).data)


def _parse_allocations(content: str) -> dict[str, PodAllocation]:
    fields = unmarshal(content.encode(), _CONTENT)
    return {
        uid: PodAllocation(
            {name: ResourceRequirements(**own) for name, own in (pod["ContainerResources"] or {}).items()},
            None if pod["PodLevelResources"] is None else ResourceRequirements(**pod["PodLevelResources"]),
        )
        for uid, pod in (fields["entries"] or {}).items()
    }


def load(data: bytes) -> dict[str, PodAllocation]:
    """Read a file as a kubelet does, checksum included. Raises `CheckpointError`; see `restore_failure`."""
    envelope = decode_data(data)
    if data_checksum(envelope.data) != envelope.checksum:
        raise CheckpointError(CORRUPT)
    return _parse_allocations(envelope.data)


def restore_failure(error: CheckpointError, file: str) -> str:
    """Return the message with which a kubelet stops that cannot read its file."""
    return (
        f"could not restore state from checkpoint: {error}, please drain this node and delete pod resource information "
        f"checkpoint file {quote(file)} before restarting Kubelet"
    )
