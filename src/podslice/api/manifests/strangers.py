"""Texts and documents that are often given as manifests and are something else: what they are, and what would do."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from podslice.reading.yaml import DuplicateKey, load_documents
from podslice.values.errors import InputError

_YAML = "kubectl get pods -A -o yaml"
_RENDER = "render it: helm template"


class _Stranger(NamedTuple):
    problem: str
    remedy: str


_TEXTS = (
    (re.compile(r"(?:NAMESPACE +)?NAME +[A-Z]"), _Stranger("is a table of kubectl get", _YAML)),
    (re.compile(r"Name: +\S+ *\n(?:Namespace|Roles|Priority|Labels): "),
     _Stranger("is the output of kubectl describe", "kubectl get pod NAME -o yaml")),
    (re.compile(r"(?:NAME: \S+\n)?LAST DEPLOYED: "),
     _Stranger("is the output of helm", "helm get manifest, helm template")),
    (re.compile(r"[a-z]+(?:\.[a-z0-9.-]+)?/[a-z0-9.-]+\n"), _Stranger("is a list of names", _YAML)),
    (re.compile(r"POD ID +CREATED|CONTAINER +IMAGE +CREATED"), _Stranger("is a table of crictl", _YAML)),
    (re.compile(r"CONTAINER ID +IMAGE"), _Stranger("is a table of docker ps", _YAML)),
    (re.compile(r"Architecture: +\S"), _Stranger("is the output of lscpu", "it describes a machine: --from")),
    (re.compile(r"available: \d+ nodes"), _Stranger("is the output of numactl -H", "it describes a machine: --from")),
)  # fmt: skip
"""The beginnings of outputs of programs that hold no manifest."""
_KINDS = {
    "Config": "that is a kubeconfig",
    "KubeletConfiguration": "give it with --config",
    "Kustomization": "kustomize build DIR",
    "Node": "it describes a machine: --from",
    "NodeResourceTopology": "it describes a machine: --from",
    "PodslicePolicy": "give it with --policy",
    "ResourceClaim": "give it with --claims",
    "ResourceSlice": "give it with --slices",
    "Table": "kubectl get -o json",
}
"""Remedies for a file that holds only objects of these kinds."""


def load_manifest_documents(text: str, source: str, *, duplicates: list[DuplicateKey] | None = None) -> list[Any]:
    """Return the documents of a file of manifests. `duplicates` as for `load_documents`. Raises `InputError`, for
    the output of a known program in a line that names it."""
    for start, stranger in _TEXTS:
        if start.match(text):
            raise InputError(stranger.problem, source=source, remedy=stranger.remedy)
    return load_documents(text, source, duplicates=duplicates)


def remedy_for(kinds: Collection[str], otherwise: str) -> str:
    """Return what would do in place of a file that holds only these kinds."""
    known = {_KINDS.get(kind.removesuffix("List"), "") for kind in kinds}
    return known.pop() or otherwise if len(known) == 1 else otherwise


def describe_document(document: dict[str, Any], otherwise: str) -> tuple[str, str]:
    """Return what a document without a kind is, and what would do."""
    for is_one, stranger in _DOCUMENTS:
        if is_one(document):
            return stranger
    return "has no kind", otherwise


def _has(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda document: all(name in document for name in names)


_DOCUMENTS: tuple[tuple[Callable[[dict[str, Any]], bool], _Stranger], ...] = (
    (lambda document: isinstance(document.get("services"), dict), _Stranger("is a Compose file", "kompose convert")),
    (_has("apiVersion", "name", "version"), _Stranger("is a Helm chart's Chart.yaml", _RENDER)),
    (_has("replicaCount"), _Stranger("looks like the values of a Helm chart", _RENDER)),
    (
        lambda document: isinstance(document.get("resources"), list),
        _Stranger("is a kustomization", "kustomize build DIR"),
    ),
    (_has("status", "info"), _Stranger("is the output of crictl", _YAML)),
    (lambda document: bool(document.get("items")), _Stranger("is a list of something else than objects", _YAML)),
    (_has("containers"), _Stranger("is the specification of a pod alone", "apiVersion: v1, kind: Pod, spec: {…}")),
)
"""Documents without a kind that other programs write."""
