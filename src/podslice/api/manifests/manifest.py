"""Pods from real manifests: Pods, Lists, workloads, and whatever object has a pod template in it, as YAML or JSON.

`read_manifests` is the whole way: documents become objects, objects pods, what is there twice is dropped, the rest is
decoded. Nothing passes silently: fields that Kubernetes does not know are warnings (errors with `strict`), so are
objects of operators of which no pod can be read; a pod that the API server refuses is an error, and all errors of a
file are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from podslice.api.manifests.builtin import REMEDY
from podslice.api.manifests.found import Others
from podslice.api.manifests.loaded import LoadedPod, assign_names
from podslice.api.manifests.ownership import drop_owned, drop_repeated
from podslice.api.manifests.pipeline import Pipeline, ReadOptions
from podslice.api.manifests.report import describe_doubles, describe_hooks, describe_idle, describe_notes
from podslice.api.manifests.texts import Text, may_be_object, read_manifest_text, read_texts
from podslice.reading.files import PathOrText, is_text
from podslice.values.errors import InputError


class Manifests(NamedTuple):
    """The pods of files, and lines for the user about objects that were passed over or not counted, and about what is
    assumed of the others; `passed_over` are those of the first sort alone."""

    pods: list[LoadedPod]
    notes: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


def load_pods(
    source: PathOrText | Mapping[str, Any],
    *,
    replicas: bool = False,
    validate: bool = True,
    strict: bool = False,
    none_is_fine: bool = False,
) -> list[LoadedPod]:
    """Return all pods of a file or a folder (`-`: standard input), of the text of a file, or of an object as plain
    data, in order; objects without pods are skipped.

    - `replicas`: expand a workload into as many pods as it requests
    - `validate`: refuse pods that the API server would refuse
    - `strict`: fields that Kubernetes does not know, and objects of operators of which no pod can be read, are errors
    - `none_is_fine`: the file may be a List without items, as of a node on which nothing runs

    Pods get a name and UID where they have none. Raises `InputError`, also for a file without any pod; it prints one
    line for each error in the file.
    """
    options = ReadOptions(replicas, validate, strict, none_is_fine)
    if isinstance(source, Mapping):
        return read_manifests([Text([dict(source)], "the object")], options).pods
    if is_text(source):
        return read_text_manifests(str(source), "the text", options).pods
    return load_manifests([str(source)], options).pods


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
    """Return the pods of files (`-`: standard input) and folders, each of them once, and lines about what was read.
    Raises `InputError` with everything that is wrong in any of them."""
    return read_manifests(read_texts(paths), options)


def read_text_manifests(text: str, source: str, options: ReadOptions) -> Manifests:
    """Return the pods in the text of a file; see `load_manifests`."""
    return read_manifests([read_manifest_text(text, source)], options)


def read_manifests(texts: Iterable[Text], options: ReadOptions) -> Manifests:
    """Return the pods in the documents of files. Raises `InputError` with everything that is wrong."""
    steps = Pipeline(options)
    objects = drop_repeated(one for text in texts for one in steps.find_objects(text))
    others = Others(objects)
    found = [pod for one in objects for pod in steps.find_pods(one, others)]
    counted = drop_owned(found, objects)
    steps.drop_passed(counted.known)
    pods = [pod for one in counted.pods if one.replicas or options.idle for pod in steps.load(one)]
    if options.needs_pods:
        steps.check_any(counted)
    steps.finish()
    passed_over = tuple(map(str, steps.passed_over()))
    notes = (
        *passed_over,
        *steps.notes,
        *describe_doubles(counted.doubles),
        *(() if options.idle else describe_idle(counted.pods)),
        *describe_hooks(counted.pods),
        *describe_notes(counted.pods),
    )
    return Manifests(assign_names(pods), notes, passed_over)


def pods_from_documents(documents: list[Any], source: str, *, strict: bool = False) -> Manifests:
    """Return the pods among documents of any kind, also pods that the API server would refuse, and those of workloads
    that ask for none; possibly no pods. Raises `InputError` for pods that cannot be decoded and for documents that are
    no objects."""
    if not documents:
        raise InputError("holds nothing", source=source, remedy=REMEDY)
    objects = [document if may_be_object(document) else {"kind": ""} for document in documents]
    options = ReadOptions(validate=False, strict=strict, idle=True, needs_pods=False)
    return read_manifests([Text(objects, source)], options)
