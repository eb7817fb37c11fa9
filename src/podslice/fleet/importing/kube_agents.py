"""What agents told, beside the rest of a dump: files of their nodes, Node objects where there are none, the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.config.policy import API_VERSION, KIND
from podslice.fleet.importing.kube_dump import Dump
from podslice.fleet.importing.kube_objects import name_of, part
from podslice.fleet.importing.kube_reduce import Names, reduced
from podslice.fleet.importing.kube_snapshots import files_of, node_of_snapshot
from podslice.render.prose import counted
from podslice.values.errors import PodsliceError

POLICY = "policy.yaml"
_PROFILE = "podslice"


class AgentFiles(NamedTuple):
    """Files by their place in a dump; the policy of all agents as a file, empty where they have none or several; and
    lines about what does not fit."""

    files: Mapping[str, bytes]
    policy: bytes
    problems: tuple[str, ...]


def made_nodes(dump: Dump, names: Names) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Reduced Node objects of agents' nodes, and lines about them."""
    made: list[dict[str, Any]] = []
    problems = []
    for one in dump.agents.values():
        try:
            made.append(reduced(node_of_snapshot(one), names))
        except PodsliceError as error:
            problems.append(f"node {one.node}: what its agent told makes no node: {error}")
    if made:
        problems.insert(
            0, f"labels and taints of {counted(len(made), 'node')} are not known: kubectl get nodes -o json"
        )
    return made, tuple(problems)


def agent_files(dump: Dump, names: Names) -> AgentFiles:
    """What agents told of the nodes of a dump. Raises `InputError` for a state file that cannot be read."""
    nodes = {name_of(one) for one in dump.objects["Node"]}
    files: dict[str, bytes] = {}
    problems = [*dump.problems]
    for one in dump.agents.values():
        if names.of(one.node) not in nodes:
            problems.append(f"an agent told of {one.node}, which is no node of the dump: the two were made apart")
            continue
        files |= files_of(one, names)
        if one.profile != _PROFILE:
            problems.append(f"node {one.node}: its agent decides by profile {one.profile}: set profile in the scenario")
    policy, said = _policy(dump, names)
    return AgentFiles(files, policy, (*problems, *said, *_gone(dump, names)))


def _policy(dump: Dump, names: Names) -> tuple[bytes, tuple[str, ...]]:
    found: list[Mapping[str, Any]] = []
    for one in dump.agents.values():
        found += [] if one.policy in found else [one.policy]
    if not any(found):
        return b"", ()
    if names.hidden:
        return b"", ("the PodslicePolicy of agents is left out: it may tell names and labels",)
    if len(found) > 1:
        return b"", ("agents have different PodslicePolicies, which are left out: give them by policyByClass",)
    data = {"apiVersion": API_VERSION, "kind": KIND, "spec": _as_written(found[0])}
    return json.dumps(data, indent=1).encode(), ()


def _as_written(value: Any) -> Any:
    """Numbers as people write them in YAML: 60, not 60.0, and nothing for what is not set."""
    if isinstance(value, Mapping):
        return {key: _as_written(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_as_written(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _gone(dump: Dump, names: Names) -> Iterator[str]:
    """Pods that agents have and the dump of pods has not: it was made before or after."""
    if not dump.pods:
        return
    dumped = {part(pod, "metadata").get("uid") for _, pods in dump.pods for pod in pods}
    told = [part(pod, "metadata").get("uid") for one in dump.agents.values() for pod in one.pods]
    gone = sum(names.of(str(uid)) not in dumped for uid in told)
    if gone:
        yield f"{counted(gone, 'pod')} that agents told of are not in the dump of pods: what they had is free"
