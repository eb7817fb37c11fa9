"""Validation of the names in a pod by the API server: its own, its namespace's, its node's, its containers', and the
keys and values of its labels and annotations."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.api.pod.field_error import FieldError, duplicate, invalid, required
from podslice.api.pod.names import label_problems, label_value_problems, subdomain_problems
from podslice.api.pod.resource_names import qualified_name_problems
from podslice.api.pod.spec import ObjectMeta, Pod, PodSpec


def name_errors(pod: Pod) -> Iterator[FieldError]:
    """Yield an error for every name that the API server refuses. A pod without a name is no error here: readers of
    manifests give it one."""
    yield from _metadata_errors(pod.metadata)
    if pod.spec.node_name:
        for problem in subdomain_problems(pod.spec.node_name):
            yield invalid("spec.nodeName", pod.spec.node_name, problem)
    yield from _container_errors(pod.spec)


def _metadata_errors(metadata: ObjectMeta) -> Iterator[FieldError]:
    if metadata.name:
        for problem in subdomain_problems(metadata.name):
            yield invalid("metadata.name", metadata.name, problem)
    if metadata.namespace:
        for problem in label_problems(metadata.namespace):
            yield invalid("metadata.namespace", metadata.namespace, problem)
    for key, value in (metadata.labels or {}).items():
        for problem in qualified_name_problems(key):
            yield invalid("metadata.labels", key, problem)
        for problem in label_value_problems(value):
            yield invalid("metadata.labels", value, problem)
    for key in metadata.annotations or {}:
        # Annotation keys are checked in lower case: upstream lets upper case pass.
        for problem in qualified_name_problems(key.lower()):
            yield invalid("metadata.annotations", key, problem)


def _container_errors(spec: PodSpec) -> Iterator[FieldError]:
    groups = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    seen: set[str] = set()
    for field, containers in groups:
        for index, container in enumerate(containers):
            name, path = container.name, f"spec.{field}[{index}].name"
            if not name:
                yield required(path)
            else:
                for problem in label_problems(name):
                    yield invalid(path, name, problem)
            if name in seen:
                yield duplicate(path, name)
            seen.add(name)
