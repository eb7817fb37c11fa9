"""Pods of a TrainJob (Kubeflow's trainer): those of its runtime, with the nodes and resources of the job.

A runtime holds a JobSet and runs nothing by itself. The Job in it that trains is the one labelled so, or called `node`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.fields import number_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.api.manifests.shapes import Shape, find_shapes
from podslice.api.manifests.templates import template_pod

_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINERS = ("node", "trainer", "trainer-node")


def runtime_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod]:
    """Yield the pods of a runtime with its default number of nodes, unless jobs in the input say what it runs."""
    if not any(_runtime(job, others) is found for job in others.by(_runtime_name, str(found.metadata.get("name")))):
        for shape in find_shapes(found.data):
            if not shape.is_object:
                nodes = _nodes({}, found) if _trains(found, shape) else None
                pod = template_pod(found, shape)
                yield pod if nodes is None else pod._replace(replicas=nodes)


def train_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of a job. Without its runtime only the resources of its nodes are known, if those."""
    trainer = part_of(found.data, "spec", "trainer")
    runtime = _runtime(found, others)
    if runtime is not None:
        yield from _pods_of_runtime(found, runtime, trainer)
        return
    name = text_of(part_of(found.data, "spec", "runtimeRef"), "name")
    if not part_of(trainer, "resourcesPerNode"):
        yield PassedOver(found, f"its runtime {name} is not in the input")
        return
    container = {"name": "node", "image": text_of(trainer, "image"), "resources": trainer["resourcesPerNode"]}
    nodes = number_of(trainer, "numNodes")
    note = f"its runtime {name} is not in the input: one container with resourcesPerNode is assumed"
    notes = (note, *(("how many nodes it has is not known: 1 counted",) if nodes is None else ()))
    yield name_template(
        found,
        {"spec": {"containers": [container]}},
        "spec.trainer",
        replicas=1 if nodes is None else nodes,
        notes=notes,
    )


def _pods_of_runtime(found: ManifestObject, runtime: ManifestObject, trainer: Mapping[str, Any]) -> Iterator[FoundPod]:
    for shape in find_shapes(runtime.data):
        if shape.is_object:
            continue
        pod = template_pod(runtime, shape)
        template, replicas = shape.template, pod.replicas
        if _trains(runtime, shape):
            nodes = _nodes(trainer, runtime)
            template, replicas = _with_resources(template, trainer), replicas if nodes is None else nodes
        yield name_template(found, template, "spec", replicas=replicas, roles=pod.roles, notes=pod.notes)


def _runtime(job: ManifestObject, others: Others) -> ManifestObject | None:
    """Return the runtime of a job, where the input has it."""
    reference = part_of(job.data, "spec", "runtimeRef")
    kind = text_of(reference, "kind") or "ClusterTrainingRuntime"
    namespace = job.namespace if kind == "TrainingRuntime" else ""
    return others.find(kind, namespace, text_of(reference, "name"))


def _runtime_name(found: ManifestObject) -> str | None:
    return text_of(part_of(found.data, "spec", "runtimeRef"), "name") if found.kind == "TrainJob" else None


def _trains(runtime: ManifestObject, shape: Shape) -> bool:
    """Whether a template of a runtime is that of the nodes, and not of an initializer or a launcher."""
    data: Any = runtime.data
    job: dict[str, Any] = {}
    for step in shape.steps:
        data = data[step]
        job = data if isinstance(step, int) else job
    labels = part_of(job, "template", "metadata", "labels")
    return labels[_STEP] == "trainer" if _STEP in labels else text_of(job, "name") in _TRAINERS


def _nodes(trainer: Mapping[str, Any], runtime: ManifestObject) -> int | None:
    number = number_of(trainer, "numNodes")
    return number_of(part_of(runtime.data, "spec", "mlPolicy"), "numNodes") if number is None else number


def _with_resources(template: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the nodes with the resources that the job gives their main container."""
    containers = list(template["spec"]["containers"])
    place = next((index for index, one in enumerate(containers) if one.get("name") in _TRAINERS), 0)
    own = {
        field: trainer[name]
        for field, name in (("resources", "resourcesPerNode"), ("image", "image"))
        if name in trainer
    }
    containers[place] = {**containers[place], **own}
    return {**template, "spec": {**template["spec"], "containers": containers}}
