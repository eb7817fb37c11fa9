"""Pods of a live cluster, from what kubectl prints: those that run now, or, of several dumps, those that ran since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.fleet.engine.shapes import Owner
from podslice.fleet.engine.workload import NEVER
from podslice.fleet.importing.kube_objects import listed, name_of, part, read_objects
from podslice.fleet.traces.reading import Constraints, constraints_of
from podslice.state_files.running import ENDED
from podslice.values.errors import InputError

SEEN_LAST = "podslice.dev/seen-last"
"""Annotation of a pod in an imported history: the moment at which it is taken to have ended."""
_OWNERS: dict[str, Owner] = {"Job": "job", "DaemonSet": "daemonset", "Node": "bare"}
_CONFIG_HASH, _MIRROR = "kubernetes.io/config.hash", "kubernetes.io/config.mirror"
_FIELDS = ("metadata", "spec", "status")


class ClusterPod(NamedTuple):
    """A pod of a dump: where it is (empty: nowhere yet), since when (text, as its status says), and who owns it; of a
    history also when it came and how long it ran (`NEVER`: to the end), in milliseconds."""

    name: str
    pod: Pod
    node: str
    since: str
    owner: Owner
    constraints: Constraints
    arrival: int = 0
    length: int = NEVER


class DumpedPods(NamedTuple):
    """Pods of a dump, those on nodes first in order of their start; and what was left out, in a line each."""

    pods: tuple[ClusterPod, ...]
    problems: tuple[str, ...]


@cache
def cluster_pods(path: Path, nodes: frozenset[str], since: str = "") -> DumpedPods:
    """The pods of a cluster that still count, or with `since` all that ran from then on. Raises `InputError` for a file
    that cannot be read."""
    return pods_of(read_objects(path, "Pod"), nodes, since)


def pods_of(objects: Iterable[Mapping[str, Any]], nodes: frozenset[str], since: str = "") -> DumpedPods:
    """As `cluster_pods`, of objects."""
    begin = None if not since else moment(since, "since")
    found: list[ClusterPod] = []
    problems: list[str] = []
    apart: list[str] = []
    for data in objects:
        if not since and part(data, "status").get("phase") in ENDED:
            continue
        name = f"{part(data, 'metadata').get('namespace') or 'default'}/{name_of(data)}"
        node = str(part(data, "spec").get("nodeName") or "")
        if node and node not in nodes:
            apart.append(f"pod {name} is on {node}, which is no node of the dump: the two were made apart")
            continue
        try:
            one = _pod(data, name, node)
            one = one if begin is None else _timed(one, data, begin)
        except InputError as error:
            problems.append(f"pod {name} cannot be read: {error}")
            continue
        if one.length:
            found.append(one)
    if apart:
        more = [f"{len(apart)} pods in all are on nodes that are not in the dump"] if len(apart) > 1 else []
        problems = [apart[0], *more, *problems]
    found.sort(key=lambda one: (one.arrival, not one.node, one.since))
    return DumpedPods(tuple(found), tuple(problems))


def _pod(data: Mapping[str, Any], name: str, node: str) -> ClusterPod:
    metadata = part(data, "metadata")
    pod = pod_from_dict({field: part(data, field) for field in _FIELDS})
    kind = next((str(one.get("kind")) for one in listed(metadata, "ownerReferences")), "")
    owner: Owner = _OWNERS.get(kind, "deployment" if kind else "bare")
    return ClusterPod(name, pod, node, str(part(data, "status").get("startTime") or ""), owner, constraints_of(data))


def kubelet_uid(metadata: Mapping[str, Any]) -> str:
    """The UID under which a kubelet knows the pod: of a mirror pod, that of the static pod behind it."""
    annotations = part(metadata, "annotations")
    mirrored = annotations.get(_CONFIG_HASH) if _MIRROR in annotations else None
    return str(mirrored or metadata.get("uid") or "")


# Times


def moment(text: str, path: str) -> int:
    """Milliseconds since 1970 of a time as Kubernetes writes it. Raises `InputError`."""
    try:
        found = datetime.fromisoformat(text)
        return round(found.timestamp() * 1000) if found.tzinfo else _raise(text, path)
    except (ValueError, OverflowError):
        return _raise(text, path)


def time_text(at: int) -> str:
    """Milliseconds since 1970 as Kubernetes writes a time."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")


def _raise(text: str, path: str) -> int:
    raise InputError(f"{text!r} is no time", path=path, remedy="write 2026-01-31T12:00:00Z") from None


def _timed(one: ClusterPod, data: Mapping[str, Any], begin: int) -> ClusterPod:
    """A pod in time that is counted from `begin`. Who ran then is on its node; for others the scheduler decides."""
    metadata = part(data, "metadata")
    came = moment(str(metadata.get("creationTimestamp") or one.since), "metadata.creationTimestamp")
    ended = ended_at(data)
    arrival = max(came - begin, 0)
    length = NEVER if ended is None else max(ended - begin - arrival, 0)
    return one._replace(node=one.node if came <= begin else "", arrival=arrival, length=length)


def ended_at(data: Mapping[str, Any]) -> int | None:
    """When a pod ended, in milliseconds since 1970: as its containers say, or as an import found; None: it runs."""
    metadata, status = part(data, "metadata"), part(data, "status")
    seen = part(metadata, "annotations").get(SEEN_LAST)
    if seen:
        return moment(str(seen), f"metadata.annotations[{SEEN_LAST}]")
    if status.get("phase") not in ENDED:
        return None
    ends = [part(part(one, "state"), "terminated").get("finishedAt") for one in listed(status, "containerStatuses")]
    times = [moment(str(end), "status.containerStatuses.state.terminated.finishedAt") for end in ends if end]
    return max(times, default=moment(str(status.get("startTime") or metadata.get("creationTimestamp")), "status"))
