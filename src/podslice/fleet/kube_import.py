"""A live cluster as a scenario: dumps go in, reduced copies and a scenario come out, with what is missing and assumed.

Copies hold what decides about resources and nothing else. Anonymised ones have hashes in place of names, salted with
something that is thrown away, and no labels but those that tell of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from podslice.core.errors import InputError
from podslice.fleet.kube import cluster_nodes, cluster_pods, kinds_in, name_of, part, read_objects

_SPEC = (
    "containers",
    "initContainers",
    "resources",
    "overhead",
    "priority",
    "priorityClassName",
    "nodeName",
    "nodeSelector",
)
_CONTAINER = ("name", "resources", "restartPolicy")
_KEPT_LABELS = (
    "kubernetes.io/arch", "node.kubernetes.io/instance-type", "nvidia.com/gpu.product",
    "feature.node.kubernetes.io/cpu-hardware_multithreading", "feature.node.kubernetes.io/memory-numa",
)  # fmt: skip
_WANTED = {
    "Node": ("nodes.json", "kubectl get nodes -o json > nodes.json"),
    "Pod": ("pods.json", "kubectl get pods -A -o json > pods.json"),
    "NodeResourceTopology": ("nrt.json", "kubectl get noderesourcetopologies -o json > nrt.json"),
}
_CONFIGZ = "kubectl get --raw /api/v1/nodes/NODE/proxy/configz > configz/NODE.json"


class Imported(NamedTuple):
    """What was found: nodes by the source of their machine, pods on nodes and pending, lines about what is missing,
    assumed, and left out."""

    nodes: int
    by_source: dict[str, int]
    placed: int
    pending: int
    missing: tuple[str, ...]
    assumed: tuple[str, ...]
    problems: tuple[str, ...]


def import_cluster(folder: Path, out: Path, *, anonymise: bool) -> Imported:
    """Read the dumps of a folder and write a scenario with its files. Raises `InputError`."""
    if not folder.is_dir():
        raise InputError("is no folder", source=str(folder), remedy="give the folder with the dumps")
    if out.exists() and any(out.iterdir()):
        raise InputError("is not empty", source=str(out), remedy="name another --out")
    dumps = _dumps(folder)
    if "Node" not in dumps:
        raise InputError("holds no nodes", source=str(folder), remedy=_WANTED["Node"][1])
    called = _hashed() if anonymise else _itself
    written = {kind: _write(dumps[kind], kind, out, called, anonymise=anonymise) for kind in dumps if kind in _WANTED}
    configz = _copy_configz(folder / "configz", out / "configz", called)
    _write_text(out / "scenario.yaml", _scenario(written, configz=bool(configz)))
    return _told(out, written, configz)


def _told(out: Path, written: dict[str, Path], configz: int) -> Imported:
    nodes = cluster_nodes(out / "nodes.json", written.get("NodeResourceTopology"), out / "configz" if configz else None)
    by_source: dict[str, int] = {}
    assumed: dict[str, int] = {}
    for one in nodes:
        by_source[one.kind.source] = by_source.get(one.kind.source, 0) + 1
        if one.kind.assumed:
            line = f"class {one.kind.name}: {one.kind.assumed}"
            assumed[line] = assumed.get(line, 0) + 1
    placed = pending = 0
    problems: tuple[str, ...] = ()
    if "Pod" in written:
        dumped = cluster_pods(written["Pod"], {one.node.name for one in nodes})
        placed = sum(bool(pod.node) for pod in dumped.pods)
        pending, problems = len(dumped.pods) - placed, dumped.problems
    missing = [f"{name}: {command}" for kind, (name, command) in _WANTED.items() if kind not in written]
    if configz < len(nodes):
        missing.append(f"the configuration of {len(nodes) - configz} of {len(nodes)} kubelets: {_CONFIGZ}")
    lines = tuple(f"{count} nodes of {line}" for line, count in assumed.items())
    return Imported(len(nodes), by_source, placed, pending, tuple(missing), lines, problems)


def _dumps(folder: Path) -> dict[str, list[Path]]:
    """Files of a folder by the kinds in them."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".json", ".yaml", ".yml"):
            for kind in kinds_in(path):
                found.setdefault(kind, []).append(path)
    return found


