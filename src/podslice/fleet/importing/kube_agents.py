"""Snapshots of agents as parts of a dump: files of their nodes, Node objects where there are none, the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.config.policy import API_VERSION, KIND
from podslice.fleet.importing.kube_dump import Dump
from podslice.fleet.importing.kube_objects import name_of, part
from podslice.fleet.importing.kube_reduce import Names, reduce_object
from podslice.fleet.importing.kube_snapshots import make_node, snapshot_files
from podslice.values.errors import PodsliceError
from podslice.values.quantity import plural
from podslice.values.quirks import PROFILE_RELEASES, is_without_defects
from podslice.values.releases.table import DEFAULT

POLICY = "policy.yaml"


class AgentFiles(NamedTuple):
    """Files by their path in a dump; the policy of all agents as a file, empty where they have none or several; and
    lines about what does not fit."""

    files: Mapping[str, bytes]
    policy: bytes
    problems: tuple[str, ...]


def make_nodes(dump: Dump, names: Names) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return reduced Node objects of agents' nodes, and lines about them."""
    made: list[dict[str, Any]] = []
    problems = []
    for one in dump.agents.values():
        try:
            made.append(reduce_object(make_node(one), names))
        except PodsliceError as error:
            problems.append(f"node {one.node}: no Node object can be made of its agent's snapshot: {error}")
    if made:
        problems.insert(0, f"labels and taints of {plural(len(made), 'node')} are not known: kubectl get nodes -o json")
    return made, tuple(problems)


def collect_files(dump: Dump, names: Names) -> AgentFiles:
    """Return the files of agents' nodes. Raises `InputError` for a state file that cannot be read."""
    nodes = {name_of(one) for one in dump.objects["Node"]}
    files: dict[str, bytes] = {}
    problems = [*dump.problems]
    for one in dump.agents.values():
        if names.of(one.node) not in nodes:
            problems.append(
                f"an agent's snapshot is of {one.node}, which is not a node of the dump: "
                "they were made at different times"
            )
            continue
        files |= snapshot_files(one, names)
        if not is_without_defects(one.profile):
            problems.append(f"node {one.node}: its agent decides by profile {one.profile}: set profile in the scenario")
        elif PROFILE_RELEASES[one.profile] is not DEFAULT:
            release = PROFILE_RELEASES[one.profile]
            remedy = "kubernetes: auto in kubelets has each node of its own release"
            problems.append(f"node {one.node}: its agent decides as Kubernetes {release}: {remedy}")
    policy, lines = _policy(dump, names)
    return AgentFiles(files, policy, (*problems, *lines, *_missing_pods(dump, names)))


def _policy(dump: Dump, names: Names) -> tuple[bytes, tuple[str, ...]]:
    """Return the file of the policy that all agents share, and lines about it."""
    found: list[Mapping[str, Any]] = []
    for one in dump.agents.values():
        found += [] if one.policy in found else [one.policy]
    if not any(found):
        return b"", ()
    if names.hidden:
        return b"", ("the PodslicePolicy of agents is left out: it may contain names and labels",)
    if len(found) > 1:
        return b"", ("agents have different PodslicePolicies, which are left out: give them by policyByClass",)
    data = {"apiVersion": API_VERSION, "kind": KIND, "spec": _to_yaml_value(found[0])}
    return json.dumps(data, indent=1).encode(), ()


def _to_yaml_value(value: Any) -> Any:
    """Return a value as people write it in YAML: 60, not 60.0, and unset fields left out."""
    if isinstance(value, Mapping):
        return {key: _to_yaml_value(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_to_yaml_value(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _missing_pods(dump: Dump, names: Names) -> Iterator[str]:
    """Yield a line about pods that agents have and the dump of pods lacks, which was made before or after."""
    if not dump.pods:
        return
    dumped = {part(pod, "metadata").get("uid") for _, pods in dump.pods for pod in pods}
    uids = [part(pod, "metadata").get("uid") for one in dump.agents.values() for pod in one.pods]
    missing = sum(names.of(str(uid)) not in dumped for uid in uids)
    if missing:
        yield f"{plural(missing, 'pod')} of agents are not in the dump of pods: their resources are free"
