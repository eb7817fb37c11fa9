"""Files and folders of manifests, read one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from podslice.api.manifests.builtin import is_builtin_group
from podslice.api.manifests.strangers import load_manifest_documents
from podslice.reading.files import read_text
from podslice.reading.folders import find_object_files, may_hold_pods
from podslice.reading.yaml import DuplicateKey, load_documents
from podslice.values.errors import InputError


class Text(NamedTuple):
    """The documents of a file, and what messages call it; `problem` says why they cannot be read, `notes` what of them
    does not count.

    A file of a `folder` may be of any program and need not have pods: the folder has to have some.
    """

    documents: list[Any]
    source: str
    folder: str = ""
    problem: InputError | None = None
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> set[str]:
        """The kinds of its documents."""
        return {str(document.get("kind")) for document in self.documents if isinstance(document, dict)}

    @property
    def lists_none(self) -> bool:
        """Whether it is a List without items. A kubelet's own list of no pods has `items: null`, as Go writes it."""
        return bool(self.documents) and all(map(_is_empty_list, self.documents))


def read_texts(paths: Iterable[str]) -> Iterator[Text]:
    """Yield the documents of files (`-`: standard input) and of the files of folders, which need not be in memory
    together."""
    for path in paths:
        source = "stdin" if path == "-" else path
        try:
            files = find_object_files(path)
            if files is None:
                yield read_manifest_text(read_text(path), source)
                continue
        except InputError as error:
            yield Text([], source, problem=error)
            continue
        yield Text([], source, source)
        for file in files:
            yield _read_in_folder(file, source)


def read_manifest_text(text: str, source: str) -> Text:
    """Return the documents of a file. A key that an operator's object has twice counts with its last value, which is
    what the API server stores without strict validation. Raises `InputError` for one in another object."""
    duplicates: list[DuplicateKey] = []
    documents = load_manifest_documents(text, source, duplicates=duplicates)
    notes = []
    for one in duplicates:
        found = documents[one.document] if one.document < len(documents) else None
        if not _is_of_operator(found):
            problem = f"duplicate key {one.key[:60]!r} in line {one.line}"
            raise InputError(problem, source=source, document=one.document, remedy="keep one of the two")
        notes.append(
            f"{source}: line {one.line}: the key {one.key[:60]!r} is there more than once; the last one counts"
        )
    return Text(documents, source, notes=tuple(notes))


def _is_of_operator(document: Any) -> bool:
    group, slash, _ = str(document.get("apiVersion")).partition("/") if isinstance(document, dict) else ("", "", "")
    return bool(slash) and not is_builtin_group(group)


def _read_in_folder(path: str, folder: str) -> Text:
    """Return the objects of a file of a folder; none of a file that holds no pods, or is of another program."""
    try:
        text = read_text(path)
        documents = load_documents(text, path) if may_hold_pods(text) else []
    except InputError as error:
        return Text([], path, folder, error)
    return Text([one for one in documents if isinstance(one, dict) and isinstance(one.get("kind"), str)], path, folder)


def may_be_object(document: Any) -> bool:
    """Whether a document may be a Kubernetes object; False for YAML of other programs, which is made of fields as
    well."""
    if isinstance(document, dict):
        return "kind" in document or "apiVersion" in document
    return not isinstance(document, list)


def _is_empty_list(document: Any) -> bool:
    if not isinstance(document, dict) or document.get("kind") not in ("List", "PodList"):
        return False
    return "items" in document and document["items"] in (None, [])
