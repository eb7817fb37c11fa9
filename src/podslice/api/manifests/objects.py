"""The objects in the documents of a file, with their places: those of Lists, and of lists in lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from podslice.api.manifests.strangers import describe_document
from podslice.reading.lists import fill_items, is_list
from podslice.values.errors import InputError


class Place(NamedTuple):
    """Where an object is: a zero-based document of a file, and the path in it. `shown` is the number of the document in
    messages, None in a file of one; `input` is the file or folder that the user named."""

    source: str
    document: int
    shown: int | None
    path: str
    input: str

    def error(self, problem: str, remedy: str = "", path: str = "") -> InputError:
        """Return an error about the object, or about a path below it."""
        at = join_path(self.path, path)
        return InputError(problem, source=self.source, document=self.shown, path=at, remedy=remedy)


class ManifestObject(NamedTuple):
    """A Kubernetes object of a file. It has a kind; whether the rest is as Kubernetes wants it is not known yet."""

    place: Place
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind, as written."""
        return str(self.data["kind"])

    @property
    def group(self) -> str:
        """The API group of `apiVersion`: "" of core kinds such as Pod, and of objects without a version."""
        return str(self.data.get("apiVersion") or "").rpartition("/")[0]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata, empty where it is missing or no object."""
        found = self.data.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def uid(self) -> str:
        """The UID that the API server gave it, "" before that."""
        uid = self.metadata.get("uid")
        return uid if isinstance(uid, str) else ""

    @property
    def namespace(self) -> str:
        """The namespace, `default` where none is written."""
        return str(self.metadata.get("namespace") or "default")

    @property
    def name(self) -> str:
        """Namespace and name for messages: `default/web`, `web` where no namespace is written."""
        metadata = self.metadata
        name = metadata.get("name") or metadata.get("generateName") or "?"
        return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else str(name)


def find_objects(
    documents: list[Any], source: str, remedy: str, input_: str = ""
) -> tuple[list[ManifestObject], list[InputError]]:
    """Return the objects of all documents of a file, in order, and an error for each part that is none. `remedy` says
    what would be."""
    objects: list[ManifestObject] = []
    errors: list[InputError] = []
    deleted: set[str] = set()
    for index, document in enumerate(documents):
        shown = index if len(documents) > 1 else None
        for path, value in _flatten(document, ""):
            place = Place(source, index, shown, path, input_ or source)
            if not isinstance(value, dict):
                errors.append(place.error(f"expected an object, got {describe_value(value)}", remedy))
            elif not isinstance(value.get("kind"), str):
                errors.append(place.error(*describe_document(value, remedy)))
            else:
                one = ManifestObject(place, value)
                objects.append(one)
                deleted |= {one.uid} if path == _DELETED else set()
    # A UID is never used again.
    return [one for one in objects if not one.uid or one.uid not in deleted], errors


_WATCH_EVENTS = ("ADDED", "MODIFIED", "DELETED")
_DELETED = "object (DELETED)"


def _flatten(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a document, or in place of a list its items, each with its path. Depth is bounded by the reader's."""
    if isinstance(document, list) and _are_objects(document):
        # As `jq .items` prints them.
        for index, item in enumerate(document):
            yield from _flatten(item, f"{path}[{index}]")
    elif is_list(document) and ("kind" in document or _are_objects(document["items"])):
        for index, item in enumerate(fill_items(document)):
            yield from _flatten(item, join_path(path, f"items[{index}]"))
    elif isinstance(document, dict) and document.get("type") in _WATCH_EVENTS and "kind" not in document:
        # `kubectl get --watch --output-watch-events`
        yield _DELETED if document["type"] == "DELETED" else join_path(path, "object"), document.get("object")
    else:
        yield path, document


def _are_objects(items: list[Any]) -> bool:
    """Whether a list without a kind is one of objects. Other programs have lists, and items, as well."""
    return bool(items) and all(isinstance(item, dict) and "kind" in item and "apiVersion" in item for item in items)


def describe_value(value: Any) -> str:
    """Return the kind of plain data in the words of YAML."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "text"
    if value is None:
        return "nothing"
    return "true or false" if isinstance(value, bool) else "a number"


def join_path(path: str, step: str) -> str:
    """Join two parts of a path, either of which may be empty."""
    return f"{path}.{step}" if path and step else path or step
