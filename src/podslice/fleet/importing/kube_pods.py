"""Pods of a live cluster, from kubectl's output: those that run now, or, of several dumps, those that ran since a
moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.evidence.listed import ENDED
from podslice.fleet.engine.shapes import Owner
from podslice.fleet.engine.workload import NEVER
from podslice.fleet.importing.kube_objects import items_of, name_of, part, read_objects
from podslice.fleet.scheduler.placement import PlacementRules, placement_of
from podslice.values.errors import InputError

SEEN_LAST = "podslice.dev/seen-last"
"""Annotation of a pod in an imported history: the moment at which it is assumed to have ended."""
_OWNERS: dict[str, Owner] = {"Job": "job", "DaemonSet": "daemonset", "Node": "bare"}
_CONFIG_HASH, _MIRROR = "kubernetes.io/config.hash", "kubernetes.io/config.mirror"
_FIELDS = ("metadata", "spec", "status")


class ClusterPod(NamedTuple):
    """A pod of a dump.

    - `node`: where it is, "" for nowhere yet; `since`: when it started, as its status has it.
    - `owner`: kind of its owner.
    - `arrival`, `length`: of a history, when it was created and how long it ran (`NEVER`: to the end), in milliseconds.
    """

    name: str
    pod: Pod
    node: str
    since: str
    owner: Owner
    placement: PlacementRules
    arrival: int = 0
    length: int = NEVER


class DumpedPods(NamedTuple):
    """Pods of a dump, those on nodes first in order of their start; and a line about each that was left out."""

    pods: tuple[ClusterPod, ...]
    problems: tuple[str, ...]


@cache
def cluster_pods(path: Path, nodes: frozenset[str], since: str = "") -> DumpedPods:
    """Return the pods of a cluster that have not ended, or with `since` all that ran from then on. Raises `InputError`
    for a file that cannot be read."""
    return pods_of(read_objects(path, "Pod"), nodes, since)


def pods_of(objects: Iterable[Mapping[str, Any]], nodes: frozenset[str], since: str = "") -> DumpedPods:
    """Return the same for objects."""
    begin = None if not since else parse_time(since, "since")
    found: list[ClusterPod] = []
    problems: list[str] = []
    apart: list[str] = []
    for data in objects:
        if not since and part(data, "status").get("phase") in ENDED:
            continue
        name = f"{part(data, 'metadata').get('namespace') or 'default'}/{name_of(data)}"
        node = str(part(data, "spec").get("nodeName") or "")
        if node and node not in nodes:
            apart.append(f"pod {name} is on {node}, which is not a node of the dump: they were made at different times")
            continue
        try:
            one = _pod(data, name, node)
            one = one if begin is None else _with_times(one, data, begin)
        except InputError as error:
            problems.append(f"pod {name} cannot be read: {error}")
            continue
        # Pods that ended before the history begins have no length left.
        if one.length:
            found.append(one)
    if apart:
        more = [f"{len(apart)} pods in total are on nodes that are not in the dump"] if len(apart) > 1 else []
        problems = [apart[0], *more, *problems]
    found.sort(key=lambda one: (one.arrival, not one.node, one.since))
    return DumpedPods(tuple(found), tuple(problems))


def _pod(data: Mapping[str, Any], name: str, node: str) -> ClusterPod:
    metadata = part(data, "metadata")
    pod = pod_from_dict({field: part(data, field) for field in _FIELDS})
    kind = next((str(one.get("kind")) for one in items_of(metadata, "ownerReferences")), "")
    owner: Owner = _OWNERS.get(kind, "deployment" if kind else "bare")
    return ClusterPod(name, pod, node, str(part(data, "status").get("startTime") or ""), owner, placement_of(data))


def kubelet_uid(metadata: Mapping[str, Any]) -> str:
    """Return the UID under which a kubelet knows the pod: of a mirror pod, that of the static pod behind it."""
    annotations = part(metadata, "annotations")
    mirrored = annotations.get(_CONFIG_HASH) if _MIRROR in annotations else None
    return str(mirrored or metadata.get("uid") or "")


# Times


def parse_time(text: str, path: str) -> int:
    """Return milliseconds since 1970 of a time as Kubernetes writes it. Raises `InputError`."""
    try:
        found = datetime.fromisoformat(text)
        return round(found.timestamp() * 1000) if found.tzinfo else _reject(text, path)
    except (ValueError, OverflowError):
        return _reject(text, path)


def time_text(at: int) -> str:
    """Write milliseconds since 1970 as Kubernetes writes a time."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")


def _reject(text: str, path: str) -> int:
    raise InputError(f"{text!r} is not a time", path=path, remedy="write 2026-01-31T12:00:00Z") from None


def _with_times(one: ClusterPod, data: Mapping[str, Any], begin: int) -> ClusterPod:
    """Return the pod with times counted from `begin`. A pod that ran then keeps its node; others are placed by the
    scheduler."""
    metadata = part(data, "metadata")
    came = parse_time(str(metadata.get("creationTimestamp") or one.since), "metadata.creationTimestamp")
    ended = end_of(data)
    arrival = max(came - begin, 0)
    length = NEVER if ended is None else max(ended - begin - arrival, 0)
    return one._replace(node=one.node if came <= begin else "", arrival=arrival, length=length)


def end_of(data: Mapping[str, Any]) -> int | None:
    """Return when a pod ended, in milliseconds since 1970: by its containers, or by an import; None while it runs."""
    metadata, status = part(data, "metadata"), part(data, "status")
    seen = part(metadata, "annotations").get(SEEN_LAST)
    if seen:
        return parse_time(str(seen), f"metadata.annotations[{SEEN_LAST}]")
    if status.get("phase") not in ENDED:
        return None
    ends = [part(part(one, "state"), "terminated").get("finishedAt") for one in items_of(status, "containerStatuses")]
    times = [parse_time(str(end), "status.containerStatuses.state.terminated.finishedAt") for end in ends if end]
    return max(times, default=parse_time(str(status.get("startTime") or metadata.get("creationTimestamp")), "status"))
