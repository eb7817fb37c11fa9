"""Driver and executors of a SparkApplication of Apache's own operator, whose amounts are Spark's settings.

"Running Spark on Kubernetes" and "Spark Configuration" have the names and the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from podslice.api.manifests.fields import jvm_mebibytes, number_of, objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.values.errors import InputError

_LEAST_OVERHEAD = "384m"
_EXECUTORS = 2
_KEPT = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "initContainers")
_NOTE = "made of sparkConf and Spark's defaults; what the application or webhooks change is not known"


def spark_conf_pods(found: ManifestObject, _: Others) -> Iterator[FoundPod]:
    """Yield driver and executor. Raises `InputError`."""
    spec = part_of(found.data, "spec")
    conf = part_of(spec, "sparkConf")
    other_language = bool(spec.get("pyFiles") or spec.get("sparkRFiles"))
    for role in ("driver", "executor"):
        number, note = _executors(spec, conf) if role == "executor" else (1, "")
        template = part_of(spec, f"{role}Spec", "podTemplateSpec")
        pod = _pod_spec(part_of(template, "spec"), conf, role, jvm=not other_language)
        yield name_template(
            found,
            {"metadata": {"labels": part_of(template, "metadata", "labels")}, "spec": pod},
            "spec.sparkConf",
            replicas=number,
            roles=(role,),
            notes=(_NOTE, note) if note else (_NOTE,),
        )


def _executors(spec: Mapping[str, Any], conf: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many executors run, and what is assumed of that."""
    tolerated = part_of(spec, "applicationTolerations", "instanceConfig")
    if _is_true(conf, "spark.dynamicAllocation.enabled"):
        names = ("initialExecutors", "minExecutors")
        numbers = [_number(conf, f"spark.dynamicAllocation.{name}") or 0 for name in names]
        number = max(*numbers, number_of(tolerated, "initExecutors") or 0, 1)
        return number, f"Spark scales executors: {number} counted"
    given = _number(conf, "spark.executor.instances")
    if given is None:
        given = number_of(tolerated, "initExecutors")
    return (_EXECUTORS, f"Spark starts {_EXECUTORS} executors by default") if given is None else (given, "")


def _pod_spec(written: Mapping[str, Any], conf: Mapping[str, Any], role: str, *, jvm: bool) -> dict[str, Any]:
    containers = [one for _, one in objects_of(written, "containers")]
    # Spark takes the container that this setting names, else the first one of the template.
    chosen = str(conf.get(f"spark.kubernetes.{role}.podTemplateContainerName", ""))
    own = next((one for one in containers if one.get("name") == chosen), containers[0] if containers else {})
    beside = [one for one in containers if one is not own]
    prefix = f"spark.kubernetes.{role}.node.selector."
    selector = {name.removeprefix(prefix): str(value) for name, value in conf.items() if name.startswith(prefix)}
    kept = {field: written[field] for field in _KEPT if field in written}
    if selector:
        kept["nodeSelector"] = {**part_of(written, "nodeSelector"), **selector}
    image = text_of(own, "image") or str(conf.get("spark.kubernetes.container.image", "spark"))
    main = {"name": own.get("name") or f"spark-kubernetes-{role}", "image": image}
    return {"containers": [{**main, "resources": _amounts(own, conf, role, jvm=jvm)}, *beside], **kept}


def _amounts(own: Mapping[str, Any], conf: Mapping[str, Any], role: str, *, jvm: bool) -> dict[str, dict[str, Any]]:
    memory = f"{_memory(conf, role, jvm=jvm)}Mi"
    cores = conf.get(f"spark.kubernetes.{role}.request.cores", conf.get(f"spark.{role}.cores", 1))
    limit = conf.get(f"spark.kubernetes.{role}.limit.cores")
    devices = {}
    vendor, amount = conf.get(f"spark.{role}.resource.gpu.vendor"), conf.get(f"spark.{role}.resource.gpu.amount")
    if vendor and amount:
        devices[f"{vendor}/gpu"] = amount
    written = part_of(own, "resources")
    requests, limits = part_of(written, "requests"), part_of(written, "limits")
    return {
        "requests": {**requests, "cpu": str(cores), "memory": memory, **devices},
        "limits": {**limits, "memory": memory, **({} if limit is None else {"cpu": str(limit)}), **devices},
    }


def _memory(conf: Mapping[str, Any], role: str, *, jvm: bool) -> int:
    """Return the memory of a pod in MiB, overhead included. Raises `InputError`."""
    heap = _mebibytes(conf, f"spark.{role}.memory", "1g")
    more = 0
    if role == "executor":
        more = _mebibytes(conf, "spark.executor.pyspark.memory", "0")
        if _is_true(conf, "spark.memory.offHeap.enabled"):
            # The only one of these without a unit is in bytes.
            text = str(conf.get("spark.memory.offHeap.size", "0"))
            more += jvm_mebibytes(f"{text}b" if text.isdecimal() else text, "spec.sparkConf.spark.memory.offHeap.size")
    if f"spark.{role}.memoryOverhead" in conf:
        return heap + more + _mebibytes(conf, f"spark.{role}.memoryOverhead", "0")
    factor = _factor(conf, f"spark.{role}.memoryOverheadFactor", 0.1 if jvm else 0.4)
    least = _mebibytes(conf, f"spark.{role}.minMemoryOverhead", _LEAST_OVERHEAD)
    return heap + more + max(int(heap * factor), least)


def _factor(conf: Mapping[str, Any], name: str, default: float) -> float:
    text = conf.get(name, conf.get("spark.kubernetes.memoryOverheadFactor", default))
    try:
        factor = float(text)
    except (TypeError, ValueError):
        factor = -1.0
    if not 0 <= factor <= 100:
        raise InputError(f"{text!r} is not a factor", path=f"spec.sparkConf.{name}", remedy='write "0.1"')
    return factor


def _mebibytes(conf: Mapping[str, Any], name: str, default: str) -> int:
    return jvm_mebibytes(conf.get(name, default), f"spec.sparkConf.{name}")


def _number(conf: Mapping[str, Any], name: str) -> int | None:
    text = str(conf.get(name, ""))
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _is_true(conf: Mapping[str, Any], name: str) -> bool:
    return str(conf.get(name)).lower() == "true"
