"""Where a folder with dumps of a cluster has its files: beside each other, or as kubectl and `oc adm` lay them out.

- `kubectl cluster-info dump --output-directory`: a folder for each namespace, with `pods.json` in it
- must-gather and `oc adm inspect`: `cluster-scoped-resources/core/nodes`, `namespaces/NAME/core/pods.yaml`, below a
  folder for each image that gathered
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_OF_NODES = ("configz", "machines", "state")
"""Folders with files of each node, which are not objects of the API."""
_CLUSTER, _NAMESPACES = "cluster-scoped-resources", "namespaces"
_OTHERS = (_CLUSTER, _NAMESPACES, *_OF_NODES)
_CLUSTER_OBJECTS = ("core/nodes", "topology.node.k8s.io/noderesourcetopologies")


def object_files(folder: Path) -> list[Path]:
    """Return the files beside each other in a folder."""
    return [path for path in sorted(folder.iterdir()) if path.is_file()]


def nested_files(folder: Path) -> list[Path]:
    """Return the files of nodes, pods and budgets in the folders of a cluster-info dump or a must-gather. They are of
    one moment."""
    found = [*_of_info_dump(folder)]
    for root in _gathered(folder):
        found += _of_gathered(root)
    return found


def _of_info_dump(folder: Path) -> Iterator[Path]:
    for namespace in _folders(folder):
        if namespace.name not in _OF_NODES:
            yield from _either(namespace, "pods")


def _gathered(folder: Path) -> Iterator[Path]:
    """Yield the folders at most two levels below in which a must-gather has its objects."""
    level = [folder]
    for _ in range(3):
        yield from (one for one in level if (one / _CLUSTER).is_dir() or (one / _NAMESPACES).is_dir())
        level = [below for one in level for below in _folders(one) if below.name not in _OTHERS]


def _of_gathered(root: Path) -> Iterator[Path]:
    for place in _CLUSTER_OBJECTS:
        parent, _, name = place.partition("/")
        yield from _objects(root / _CLUSTER / parent, name)
    for namespace in _folders(root / _NAMESPACES):
        # Each pod is in a file of its own too, with the logs of its containers.
        lists = list(_either(namespace / "core", "pods"))
        yield from lists or (path for one in _folders(namespace / "pods") for path in _either(one, one.name))
        yield from _objects(namespace / "policy", "poddisruptionbudgets")


def _objects(parent: Path, name: str) -> Iterator[Path]:
    """Yield the file of a list, or the files of single objects in a folder."""
    lists = list(_either(parent, name))
    yield from lists
    if not lists and (parent / name).is_dir():
        yield from (path for path in sorted((parent / name).iterdir()) if path.is_file())


def _either(parent: Path, name: str) -> Iterator[Path]:
    yield from (path for ending in (".json", ".yaml") if (path := parent / f"{name}{ending}").is_file())


def _folders(parent: Path) -> list[Path]:
    return [one for one in sorted(parent.iterdir()) if one.is_dir() and not one.is_symlink()] if parent.is_dir() else []
