"""Job and task managers of a FlinkDeployment (Flink Kubernetes operator).

Their amounts are beside the pod template, which is common to both and may be missing. How many task managers Flink
starts follows from the job's parallelism and the slots of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.fields import jvm_mebibytes, number_of, objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, name_template
from podslice.api.manifests.objects import ManifestObject

_MAIN = "flink-main-container"
_SLOTS = "taskmanager.numberOfTaskSlots"
_KEPT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "initContainers")
_NOTE = "made of its jobManager, taskManager and pod template; what flinkConfiguration changes is not known"


def flink_pods(found: ManifestObject, _: Others) -> Iterator[FoundPod]:
    """Yield the pods of a deployment of Flink. Raises `InputError`."""
    spec = part_of(found.data, "spec")
    for role in ("jobManager", "taskManager"):
        number, note = _count(spec, role)
        yield name_template(
            found, _template(spec, role), f"spec.{role}", replicas=number, roles=(role,), notes=(_NOTE, *note)
        )


def _count(spec: Mapping[str, Any], role: str) -> tuple[int, tuple[str, ...]]:
    """Return how many pods a role has, and what is assumed of that."""
    number = number_of(part_of(spec, role), "replicas")
    if number is not None or role == "jobManager":
        return (1 if number is None else number), ()
    parallelism, slots = number_of(part_of(spec, "job"), "parallelism"), _slots(spec)
    if parallelism is None:
        return 1, ("how many task managers run is not known: 1 counted",)
    return max(-(-parallelism // slots), 1), ()


def _slots(spec: Mapping[str, Any]) -> int:
    configuration = part_of(spec, "flinkConfiguration")
    slots = str(configuration.get(_SLOTS, part_of(configuration, "taskmanager").get("numberOfTaskSlots")))
    return max(int(slots), 1) if slots.isdecimal() and len(slots) < 7 else 1


def _template(spec: Mapping[str, Any], role: str) -> dict[str, Any]:
    own = part_of(spec, role)
    templates = [part_of(spec, "podTemplate", "spec"), part_of(own, "podTemplate", "spec")]
    beside = [one for each in templates for _, one in objects_of(each, "containers") if one.get("name") != _MAIN]
    kept = {field: each[field] for each in templates for field in _KEPT if field in each}
    main = {"name": _MAIN, "image": text_of(spec, "image"), "resources": _amounts(own, f"spec.{role}")}
    return {"spec": {"containers": [main, *beside], **kept}}


def _amounts(own: Mapping[str, Any], path: str) -> dict[str, dict[str, Any]]:
    """Return the resources of a role: `resource`, which is request and limit alike, or `resources`."""
    if part_of(own, "resources"):
        written = part_of(own, "resources")
        return {
            side: _in_mebibytes(part_of(written, side), f"{path}.resources.{side}") for side in ("requests", "limits")
        }
    both = {name: value for name, value in part_of(own, "resource").items() if name in ("cpu", "memory")}
    both = _in_mebibytes(both, f"{path}.resource")
    return {"requests": both, "limits": both}


def _in_mebibytes(amounts: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return amounts with memory as Kubernetes writes it: to Flink `2048m` is MiB, not thousandths."""
    return {
        name: f"{jvm_mebibytes(value, f'{path}.{name}')}Mi"
        if name == "memory" and not str(value).endswith("i")
        else value
        for name, value in amounts.items()
    }
