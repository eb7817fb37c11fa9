"""Driver and executors of a SparkApplication (Spark operator).

Its object has amounts, not a pod: cores, and memory to which Spark adds an overhead for what is outside the JVM.
Spark's documentation ("Running Spark on Kubernetes") has the defaults; a pod template beside them sets anything but
amounts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.fields import jvm_mebibytes, number_of, objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.values.errors import InputError

_LEAST_OVERHEAD = 384
"""MiB."""
_FACTORS = {"python": 0.4, "r": 0.4}
_OTHER_FACTOR = 0.1
_EXECUTORS = 2
_KEPT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "initContainers")
_NOTE = "made of its cores, memory and Spark's default overhead; what sparkConf or webhooks change is not known"


def spark_pods(found: ManifestObject, _: Others) -> Iterator[FoundPod]:
    """Yield driver (of a SparkConnect: server) and executor, also of an application that runs by a schedule. Raises
    `InputError`."""
    path = "spec.template" if found.kind == "ScheduledSparkApplication" else "spec"
    spec = part_of(found.data, *path.split("."))
    for role in ("server" if found.kind == "SparkConnect" else "driver", "executor"):
        count, note = _executors(spec) if role == "executor" else (1, "")
        template = _template(spec, role, f"{path}.{role}")
        yield name_template(
            found, template, f"{path}.{role}", replicas=count, roles=(role,), notes=(_NOTE, note) if note else (_NOTE,)
        )


def _executors(spec: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many executors run, and what is assumed of that."""
    dynamic = part_of(spec, "dynamicAllocation")
    if dynamic.get("enabled") is True:
        number = number_of(dynamic, "initialExecutors", "minExecutors")
        number = max(number or 0, number_of(dynamic, "minExecutors") or 0, 1)
        most = number_of(dynamic, "maxExecutors")
        return number, f"Spark scales executors up to {'any number' if most is None else most}: {number} counted"
    number = number_of(part_of(spec, "executor"), "instances")
    return (_EXECUTORS, f"Spark starts {_EXECUTORS} executors by default") if number is None else (number, "")


def _template(spec: Mapping[str, Any], role: str, path: str) -> dict[str, Any]:
    own = part_of(spec, role)
    written = part_of(own, "template", "spec")
    name = "spark-kubernetes-executor" if role == "executor" else "spark-kubernetes-driver"
    main = {
        "name": name,
        "image": text_of(own, "image") or text_of(spec, "image"),
        "resources": _amounts(spec, own, path),
    }
    beside = [
        one for _, one in (*objects_of(written, "containers"), *objects_of(own, "sidecars")) if one.get("name") != name
    ]
    kept = {field: own.get(field, written.get(field)) for field in _KEPT if field in own or field in written}
    return {"metadata": {"labels": part_of(own, "labels")}, "spec": {"containers": [main, *beside], **kept}}


def _amounts(spec: Mapping[str, Any], own: Mapping[str, Any], path: str) -> dict[str, dict[str, Any]]:
    memory = f"{_memory(spec, own, path)}Mi"
    requests = {"cpu": own.get("coreRequest", own.get("cores", 1)), "memory": memory}
    limits = {"memory": memory, **({"cpu": own["coreLimit"]} if "coreLimit" in own else {})}
    gpu = part_of(own, "gpu")
    devices = {str(gpu["name"]): gpu.get("quantity", 1)} if gpu.get("name") else {}
    return {"requests": {**requests, **devices}, "limits": {**limits, **devices}}


def _memory(spec: Mapping[str, Any], own: Mapping[str, Any], path: str) -> int:
    """Return the memory of a pod in MiB, overhead included. Raises `InputError`."""
    heap = jvm_mebibytes(own.get("memory", "1g"), f"{path}.memory")
    if "memoryOverhead" in own:
        return heap + jvm_mebibytes(own["memoryOverhead"], f"{path}.memoryOverhead")
    text = spec.get("memoryOverheadFactor", _FACTORS.get(text_of(spec, "type").lower(), _OTHER_FACTOR))
    try:
        factor = float(text)
    except (TypeError, ValueError):
        factor = -1.0
    if not 0 <= factor <= 100:
        raise InputError(f"{text!r} is not a factor", path="spec.memoryOverheadFactor", remedy='write "0.1"')
    return heap + max(int(heap * factor), _LEAST_OVERHEAD)
