"""Pods from real manifests: Pods, Lists, workloads, and whatever object has a pod template in it, as YAML or JSON.

`read_manifests` is the whole way: documents become objects, objects pods, what is there twice is dropped, the rest is
decoded. Nothing passes silently: fields that Kubernetes does not know are warnings (errors with `strict`), so are
objects of operators of which no pod can be read; a pod that the API server refuses is an error, and all errors of a
file are reported at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from podslice.api.manifests.builtin import REMEDY, check_kind, find_builtin_pod, has_builtin_pod
from podslice.api.manifests.custom import find_custom_pods
from podslice.api.manifests.found import FoundPod, Others, PassedOver
from podslice.api.manifests.loaded import LoadedPod, assign_names, load_found
from podslice.api.manifests.objects import ManifestObject, find_objects
from podslice.api.manifests.ownership import drop_owned, drop_repeated
from podslice.api.manifests.report import (
    describe_doubles,
    describe_hooks,
    describe_idle,
    describe_notes,
    name_objects,
    passed_over_errors,
)
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError, raise_all


class Manifests(NamedTuple):
    """The pods of files, and lines for the user about objects that were passed over or not counted, and about what is
    assumed of the others."""

    pods: list[LoadedPod]
    notes: tuple[str, ...] = ()


class ReadOptions(NamedTuple):
    """Options for reading pods; see `load_pods`. `idle`: a workload that asks for no pods counts as one, as where its
    template is looked at. `needs_pods`: a file without pods is an error."""

    replicas: bool = False
    validate: bool = True
    strict: bool = False
    none_is_fine: bool = False
    idle: bool = False
    needs_pods: bool = True


class Text(NamedTuple):
    """The documents of a file, and what messages call it."""

    documents: list[Any]
    source: str


def load_pods(
    path: str,
    *,
    replicas: bool = False,
    validate: bool = True,
    strict: bool = False,
    none_is_fine: bool = False,
) -> list[LoadedPod]:
    """Return all pods of a file (`-`: standard input), in order; objects without pods are skipped.

    - `replicas`: expand a workload into as many pods as it requests
    - `validate`: refuse pods that the API server would refuse
    - `strict`: fields that Kubernetes does not know, and objects of operators of which no pod can be read, are errors
    - `none_is_fine`: the file may be a List without items, as of a node on which nothing runs

    Pods get a name and UID where they have none. Raises `InputError`, also for a file without any pod; it prints one
    line for each error in the file.
    """
    return load_manifests([path], ReadOptions(replicas, validate, strict, none_is_fine)).pods


def load_pods_text(
    text: str,
    source: str,
    *,
    replicas: bool = False,
    validate: bool = True,
    strict: bool = False,
    none_is_fine: bool = False,
) -> list[LoadedPod]:
    """Return all pods in the text of a file; see `load_pods`."""
    return read_text_manifests(text, source, ReadOptions(replicas, validate, strict, none_is_fine)).pods


def load_manifests(paths: Iterable[str], options: ReadOptions) -> Manifests:
    """Return the pods of files (`-`: standard input), each of them once, and lines about what was read. Raises
    `InputError` with everything that is wrong in any of them."""
    texts: list[Text] = []
    errors: list[InputError] = []
    for path in paths:
        source = "stdin" if path == "-" else path
        try:
            texts.append(Text(load_documents(read_text(path), source), source))
        except InputError as error:
            errors.append(error)
    return read_manifests(texts, options, errors)


def read_text_manifests(text: str, source: str, options: ReadOptions) -> Manifests:
    """Return the pods in the text of a file; see `load_manifests`."""
    return read_manifests([Text(load_documents(text, source), source)], options)


def read_manifests(texts: list[Text], options: ReadOptions, errors: Iterable[InputError] = ()) -> Manifests:
    """Return the pods in the documents of files. Raises `InputError` with everything that is wrong, and with `errors`
    of files that could not be read."""
    reading = _Reading(options, errors)
    objects = drop_repeated(one for text in texts for one in reading.find_objects(text))
    others = Others(objects)
    found = [pod for one in objects for pod in reading.find_pods(one, others)]
    counted = drop_owned(found, objects)
    reading.drop_passed(counted.known)
    pods = [pod for one in counted.pods if one.replicas or options.idle for pod in reading.load(one)]
    if options.needs_pods:
        reading.check_any(texts, found)
    reading.finish(texts)
    notes = (
        *map(str, passed_over_errors(reading.passed)),
        *describe_doubles(counted.doubles),
        *(() if options.idle else describe_idle(counted.pods)),
        *describe_hooks(counted.pods),
        *describe_notes(counted.pods),
    )
    return Manifests(assign_names(pods), notes)


def pods_from_documents(documents: list[Any], source: str, *, strict: bool = False) -> Manifests:
    """Return the pods among documents of any kind, also pods that the API server would refuse, and those of workloads
    that ask for none; possibly no pods. Raises `InputError` for pods that cannot be decoded and for documents that are
    no objects."""
    if not documents:
        raise InputError("holds nothing", source=source, remedy=REMEDY)
    objects = [document if _may_be_object(document) else {"kind": ""} for document in documents]
    options = ReadOptions(validate=False, strict=strict, idle=True, needs_pods=False)
    return read_manifests([Text(objects, source)], options)


class _Reading:
    """One reading of files: `wrong` collects the errors, `passed` the objects of which no pod can be read."""

    def __init__(self, options: ReadOptions, errors: Iterable[InputError]) -> None:
        self.options = options
        self.wrong = [*errors]
        self.passed: list[PassedOver] = []

    def find_objects(self, text: Text) -> list[ManifestObject]:
        """Return the objects of a file."""
        objects, errors = find_objects(text.documents, text.source, REMEDY)
        self.wrong += errors
        return objects

    def find_pods(self, found: ManifestObject, others: Others) -> list[FoundPod]:
        """Return the pods of an object, not yet decoded."""
        try:
            if has_builtin_pod(found):
                return [find_builtin_pod(found)]
            check_kind(found)
        except InputError as error:
            self._add(error, found)
            return []
        pods = []
        for one in find_custom_pods(found, others):
            if isinstance(one, FoundPod):
                pods.append(one)
            else:
                self.passed.append(one)
        return pods

    def drop_passed(self, known: Collection[int]) -> None:
        """Forget objects whose pods are read of other objects."""
        self.passed = [one for one in self.passed if id(one.object) not in known]

    def load(self, found: FoundPod) -> list[LoadedPod]:
        """Return the copies of a pod. One that cannot be read is an error; of an operator's object it is a reason to
        pass it over, since operators complete their templates before the API server sees them."""
        replicas, validate, strict = self.options.replicas, self.options.validate, self.options.strict
        try:
            return list(load_found(found, replicas=replicas, validate=validate, strict=strict))
        except InputError as error:
            if found.is_custom and not strict:
                self.passed.append(PassedOver(found.object, "; ".join(map(_say, error.errors))))
            else:
                self._add(error, found.object)
            return []

    def check_any(self, texts: list[Text], found: list[FoundPod]) -> None:
        """Note an error for each file without pods, unless something else is wrong with it."""
        asking = {one.object.place.source for one in found if one.replicas or self.options.idle}
        idle = {one.object.place.source: one.object for one in found}
        failed = {error.source for error in self.wrong}
        for text in texts:
            lists_none = self.options.none_is_fine and bool(text.documents) and all(map(_is_empty_list, text.documents))
            if text.source in asking or text.source in failed or lists_none:
                continue
            passed = [one for one in self.passed if one.object.place.source == text.source]
            if passed:
                (problem, *_) = (error.problem for error in passed_over_errors(passed))
                self.wrong.append(InputError(f"holds no pods; {problem}", source=text.source, remedy=REMEDY))
            elif text.source in idle:
                problem = f"holds no pods: {name_objects([idle[text.source]])} asks for 0"
                self.wrong.append(InputError(problem, source=text.source, remedy="let it ask for 1 or more"))
            else:
                self.wrong.append(_no_pods(text))

    def finish(self, texts: list[Text]) -> None:
        """Raise everything that is wrong, in the order of files and documents; with `strict` also what was passed
        over."""
        if self.options.strict:
            self.wrong += passed_over_errors(self.passed)
        order = {text.source: number for number, text in enumerate(texts)}
        raise_all(sorted(self.wrong, key=lambda one: (order.get(one.source, -1), one.document or 0)))

    def _add(self, error: InputError, found: ManifestObject) -> None:
        self.wrong += [each.at(source=found.place.source, document=found.place.shown) for each in error.errors]


def _no_pods(text: Text) -> InputError:
    kinds = sorted({str(document.get("kind")) for document in text.documents if isinstance(document, dict)})
    problem = f"holds no pods, only {', '.join(kinds)}" if kinds else "holds no pods"
    return InputError(problem, source=text.source, remedy=REMEDY)


def _say(error: InputError) -> str:
    """Return an error in words for a line that names the file already."""
    return str(InputError(error.problem, path=error.path, remedy=error.remedy))


def _is_empty_list(document: Any) -> bool:
    """Whether a document is a List without items. A kubelet's own list of no pods has `items: null`, as Go writes
    it."""
    if not isinstance(document, dict) or document.get("kind") not in ("List", "PodList"):
        return False
    return "items" in document and document["items"] in (None, [])


def _may_be_object(document: Any) -> bool:
    """Whether a document may be a Kubernetes object; False for YAML of other programs, which is made of fields as
    well."""
    if isinstance(document, dict):
        return "kind" in document or "apiVersion" in document
    return not isinstance(document, list)
