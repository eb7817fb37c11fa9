"""Import a live cluster: from dumps to reduced copies and a scenario, with lines about what is missing and assumed.

Every file is read once and recognized by its content; folders with a file for each node by their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.fleet.importing.kube import MACHINE_ENDINGS, find_node_path, load_machine, node_files
from podslice.fleet.importing.kube_agents import POLICY, collect_files, make_nodes
from podslice.fleet.importing.kube_budgets import BUDGET
from podslice.fleet.importing.kube_dump import collect_pods, read_dump
from podslice.fleet.importing.kube_objects import name_of
from podslice.fleet.importing.kube_pods import cluster_pods, parse_time
from podslice.fleet.importing.kube_reduce import Names, reduce_file
from podslice.fleet.scenario.cells import Study
from podslice.fleet.scenario.run import find_startable, initial_pod_notes
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.host.machine_files import dump_machine
from podslice.host.state.statefile import RealFiles, write_atomically
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.values.errors import InputError
from podslice.values.quantity import plural

CONFIGZ, MACHINES, STATES = "configz", "machines", "state"
"""Folders with a file or a folder for each node."""
_WANTED = {
    "Node": ("nodes.json", "kubectl get nodes -o json > nodes.json"),
    "Pod": ("pods.json", "kubectl get pods -A -o json > pods.json"),
    "NodeResourceTopology": ("nrt.json", "kubectl get noderesourcetopologies -o json > nrt.json"),
}
_FILES = {kind: name for kind, (name, _) in _WANTED.items()} | {BUDGET: "budgets.json"}
_OF_NODES = {
    CONFIGZ: ("the configuration", "kubectl get --raw /api/v1/nodes/NODE/proxy/configz > configz/NODE.json"),
    MACHINES: ("the machine", "podslice topology --capture machines/NODE.tar.xz, on the node"),
    STATES: ("the state", "copy /var/lib/kubelet/*_state and device-plugins/kubelet_internal_checkpoint to state/NODE"),
}


class Imported(NamedTuple):
    """The result of an import.

    - `by_source`: nodes by the source of their machine.
    - `placed`, `pending`: pods on nodes, and pods that are pending (of a history: that arrive later).
    - `started`: lines about the pods at the beginning; `missing`, `assumed`, `problems`: a line each.
    - `since`: when a history begins.
    """

    nodes: int
    by_source: dict[str, int]
    placed: int
    pending: int
    started: tuple[str, ...]
    missing: tuple[str, ...]
    assumed: tuple[str, ...]
    problems: tuple[str, ...]
    since: str = ""


def import_cluster(folder: Path, out: Path, *, anonymise: bool, since: str = "") -> Imported:
    """Read the dumps of a folder and write a scenario with its files; with `since` several dumps of pods become a
    history. Raises `InputError`."""
    if not folder.is_dir():
        raise InputError("is not a folder", source=str(folder), remedy="give the folder with the dumps")
    if out.exists() and any(out.iterdir()):
        raise InputError("is not empty", source=str(out), remedy="name another --out")
    if since:
        parse_time(since, "--since")
    names = Names(hidden=anonymise)
    dump = read_dump(folder, names)
    unlabelled: tuple[str, ...] = ()
    if "Node" not in dump.objects:
        made, unlabelled = make_nodes(dump, names)
        dump.objects.update({"Node": made} if made else {})
    if "Node" not in dump.objects:
        raise InputError("holds no nodes", source=str(folder), remedy=_WANTED["Node"][1])
    hidden = len(dump.objects.pop(BUDGET, ())) if anonymise else 0
    pods = collect_pods(dump, names, since, folder)
    since = pods.since
    if pods.objects:
        dump.objects["Pod"] = pods.objects
    else:
        # A file without pods is written all the same: the scenario runs, and the line about it says what is missing.
        _write_text(out / _FILES["Pod"], json.dumps({"kind": "List", "apiVersion": "v1", "items": []}))
    agents = collect_files(dump, names)
    copied = _merge(agents.files, _copies(folder, dump.objects["Node"], names))
    if agents.policy:
        _write(out / POLICY, agents.policy)
    for kind, items in dump.objects.items():
        _write_text(out / _FILES[kind], json.dumps({"kind": "List", "apiVersion": "v1", "items": items}, indent=1))
    for name, data in copied.items():
        _write(out / name, data)
    _write_text(
        out / "scenario.yaml", _scenario(set(dump.objects), _folders(copied), since, POLICY if agents.policy else "")
    )
    result = _summarize(out, set(dump.objects), copied, since)
    line = f"{plural(hidden, 'PodDisruptionBudget')} left out: labels, by which they select, are hidden"
    return result._replace(
        assumed=(*result.assumed, *pods.assumed),
        problems=(*result.problems, *unlabelled, *agents.problems, *pods.problems, *([line] if hidden else ())),
    )


# Files of nodes


def _copies(folder: Path, nodes: Sequence[Mapping[str, Any]], names: Names) -> dict[str, bytes]:
    """Return reduced copies of the files of each node, by the name of the copy. Raises `InputError`."""
    found: dict[str, bytes] = {}
    # Dumps have the reduced names already, folders the real ones.
    known = {names.of(name): name for name in _names_in(folder)}
    for new in map(name_of, nodes):
        old = known.get(new)
        if old is None:
            continue
        if (path := find_node_path(_existing(folder / CONFIGZ), old, (".json",))) is not None:
            found[f"{CONFIGZ}/{new}.json"] = path.read_bytes()
        if (machine := load_machine(_existing(folder / MACHINES), old)) is not None:
            machine = msgspec.structs.replace(machine, name=new, source="")
            found[f"{MACHINES}/{new}.yaml"] = dump_machine(machine, "yaml").encode()
        for name, data in node_files(_existing(folder / STATES), old).items():
            if name != POLICY_STATE_FILE or not names.hidden:
                found[f"{STATES}/{new}/{name}"] = reduce_file(data, names, str(folder / STATES / old / name))
    return found


def _merge(agents: Mapping[str, bytes], copied: Mapping[str, bytes]) -> dict[str, bytes]:
    """Merge files of agents with copied ones. A copied state replaces the agent's as a whole; of configurations the
    agent's is used, because the agent decides."""
    states = {tuple(name.split("/")[:2]) for name in copied if name.startswith(f"{STATES}/")}
    kept = {name: data for name, data in agents.items() if tuple(name.split("/")[:2]) not in states}
    configurations = {name: data for name, data in agents.items() if name.startswith(f"{CONFIGZ}/")}
    return {**kept, **copied, **configurations}


