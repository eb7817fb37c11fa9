"""Pods of Tekton: one for each task, with a container for each of its steps, which run one after the other.

Tekton's documentation ("Compute Resources in Tekton") says how amounts of steps and of whole tasks become those of
containers. Before the steps it runs containers of its own, without resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.fields import objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject, join_path
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

_NOTE = "how many tasks run at a time is not known: one pod of each is counted, with Tekton's init containers"
_ENTRYPOINT = "tekton-entrypoint"
_KEPT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName")
_TASKS = ("tasks", "finally")
_MAX_NESTING = 20
KINDS = ("ClusterTask", "Pipeline", "PipelineRun", "Task", "TaskRun")
"""Kinds of tekton.dev whose pods `task_pods` makes."""


def task_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield a pod of each task that is written in the object. Tasks of other objects are theirs, if the input has them.
    Raises `InputError`."""
    spec = part_of(found.data, "spec")
    missing: dict[str, None] = {}
    if found.kind in ("Task", "ClusterTask"):
        yield _pod(found, spec, "spec", "", {})
    elif found.kind == "TaskRun":
        template = part_of(spec, "podTemplate")
        if own := part_of(spec, "taskSpec"):
            task = {**own, **({"computeResources": spec["computeResources"]} if "computeResources" in spec else {})}
            yield _pod(found, task, "spec.taskSpec", "", template)
        else:
            missing.update(_missing(found, part_of(spec, "taskRef"), "Task", others))
    elif found.kind == "Pipeline":
        yield from _of_pipeline(found, spec, "spec", {}, others, missing)
    else:
        template = part_of(spec, "taskRunTemplate", "podTemplate") or part_of(spec, "podTemplate")
        if own := part_of(spec, "pipelineSpec"):
            yield from _of_pipeline(found, own, "spec.pipelineSpec", template, others, missing)
        else:
            missing.update(_missing(found, part_of(spec, "pipelineRef"), "Pipeline", others))
    if missing:
        yield PassedOver(found, f"{', '.join(missing)} is not in the input")


def _of_pipeline(
    found: ManifestObject,
    spec: Mapping[str, Any],
    path: str,
    template: Mapping[str, Any],
    others: Others,
    missing: dict[str, None],
    depth: int = 0,
) -> Iterator[FoundPod]:
    for field in _TASKS:
        for index, task in objects_of(spec, field):
            where = f"{path}.{field}[{index}]"
            if own := part_of(task, "taskSpec"):
                yield _pod(found, own, f"{where}.taskSpec", text_of(task, "name"), template)
            elif inner := part_of(task, "pipelineSpec"):
                if depth < _MAX_NESTING:
                    inner_path = f"{where}.pipelineSpec"
                    yield from _of_pipeline(found, inner, inner_path, template, others, missing, depth + 1)
            elif "pipelineRef" in task:
                missing.update(_missing(found, part_of(task, "pipelineRef"), "Pipeline", others))
            else:
                missing.update(_missing(found, part_of(task, "taskRef"), "Task", others))


def _missing(found: ManifestObject, reference: Mapping[str, Any], kind: str, others: Others) -> dict[str, None]:
    """Return the name of an object that the input lacks. One by a resolver is somewhere else."""
    kind = text_of(reference, "kind") or kind
    name = text_of(reference, "name")
    if not name:
        resolver = text_of(reference, "resolver")
        return {f"its {kind.lower()} by resolver {resolver}" if resolver else f"its {kind.lower()}": None}
    namespace = "" if kind.startswith("Cluster") else found.namespace
    return {} if others.find(kind, namespace, name) is not None else {f"{kind} {name}": None}


def _pod(found: ManifestObject, task: Mapping[str, Any], path: str, role: str, template: Mapping[str, Any]) -> FoundPod:
    shared = part_of(task, "stepTemplate")
    steps = [_container({**shared, **one}, "step", index) for index, one in objects_of(task, "steps")]
    whole = part_of(task, "computeResources")
    if whole and steps:
        share = _share(whole, len(steps), join_path(path, "computeResources"))
        steps = [{**step, "resources": share} for step in steps]
    beside = [_container(one, "sidecar", index) for index, one in objects_of(task, "sidecars")]
    before = [{"name": name, "image": _ENTRYPOINT} for name in ("prepare", "place-scripts")]
    kept = {field: template[field] for field in _KEPT if field in template}
    spec = {**kept, "initContainers": before, "containers": [*steps, *beside]}
    return name_template(found, {"spec": spec}, path, roles=(role,) if role else (), notes=(_NOTE,))


def _container(step: Mapping[str, Any], prefix: str, index: int) -> dict[str, Any]:
    name = text_of(step, "name") or f"unnamed-{index}"
    # Before v1 the field was `resources`.
    resources = part_of(step, "computeResources") or part_of(step, "resources")
    return {"name": f"{prefix}-{name}", "image": text_of(step, "image") or _ENTRYPOINT, "resources": resources}


def _share(whole: Mapping[str, Any], steps: int, path: str) -> dict[str, dict[str, str]]:
    """Return the share of each step in the amounts of a task. Raises `InputError`."""
    return {
        side: {name: _divide(value, steps, f"{path}.{side}.{name}") for name, value in part_of(whole, side).items()}
        for side in ("requests", "limits")
    }


def _divide(value: Any, steps: int, path: str) -> str:
    try:
        amount = Quantity.parse(str(value))
    except QuantityError as error:
        raise InputError(f"{value!r} is not an amount: {error}", path=path, remedy="write 500m or 1Gi") from None
    return f"{amount.nano // 10**6 // steps}m" if path.endswith(".cpu") else str(amount.nano // 10**9 // steps)
