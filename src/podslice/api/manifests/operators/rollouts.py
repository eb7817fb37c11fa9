"""Pods of a Rollout (Argo Rollouts): of its own template, or of the workload that it refers to."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.api.manifests.fields import number_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.api.manifests.shapes import find_shapes
from podslice.api.manifests.templates import template_pod


def rollout_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of a rollout. The workload of a `workloadRef` gives the template and is scaled to 0 itself."""
    reference = part_of(found.data, "spec", "workloadRef")
    if not reference:
        pods = [template_pod(found, shape) for shape in find_shapes(found.data) if not shape.is_object]
        yield from pods
        if not pods:
            yield PassedOver(found, "it has neither a template nor a workloadRef")
        return
    kind, name = text_of(reference, "kind"), text_of(reference, "name")
    other = others.find(kind, found.namespace, name)
    template = {} if other is None else part_of(other.data, "spec", "template")
    if not template:
        yield PassedOver(found, f"its {kind} {name} is not in the input")
        return
    number = number_of(part_of(found.data, "spec"), "replicas")
    yield name_template(found, template, "spec.workloadRef", replicas=1 if number is None else number)
