"""Objects of a cluster in files, as kubectl prints them.

They come from many versions and untrusted sources: unknown fields are ignored, and missing ones are reported by their
users.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from podslice.reading.files import read_bytes
from podslice.reading.lists import fill_items, is_list
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

MAX_DUMP = 1 << 30
CONFIGZ = "KubeletConfiguration"
"""The kind given to the answer of a kubelet's configz, which has none."""
_REMEDY = "make the dump again"


def read_objects(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the objects of a kind ("" for all) in a file: a List, a typed list, or one object; JSON or YAML. Raises
    `InputError`."""
    found = objects_in(read_documents(path))
    return [one for one in found if not kind or one["kind"] == kind]


def objects_in(documents: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the objects in documents, each a List, a typed list, or one object."""
    return [one for document in documents for one in _objects(document)]


def read_documents(path: Path) -> list[Any]:
    """Return the documents in a file of JSON or YAML. Raises `InputError`."""
    source = str(path)
    data = read_bytes(source, MAX_DUMP)
    try:
        return [json.loads(data)]
    except (ValueError, RecursionError):
        pass
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=source, remedy=_REMEDY) from None
    try:
        # Also several JSON values after each other, as cluster-info dump and a watch print them.
        return load_documents(text, source)
    except InputError:
        if data.lstrip()[:1] in (b"{", b"["):
            raise InputError("breaks off, or is not JSON", source=source, remedy=_REMEDY) from None
        raise


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    if is_list(document):
        yield from ({"kind": "", **item} for item in fill_items(document) if isinstance(item, dict))
    elif isinstance(document.get("kubeletconfig"), dict):
        yield {**document["kubeletconfig"], "kind": CONFIGZ}
    else:
        yield {**document, "kind": str(document.get("kind") or "")}


def part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a part of an object, such as its status; empty where it is missing."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def items_of(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects in a list of an object; empty where it is missing."""
    found = data.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def name_of(data: Mapping[str, Any]) -> str:
    """Return the name of an object, "" where it has none."""
    return str(part(data, "metadata").get("name") or "")
