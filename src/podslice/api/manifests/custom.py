"""Pods of objects of other API groups than Kubernetes' own: operators' workloads.

Where an operator makes pods without a template in its object, `MAKERS` knows how; in every other object templates are
found by their shape. Such an object never ends a file: what cannot be read of it is passed over, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.api.manifests.builtin import find_builtin_pod, has_builtin_pod
from podslice.api.manifests.counts import MAX_COUNT, count_template
from podslice.api.manifests.fields import fill_placeholders
from podslice.api.manifests.found import FoundPod, Maker, Others, PassedOver, name_roles
from podslice.api.manifests.objects import ManifestObject, join_path
from podslice.api.manifests.operators.argo import rollout_pods, workflow_pods
from podslice.api.manifests.operators.clusters import CLUSTERS, cluster_pods, elastic_pods
from podslice.api.manifests.operators.flink import flink_pods
from podslice.api.manifests.operators.kserve import inference_pods
from podslice.api.manifests.operators.kubevirt import launcher_pods
from podslice.api.manifests.operators.spark import spark_pods
from podslice.api.manifests.operators.spark_conf import spark_conf_pods
from podslice.api.manifests.operators.tekton import KINDS, task_pods
from podslice.api.manifests.operators.trainjob import runtime_pods, train_pods
from podslice.api.manifests.shapes import Shape, find_shapes
from podslice.api.manifests.templates import template_pod
from podslice.api.manifests.without_pods import SETTINGS, has_no_pods
from podslice.values.errors import InputError

_MAX_NESTING = 5
"""Most objects inside each other, such as a Job in a JobSet's AppWrapper."""
NO_TEMPLATE = "no pod template is in it"
MAKERS: Mapping[tuple[str, str], Maker] = {
    **dict.fromkeys(
        (("argoproj.io", kind) for kind in ("ClusterWorkflowTemplate", "CronWorkflow", "Workflow", "WorkflowTemplate")),
        workflow_pods,
    ),
    **dict.fromkeys(
        (("kubevirt.io", kind) for kind in ("VirtualMachine", "VirtualMachineInstance",
                                            "VirtualMachineInstanceReplicaSet")),
        launcher_pods,
    ),
    **dict.fromkeys(CLUSTERS, cluster_pods),
    **dict.fromkeys((("tekton.dev", kind) for kind in KINDS), task_pods),
    ("argoproj.io", "Rollout"): rollout_pods,
    ("elasticsearch.k8s.elastic.co", "Elasticsearch"): elastic_pods,
    ("flink.apache.org", "FlinkDeployment"): flink_pods,
    ("pool.kubevirt.io", "VirtualMachinePool"): launcher_pods,
    ("serving.kserve.io", "InferenceService"): inference_pods,
    ("spark.apache.org", "SparkApplication"): spark_conf_pods,
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): spark_pods,
    ("sparkoperator.k8s.io", "SparkApplication"): spark_pods,
    ("sparkoperator.k8s.io", "SparkConnect"): spark_pods,
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): runtime_pods,
    ("trainer.kubeflow.org", "TrainJob"): train_pods,
    ("trainer.kubeflow.org", "TrainingRuntime"): runtime_pods,
}  # fmt: skip
"""How operators make pods of objects without a pod template of their own, by group and kind."""


def find_custom_pods(found: ManifestObject, others: Others, depth: int = 0) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of an object of another group, or the object itself where it has none that can be read."""
    # Older OpenShift has its kinds in v1 too, and a version may be forgotten: a template counts, its lack says nothing.
    is_core = not found.group
    if has_no_pods(found) and not is_core:
        return
    maker = MAKERS.get((found.group, found.kind))
    try:
        pods = list(_by_shape(found, others, depth) if maker is None else maker(found, others))
    except InputError as error:
        yield PassedOver(found, str(error))
        return
    if not pods and maker is None and not is_core and not found.kind.endswith(SETTINGS):
        yield PassedOver(found, NO_TEMPLATE)
    named = iter(name_roles(one for one in pods if isinstance(one, FoundPod) and one.object is found))
    for one in pods:
        if isinstance(one, PassedOver):
            yield one
        else:
            # Objects inside this one have names of their own.
            pod = next(named) if one.object is found else one
            metadata = fill_placeholders(pod.data.get("metadata"))
            yield pod._replace(is_custom=True, data={**pod.data, "metadata": metadata})


def _by_shape(found: ManifestObject, others: Others, depth: int) -> Iterator[FoundPod | PassedOver]:
    for shape in find_shapes(found.data):
        if shape.is_object:
            times = count_template(found, shape.steps).number
            for one in _carried(found, shape, others, depth + 1):
                if isinstance(one, PassedOver) or times is None:
                    yield one
                else:
                    yield one._replace(replicas=min(one.replicas * times, MAX_COUNT))
        else:
            yield template_pod(found, shape)


def _carried(around: ManifestObject, shape: Shape, others: Others, depth: int) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of an object inside another one."""
    place = around.place._replace(path=join_path(around.place.path, shape.path))
    inner = ManifestObject(place, dict(shape.template))
    if depth > _MAX_NESTING:
        yield PassedOver(inner, f"it is inside more than {_MAX_NESTING} objects")
    elif has_builtin_pod(inner):
        try:
            yield find_builtin_pod(inner)
        except InputError as error:
            yield PassedOver(inner, str(error))
    elif inner.kind == "List" and isinstance(inner.data.get("items"), list):
        yield from _by_shape(inner._replace(data={"items": inner.data["items"]}), others, depth)
    else:
        yield from find_custom_pods(inner, others, depth)
