"""Pods of Argo's objects: of the steps of a workflow (Argo Workflows), and of a Rollout (Argo Rollouts).

Each template of a workflow that runs something is a pod with a container `main`, or those of a container set, beside
which Argo puts its own `wait` and before which it runs its own `init`. How many of them run at a time follows from the
workflow's graph and parameters, and is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.fields import number_of, objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.api.manifests.shapes import find_shapes
from podslice.api.manifests.templates import template_pod

_EXECUTOR = "argoexec"
_NOTE = (
    "how many steps run at a time is not known: one pod of each template is counted, with Argo's containers init and "
    "wait, which have no resources by default"
)
_KEPT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "resourceClaims", "volumes")


def workflow_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield a pod of each template that runs containers. Templates of other objects are theirs, if the input has
    them."""
    path = "spec.workflowSpec" if found.kind == "CronWorkflow" else "spec"
    spec = part_of(found.data, *path.split("."))
    references = [(part_of(spec, "workflowTemplateRef"))]
    for where, template in _templates(spec, path):
        references += _references(template)
        template = {**part_of(spec, "templateDefaults"), **template}
        if containers := list(_containers(template)):
            pod = {"metadata": part_of(template, "metadata"), "spec": _pod_spec(spec, template, containers)}
            yield name_template(found, pod, where, roles=(text_of(template, "name"),), notes=(_NOTE,))
    missing = dict.fromkeys(_missing(found, [one for one in references if one], others))
    if missing:
        yield PassedOver(found, f"{', '.join(missing)} is not in the input")


def _pod_spec(
    workflow: Mapping[str, Any], template: Mapping[str, Any], containers: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the specification of a template's pod, with Argo's own containers."""
    shared = {field: workflow[field] for field in _KEPT if field in workflow}
    own = {field: template[field] for field in _KEPT if field in template}
    before = [one for _, one in objects_of(template, "initContainers")]
    return {
        **shared,
        **own,
        "initContainers": [{"name": "init", "image": _EXECUTOR}, *before],
        "containers": [*containers, {"name": "wait", "image": _EXECUTOR}],
    }


def _references(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the references of steps and tasks to templates of other objects."""
    for _, task in objects_of(part_of(template, "dag"), "tasks"):
        yield part_of(task, "templateRef")
    steps = template.get("steps")
    for group in steps if isinstance(steps, list) else ():
        for _, step in objects_of({"steps": group}, "steps"):
            yield part_of(step, "templateRef")


def _missing(found: ManifestObject, references: list[dict[str, Any]], others: Others) -> Iterator[str]:
    for reference in references:
        kind = "ClusterWorkflowTemplate" if reference.get("clusterScope") is True else "WorkflowTemplate"
        name = text_of(reference, "name")
        if others.find(kind, "" if kind.startswith("Cluster") else found.namespace, name) is None:
            yield f"{kind} {name}"


def _templates(spec: Mapping[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the templates of a workflow with their paths, those inside steps and tasks too."""
    for index, template in objects_of(spec, "templates"):
        where = f"{path}.templates[{index}]"
        yield where, template
        for number, task in objects_of(part_of(template, "dag"), "tasks"):
            if isinstance(task.get("inline"), dict):
                inner = {"name": text_of(task, "name"), **task["inline"]}
                yield f"{where}.dag.tasks[{number}].inline", inner
        steps = template.get("steps")
        for number, group in enumerate(steps if isinstance(steps, list) else ()):
            for place, step in objects_of({"steps": group}, "steps"):
                if isinstance(step.get("inline"), dict):
                    inner = {"name": text_of(step, "name"), **step["inline"]}
                    yield f"{where}.steps[{number}][{place}].inline", inner


def _containers(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the containers of a template; none of one that runs others (steps, dag) or waits."""
    for field in ("container", "script"):
        if own := part_of(template, field):
            yield {**{key: value for key, value in own.items() if key != "source"}, "name": "main"}
            break
    else:
        if part_of(template, "resource") or part_of(template, "data"):
            # Argo's own program does these, in a pod all the same.
            yield {"name": "main", "image": _EXECUTOR}
        for _, one in objects_of(part_of(template, "containerSet"), "containers"):
            yield {key: value for key, value in one.items() if key != "dependencies"}
    for _, one in objects_of(template, "sidecars"):
        yield {key: value for key, value in one.items() if key != "mirrorVolumeMounts"}


def rollout_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of a rollout: of its own template, or of the workload that it refers to, which is scaled to 0
    itself."""
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
