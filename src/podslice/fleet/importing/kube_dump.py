"""Dumps of a cluster in a folder: objects as kubectl prints them, and exports of metrics, each recognized by its
content.

Several dumps of pods, and metrics, become a history: a pod that is in one dump and not in the next has ended between.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from podslice.fleet.importing.kube_budgets import BUDGET, budget_of_object
from podslice.fleet.importing.kube_objects import objects_in, part, read_documents
from podslice.fleet.importing.kube_pods import SEEN_LAST, end_of, time_text
from podslice.fleet.importing.kube_reduce import Names, reduce_object
from podslice.fleet.importing.kube_snapshots import LIVE_NODE, SNAPSHOTS, AgentSnapshot, pods_of_agent, read_snapshot
from podslice.fleet.importing.layouts import nested_files, object_files
from podslice.fleet.importing.metrics_pods import metrics_pods
from podslice.fleet.importing.metrics_read import TEXT_ENDINGS, MetricsExport, is_metrics, read_answer, read_exposition
from podslice.fleet.importing.metrics_table import is_table, read_table
from podslice.values.errors import InputError
from podslice.values.quantity import plural

KINDS = ("Node", "Pod", "NodeResourceTopology", BUDGET)
_TIME = re.compile(r"(\d{4}-?\d{2}-?\d{2}T\d{2}:?\d{2}:?\d{2})")


class Dump(NamedTuple):
    """The content of a folder.

    - `objects`: reduced objects by kind; `pods`: those of pods by file, with the time of the file in milliseconds since
      1970.
    - `metrics`: exports.
    - `agents`: snapshots of agents, by node; `problems`: a line about each that cannot be used.
    """

    objects: dict[str, list[dict[str, Any]]]
    pods: list[tuple[int, list[dict[str, Any]]]]
    metrics: list[MetricsExport]
    agents: dict[str, AgentSnapshot]
    problems: list[str]


class DumpedHistory(NamedTuple):
    """Reduced pods, since when they are a history ("": they are not), and lines about them."""

    objects: list[dict[str, Any]]
    since: str
    assumed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_dump(folder: Path, names: Names) -> Dump:
    """Return the content of a folder. Raises `InputError`."""
    found = Dump({}, [], [], {}, [])
    nested = nested_files(folder)
    # Files of one must-gather are written over minutes, and are one dump: the time of the last counts for all.
    moment = max((_time_of(path) for path in nested), default=0)
    for path in (*object_files(folder), *nested):
        if path.suffix in TEXT_ENDINGS and (export := read_exposition(path, _time_of(path))) is not None:
            found.metrics.append(export)
        if is_table(path) and (export := read_table(path)) is not None:
            found.metrics.append(export)
        if path.suffix not in (".json", ".yaml", ".yml") and not _is_info_dump(path):
            continue
        pods: list[dict[str, Any]] = []
        documents = _documents(path)
        found.metrics.extend(read_answer(one, path) for one in documents if is_metrics(one))
        for data in objects_in(documents):
            if data["kind"] in SNAPSHOTS:
                _add_snapshot(found, read_snapshot(data, path), data["kind"])
            if data["kind"] not in KINDS:
                continue
            # Read for its errors only: a budget that cannot be used is reported with the file it stands in.
            if data["kind"] == BUDGET:
                budget_of_object(data, path)
            (pods if data["kind"] == "Pod" else found.objects.setdefault(data["kind"], [])).append(
                reduce_object(data, names)
            )
        if pods:
            found.pods.append((moment if path.parent != folder else _time_of(path), pods))
    return found


def _is_info_dump(path: Path) -> bool:
    """Whether a text file is what `kubectl cluster-info dump` prints: it begins with a list of the API."""
    if path.suffix not in ("", ".txt", ".log", ".out", ".dump"):
        return False
    with path.open("rb") as file:
        beginning = file.read(4096)
    return beginning.lstrip()[:1] == b"{" and b'"apiVersion"' in beginning


def _add_snapshot(dump: Dump, snapshot: AgentSnapshot | str, kind: str) -> None:
    """Add a snapshot of an agent. A `LiveNode`, which was asked for at that moment, replaces a `NodeState`."""
    if isinstance(snapshot, str):
        dump.problems.append(snapshot)
        return
    dump.problems.extend(snapshot.problems)
    if kind == LIVE_NODE or snapshot.node not in dump.agents:
        dump.agents[snapshot.node] = snapshot


def _documents(path: Path) -> list[Any]:
    """Return the documents of a file; none of a YAML file that cannot be read, which may not belong to the dump."""
    try:
        return read_documents(path)
    except InputError:
        if path.suffix == ".json":
            raise
        return []


def collect_pods(dump: Dump, names: Names, since: str, folder: Path) -> DumpedHistory:
    """Return the pods of all dumps and exports of a folder: as they are now, or a history. Raises `InputError` for
    metrics without any."""
    if not dump.metrics and not dump.pods:
        return DumpedHistory([reduce_object(pod, names) for pod in _pods_of_agents(dump, folder)], "")
    if not dump.metrics:
        return DumpedHistory(_history(dump.pods) if since else _latest(dump.pods), since)
    lines = tuple(line for one in dump.metrics for line in one.problems)
    found = metrics_pods((one for export in dump.metrics for one in export.series), _resources(dump.objects["Node"]))
    if not found.pods and not dump.pods:
        why = next(iter((*lines, *found.problems)), "no series")
        remedy = "export kube_pod_container_resource_requests"
        raise InputError(f"its metrics have no pods: {why}", source=str(folder), remedy=remedy)
    if dump.pods and not since:
        line = f"metrics of {plural(len(found.pods), 'pod')} are not used beside a dump: --since TIME makes a history"
        return DumpedHistory(_latest(dump.pods), since, (), (*lines, line, *found.problems))
    dumped = _history(dump.pods) if dump.pods else []
    uids = {part(one, "metadata").get("uid") for one in dumped}
    known = {_key(one)[:2] for one in dumped}
    more = [reduce_object(one, names) for one in found.pods]
    new = [one for one in more if not _is_known(one, uids, known)]
    return DumpedHistory([*dumped, *new], since or time_text(found.begin), found.assumed, (*lines, *found.problems))


def _pods_of_agents(dump: Dump, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the pods in snapshots of agents, or in the files that agents keep beside the state files of their nodes."""
    for one in dump.agents.values():
        yield from one.pods
    for beside in sorted((folder / "state").iterdir()) if (folder / "state").is_dir() else ():
        if beside.name not in dump.agents:
            yield from pods_of_agent(beside, beside.name)


