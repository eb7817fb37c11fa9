"""The document in which an agent describes its node to `kubectl podslice`."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.machine.documents import FileResource, Machine


class LivePod(msgspec.Struct, frozen=True):
    """A pod on the node: the fields of `metadata` and `spec` of a v1 Pod that decide about resources, and the
    `annotations` that a PodslicePolicy reads."""

    metadata: dict[str, str]
    spec: dict[str, Any]
    annotations: dict[str, str] = {}


class LiveNode(msgspec.Struct, frozen=True):
    """All that decides on a node: the machine, the managers' configuration (fields of a KubeletConfiguration), the pods
    in order of admission, the managers' state files by name, and plugin devices. `problem` is the reason why nothing
    can be decided, empty where it can. `policy` is the `spec` of the agent's PodslicePolicy."""

    node: str
    profile: str
    problem: str
    machine: Machine
    configuration: dict[str, Any]
    pods: tuple[LivePod, ...]
    files: dict[str, str]
    devices: tuple[FileResource, ...]
    policy: dict[str, Any] = {}