def _write(paths: list[Path], kind: str, out: Path, called: Callable[[str], str], *, anonymise: bool) -> Path:
    items = [_reduced(one, kind, called, anonymise=anonymise) for path in paths for one in read_objects(path, kind)]
    target = out / _WANTED[kind][0]
    _write_text(target, json.dumps({"kind": "List", "apiVersion": "v1", "items": items}, indent=1))
    return target


def _reduced(data: dict[str, Any], kind: str, called: Callable[[str], str], *, anonymise: bool) -> dict[str, Any]:
    metadata = part(data, "metadata")
    labels = part(metadata, "labels")
    if anonymise:
        labels = {key: value for key, value in labels.items() if key in _KEPT_LABELS}
    named: dict[str, Any] = {"name": called(name_of(data)), "labels": labels}
    if kind == "Node":
        kept = ("capacity", "allocatable", "nodeInfo")
        status = {key: value for key, value in part(data, "status").items() if key in kept}
        info = status.get("nodeInfo") or {}
        status["nodeInfo"] = {key: info[key] for key in ("architecture", "kubeletVersion") if key in info}
        spec = {key: value for key, value in part(data, "spec").items() if key in ("taints", "unschedulable")}
        return {"kind": kind, "apiVersion": "v1", "metadata": named, "spec": spec, "status": status}
    if kind == "NodeResourceTopology":
        rest = {key: value for key, value in data.items() if key not in ("metadata", "kind")}
        return {"kind": kind, **rest, "metadata": {"name": called(name_of(data))}}
    owners = [{"kind": one.get("kind")} for one in metadata.get("ownerReferences") or () if isinstance(one, dict)]
    named |= {"namespace": called(str(metadata.get("namespace") or "default")), "ownerReferences": owners[:1]}
    spec = {key: value for key, value in part(data, "spec").items() if key in _SPEC}
    for field in ("containers", "initContainers"):
        spec[field] = [_container(one, place) for place, one in enumerate(spec.get(field) or ())]
    if spec.get("nodeName"):
        spec["nodeName"] = called(str(spec["nodeName"]))
    if anonymise:
        spec.pop("nodeSelector", None)
        spec.pop("priorityClassName", None)
    status = {key: value for key, value in part(data, "status").items() if key in ("phase", "startTime")}
    return {"kind": kind, "apiVersion": "v1", "metadata": named, "spec": spec, "status": status}


def _container(data: Any, place: int) -> dict[str, Any]:
    kept = {key: value for key, value in data.items() if key in _CONTAINER} if isinstance(data, dict) else {}
    return {**kept, "name": f"c{place}"}


def _itself(name: str) -> str:
    return name


def _hashed() -> Callable[[str], str]:
    salt = os.urandom(16)
    return lambda name: "x" + hashlib.sha256(salt + name.encode()).hexdigest()[:12]


def _copy_configz(folder: Path, out: Path, called: Callable[[str], str]) -> int:
    """Copy the kubelets' configurations; how many there are."""
    if not folder.is_dir():
        return 0
    count = 0
    for path in sorted(folder.glob("*.json")):
        out.mkdir(parents=True, exist_ok=True)
        _write_text(out / f"{called(path.stem)}.json", path.read_text(encoding="utf-8"))
        count += 1
    return count


def _scenario(written: dict[str, Path], *, configz: bool) -> str:
    nodes = ["kubernetes: nodes.json"]
    nodes += ["topology: nrt.json"] if "NodeResourceTopology" in written else []
    nodes += ["configurations: configz"] if configz else []
    work = (
        "  - {cluster: pods.json}"
        if "Pod" in written
        else "  - {trace: pods.csv} # give one: there was no dump of pods"
    )
    return f"""# A cluster as podslice fleet import found it. Pods that are on nodes come first and go where they are.
apiVersion: podslice.dev/fleet/v1
name: live
seeds: [1]
nodes:
  - {{{", ".join(nodes)}}}
workload:
{work}
kubelets:
  now: {{}} # as the nodes say; add others to compare
  # single: {{set: {{cpuManagerPolicy: static, topologyManagerPolicy: single-numa-node}}}}
schedulers:
  kube: {{}}
"""


def _write_text(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
