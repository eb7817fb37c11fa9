"""Files with objects in a folder: of `kubectl cluster-info dump --output-directory`, of a must-gather, of manifests.

A must-gather has tens of thousands of files, most of them logs. Only YAML and JSON is looked at, links are not
followed, and files of kinds without pods are left out before they are parsed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from podslice.values.errors import InputError

_ENDINGS = (".json", ".yaml", ".yml")
_MAX_DEPTH = 12
MAX_ENTRIES = 200_000
"""Most files and folders that are looked at below a folder."""
MAX_FILES = 20_000
"""Most files of objects in a folder."""
_KIND = re.compile(r'^(?:kind:[ \t]*|[ \t]{0,4}"kind":[ \t]*|\{[ \t]*"kind":[ \t]*)"?([A-Za-z]{1,80})', re.MULTILINE)
_WITHOUT_PODS = frozenset(
    f"{kind}{end}"
    for kind in """
    APIService ClusterRole ClusterRoleBinding ConfigMap ControllerRevision CSIDriver CSINode CustomResourceDefinition
    Endpoints EndpointSlice Event Ingress IngressClass Lease LimitRange Namespace NetworkPolicy PersistentVolume
    PersistentVolumeClaim PodDisruptionBudget PriorityClass ResourceQuota Role RoleBinding Secret Service ServiceAccount
    StorageClass VolumeAttachment
    """.split()
    for end in ("", "List")
)


def find_object_files(path: str) -> list[str] | None:
    """Return the files of a folder that may hold objects, in the order of their names; None for a path that is no
    folder. Raises `InputError`."""
    folder = Path(path)
    if not folder.is_dir():
        return None
    found: list[Path] = []
    for number, entry in enumerate(_walk(folder, 0)):
        if number >= MAX_ENTRIES:
            raise InputError(f"holds more than {MAX_ENTRIES} files", source=str(folder), remedy="name a folder in it")
        if entry.name.endswith(_ENDINGS) and entry.is_file():
            found.append(Path(entry.path))
    if len(found) > MAX_FILES:
        remedy = f"at most {MAX_FILES} are read: name a folder in it"
        raise InputError(f"holds {len(found)} files of objects", source=str(folder), remedy=remedy)
    return list(map(str, _without_copies(found)))


def _walk(folder: Path, depth: int) -> Iterator[os.DirEntry[str]]:
    """Yield all that is below a folder; hidden ones, and what is behind links, are left out. Raises `InputError`."""
    if depth > _MAX_DEPTH:
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(folder)) from None
    for entry in entries:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        yield entry
        if entry.is_dir():
            yield from _walk(Path(entry.path), depth + 1)


def _without_copies(files: list[Path]) -> list[Path]:
    """Leave out the file of each single pod of a must-gather where the pods of its namespace are in one file."""
    lists = {path.parents[1] for path in files if path.parent.name == "core" and path.stem == "pods"}
    return [path for path in files if not (len(path.parents) > 2 and path.parents[1].name == "pods"
                                           and path.parents[2] in lists)]  # fmt: skip


def may_hold_pods(text: str) -> bool:
    """Whether the text of a file may hold pods: some object at its top is of a kind that can, or none says a kind."""
    kinds = {match[1] for match in _KIND.finditer(text)}
    return not kinds or not kinds <= _WITHOUT_PODS