def _existing(folder: Path) -> Path | None:
    return folder if folder.is_dir() else None


def _names_in(folder: Path) -> Iterator[str]:
    """Yield the names of nodes that have any file."""
    for place in _OF_NODES:
        for path in sorted((folder / place).iterdir()) if (folder / place).is_dir() else ():
            ending = next((one for one in MACHINE_ENDINGS if one and path.name.endswith(one)), "")
            yield path.name.removesuffix(ending)


def _folders(copied: Mapping[str, bytes]) -> set[str]:
    return {name.partition("/")[0] for name in copied}


# Summary


def _summarize(out: Path, kinds: set[str], copied: Mapping[str, bytes], since: str) -> Imported:
    """Read the written scenario and return the result of the import."""
    study = Study(load_scenario(out / "scenario.yaml"), out)
    by_source: dict[str, int] = {}
    assumed: dict[str, int] = {}
    for node in study.cluster.nodes:
        kind = study.cluster.classes[node.kind]
        by_source[kind.source] = by_source.get(kind.source, 0) + 1
        if kind.assumed:
            line = f"class {kind.name}: {kind.assumed}"
            assumed[line] = assumed.get(line, 0) + 1
    names = frozenset(node.name for node in study.cluster.nodes)
    dumped = cluster_pods(out / "pods.json", names, since) if "Pod" in kinds else None
    placed = sum(bool(pod.node) for pod in dumped.pods) if dumped else 0
    cells, not_started = find_startable(study)
    unfit = study.initial_fleet(cells[0]).problems if cells and study.cluster.starts else ()
    return Imported(
        len(names),
        by_source,
        placed,
        len(dumped.pods) - placed if dumped else 0,
        initial_pod_notes(study),
        tuple(_missing(kinds, copied, len(names))),
        tuple(f"{count} nodes of {line}" for line, count in assumed.items()),
        (*(dumped.problems if dumped else ()), *not_started, *unfit),
        since,
    )


def _missing(kinds: set[str], copied: Mapping[str, bytes], nodes: int) -> Iterator[str]:
    """Yield a line with a command for each kind of file that is missing."""
    for kind, (name, command) in _WANTED.items():
        if kind not in kinds:
            yield f"{name}: {command}"
    for folder, (what, command) in _OF_NODES.items():
        there = {name.split("/")[1] for name in copied if name.startswith(f"{folder}/")}
        if len(there) < nodes:
            yield f"{what} of {nodes - len(there)} of {nodes} nodes: {command}"


# Writing


def _scenario(kinds: set[str], folders: set[str], since: str, policy: str) -> str:
    """Return the text of the scenario file."""
    nodes = ["kubernetes: nodes.json"]
    nodes += ["topology: nrt.json"] if "NodeResourceTopology" in kinds else []
    fields = {CONFIGZ: "configurations", MACHINES: "machines", STATES: "states"}
    nodes += [f"{fields[folder]}: {folder}" for folder in fields if folder in folders]
    pods = f'{{cluster: pods.json, since: "{since}"}}' if since else "{cluster: pods.json}"
    work = f"  - {pods}" if "Pod" in kinds else f"  - {pods} # empty: there was no dump of pods"
    budgets = "\nbudgets: [{file: budgets.json}] # count with preemption: on" if BUDGET in kinds else ""
    now = f"{{policy: {policy}}}" if policy else "{}"
    return f"""# A cluster as podslice fleet import found it. Pods that are on nodes come first and are where they are.
apiVersion: podslice.dev/fleet/v1
name: live
seeds: [1]
nodes:
  - {{{", ".join(nodes)}}}
workload:
{work}
kubelets:
  now: {now} # as the nodes say; add others to compare
  # single: {{set: {{cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node}}}}
schedulers:
  kube: {{}}{budgets}
"""


def _write_text(path: Path, text: str) -> None:
    _write(path, text.encode())


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Ordinary permissions and no fsync: an import can be repeated.
        write_atomically(path, data, RealFiles(mode=0o666, durable=False))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