def _is_known(pod: Mapping[str, Any], uids: Collection[Any], names: Collection[tuple[str, ...]]) -> bool:
    """Whether a dump has this pod of metrics too."""
    uid = part(pod, "metadata").get("uid")
    return uid in uids if uid else _key(pod)[:2] in names


def _resources(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for node in nodes:
        yield from (str(name) for name in part(part(node, "status"), "capacity"))
        yield from (str(name) for name in part(part(node, "status"), "allocatable"))


def _time_of(path: Path) -> int:
    """Return when a dump was made, in milliseconds since 1970: by its name (pods-2026-01-31T12:00:00Z.json), else when
    the file was written."""
    match = _TIME.search(path.name)
    if match is None:
        return round(path.stat().st_mtime * 1000)
    try:
        return round(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        raise InputError("has no time in its name", source=str(path), remedy="pods-2026-01-31T12:00:00Z.json") from None


def _key(pod: Mapping[str, Any]) -> tuple[str, ...]:
    metadata = part(pod, "metadata")
    return str(metadata.get("namespace")), str(metadata.get("name")), str(metadata.get("uid"))


def _latest(dumps: Sequence[tuple[int, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return the pods of the last dump; dumps of one moment, such as of single namespaces, count as one."""
    last = max(at for at, _ in dumps)
    # A dump for each namespace takes a while, so their times differ; no pod is in two of them.
    named = any(at != last for at, _ in dumps) and _are_of_one_moment(dumps)
    return [pod for at, pods in dumps if at == last or named for pod in pods]


def _are_of_one_moment(dumps: Sequence[tuple[int, list[dict[str, Any]]]]) -> bool:
    """Whether no pod is in two of the dumps."""
    keys = [_key(pod) for _, pods in dumps for pod in pods]
    return len(set(keys)) == len(keys)


def _history(dumps: Sequence[tuple[int, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return all pods of several dumps. One that is in a dump and not in the next has ended half-way between."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    seen: dict[tuple[str, ...], int] = {}
    ordered = sorted(dumps, key=lambda dump: dump[0])
    for number, (_, pods) in enumerate(ordered):
        for pod in pods:
            # The later dump wins, since it has the pod's end if there is one.
            found[_key(pod)] = pod
            seen[_key(pod)] = number
    for key, pod in found.items():
        last = seen[key]
        if last + 1 < len(ordered) and end_of(pod) is None:
            end = (ordered[last][0] + ordered[last + 1][0]) // 2
            pod["metadata"]["annotations"] = {SEEN_LAST: time_text(end)}
    return list(found.values())
