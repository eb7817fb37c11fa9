"""Read what runs on a node from files: pods for `state repair`, runtime containers for V1 CPU state files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podslice.evidence.listed import ENDED
from podslice.node.memory.checkpoint import Block
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.state_files.repair import RunningContainer, RunningPods
from podslice.values.cpuset import CPUSetError, parse_bits
from podslice.values.errors import InputError

_PODS_REMEDY = "give kubectl's pods as YAML or JSON, or pods: [{uid: ..., containers: {name: {cpus: 2-3}}}]"
_CONTAINERS_REMEDY = "give the output of crictl ps -a -o json, or id: {pod: UID, name: NAME}"
_POD_UID = "io.kubernetes.pod.uid"
_NAME = "io.kubernetes.container.name"


def load_running_pods(path: str) -> RunningPods:
    """Load the running pods from `kubectl get pods -o yaml|json` or from the short form with CPUs. Raises
    `InputError`."""
    pods: dict[str, dict[str, RunningContainer]] = {}
    for document in load_documents(read_text(path), path):
        if isinstance(document, dict) and "pods" in document:
            for place, entry in enumerate(_list(document["pods"], path, "pods")):
                pods.update(_read_short_form(entry, path, f"pods[{place}]"))
        else:
            pods.update(_read_manifests(document, path))
    return pods


def _read_manifests(document: Any, path: str) -> Iterator[tuple[str, dict[str, RunningContainer]]]:
    if not isinstance(document, dict):
        raise InputError("is not a pod", source=path, remedy=_PODS_REMEDY)
    if "items" in document:
        for item in _list(document["items"], path, "items"):
            yield from _read_manifests(item, path)
        return
    uid = _mapping(document.get("metadata")).get("uid")
    spec = _mapping(document.get("spec"))
    if document.get("kind", "Pod") != "Pod" or not isinstance(uid, str) or "containers" not in spec:
        raise InputError("is not a pod with a uid", source=path, path="metadata.uid", remedy=_PODS_REMEDY)
    if _mapping(document.get("status")).get("phase") not in ENDED:
        # kubectl does not show exclusive CPUs, so the containers are known by name only.
        listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        yield uid, {str(_mapping(container).get("name")): RunningContainer() for container in listed}


def _read_short_form(entry: Any, source: str, path: str) -> dict[str, dict[str, RunningContainer]]:
    uid = _mapping(entry).get("uid")
    containers = _mapping(entry).get("containers")
    if not isinstance(uid, str) or not isinstance(containers, dict | list):
        raise InputError("needs uid and containers", source=source, path=path, remedy=_PODS_REMEDY)
    if isinstance(containers, list):
        return {uid: {str(name): RunningContainer() for name in containers}}
    return {uid: {str(name): _read_container(facts, source, f"{path}.{name}") for name, facts in containers.items()}}


def _read_container(facts: Any, source: str, path: str) -> RunningContainer:
    known = _mapping(facts)
    cpus = known.get("cpus")
    try:
        bits = None if cpus is None else parse_bits(str(cpus))
    except CPUSetError as error:
        raise InputError(error.problem, source=source, path=f"{path}.cpus", remedy="write for example 2-3,8") from None
    memory = known.get("memory")
    if memory is None:
        return RunningContainer(bits)
    return RunningContainer(
        bits, tuple(_read_block(item, source, f"{path}.memory") for item in _list(memory, source, path))
    )


def _read_block(item: Any, source: str, path: str) -> Block:
    facts = _mapping(item)
    nodes, name, size = facts.get("numaAffinity"), facts.get("type"), facts.get("size")
    if not isinstance(nodes, list) or not all(isinstance(node, int) for node in nodes):
        raise InputError("needs numaAffinity: [0]", source=source, path=path)
    if not isinstance(name, str) or not isinstance(size, int):
        raise InputError("needs type and size in bytes", source=source, path=path)
    return Block(tuple(nodes), name, size)


def load_containers(path: str) -> dict[str, tuple[str, str]]:
    """Load container ids with (pod UID, name), from `crictl ps -a -o json` or a short form. Raises `InputError`."""
    known: dict[str, tuple[str, str]] = {}
    for document in load_documents(read_text(path), path):
        facts = _mapping(document)
        if isinstance(facts.get("containers"), list):
            known.update(_read_crictl(facts["containers"], path))
            continue
        for container_id, entry in facts.items():
            pod, name = _mapping(entry).get("pod"), _mapping(entry).get("name")
            if not isinstance(pod, str) or not isinstance(name, str):
                raise InputError("needs pod and name", source=path, path=str(container_id), remedy=_CONTAINERS_REMEDY)
            known[str(container_id)] = pod, name
    return known


def _read_crictl(containers: list[Any], path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for container in containers:
        labels = _mapping(_mapping(container).get("labels"))
        container_id = _mapping(container).get("id")
        if not isinstance(container_id, str) or _POD_UID not in labels or _NAME not in labels:
            raise InputError("a container has no id or labels", source=path, remedy=_CONTAINERS_REMEDY)
        yield container_id, (str(labels[_POD_UID]), str(labels[_NAME]))


def _mapping(value: Any) -> dict[Any, Any]:
    """Return a mapping as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def _list(value: Any, source: str, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError("is not a list", source=source, path=path)
    return value
