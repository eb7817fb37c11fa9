"""How many pods an object of an operator asks for, where its fields say so.

Nearly all operators name the number of pods `replicas`, beside the template or above it, and numbers above each other
multiply: a JobSet with two replicas of a Job with four pods has eight. Kinds that say it otherwise are in `_SPECIAL`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from podslice.api.manifests.fields import number_of, objects_of, part_of
from podslice.api.manifests.objects import ManifestObject

Steps = tuple[str | int, ...]
MAX_COUNT = 10**9
"""Larger numbers of pods are cut here: a product of fields of an unknown object may be of any size."""


class Count(NamedTuple):
    """A number of pods, None where no field says it, and what to say about it, "" for nothing."""

    number: int | None
    note: str = ""


def count_template(found: ManifestObject, steps: Steps) -> Count:
    """Return how many pods the template at `steps` of an object stands for."""
    special = _SPECIAL.get((found.group, found.kind))
    count = _count_generic(found.data, steps) if special is None else special(found.data, steps)
    if count.number is None and (found.group, found.kind) in _ONE_EACH:
        return Count(1)
    return count if count.number is None else count._replace(number=min(count.number, MAX_COUNT))


def _ancestors(data: Any, steps: Steps) -> list[tuple[dict[str, Any], str | int]]:
    """Return the objects on the way to a template, each with the step that leads on; of the template itself no step
    ("")."""
    found = []
    for step in (*steps, ""):
        if isinstance(data, dict):
            found.append((data, step))
        data = None if step == "" else data[step]
    return found


def _count_generic(data: Mapping[str, Any], steps: Steps) -> Count:
    """Multiply what the objects on the way to a template say."""
    factors: list[int] = []
    note = ""
    for part, step in _ancestors(data, steps):
        number = number_of(part, "replicas", "count", "instances", "parallelTrialCount")
        if number is None and (least := number_of(part, "minReplicas", "minRunners")) is not None:
            # A pod that is scaled to zero has no size; one is counted, to show what the first of them needs.
            number = max(least, 1)
            most = number_of(part, "maxReplicas", "maxRunners")
            note = f"it is scaled between {least} and {'any number' if most is None else most} pods: {number} counted"
        if "workerTemplate" in part and (group := _group_pods(part, step)) is not None:
            number = group
        elif step == "template" and (job := _job_pods(part)) is not None:
            number = job if number is None else number * job
        if number is not None:
            factors.append(number)
    return Count(_product(factors) if factors else None, note)


def _job_pods(spec: Mapping[str, Any]) -> int | None:
    """Return how many pods the specification of a Job runs at a time, None where it says nothing."""
    parallel, completions = number_of(spec, "parallelism"), number_of(spec, "completions")
    if parallel is None and completions is None:
        return None
    parallel = 1 if parallel is None else parallel
    # The Job controller starts no more pods than completions are missing.
    return parallel if completions is None else min(parallel, completions)


def _group_pods(template: Mapping[str, Any], step: str | int) -> int | None:
    """Return how many pods of a LeaderWorkerSet's group have a template. Of `size` pods one is the leader, which has
    the workers' template where it has none of its own."""
    size = number_of(template, "size")
    if step == "workerTemplate" and size is not None:
        return size - 1 if template.get("leaderTemplate") and size else size
    return 1 if step in ("leaderTemplate", "workerTemplate") else None


def _product(factors: list[int]) -> int:
    result = 1
    for factor in factors:
        result *= factor
    return result


def _count_ray(data: Mapping[str, Any], steps: Steps) -> Count:
    """Count the pods of a Ray cluster: one head, and for a group of workers its `replicas`, within its bounds, of
    `numOfHosts` pods each."""
    ways = _ancestors(data, steps)
    if any(step in ("headGroupSpec", "submitterPodTemplate") for _, step in ways):
        return Count(1)
    group = next((part for part, _ in reversed(ways) if "groupName" in part), None)
    if group is None:
        return Count(None)
    least, most = number_of(group, "minReplicas") or 0, number_of(group, "maxReplicas")
    number = max(number_of(group, "replicas") or 0, least)
    number = number if most is None else min(number, most)
    hosts = number_of(group, "numOfHosts") or 1
    scaled = any(part.get("enableInTreeAutoscaling") is True for part, _ in ways)
    bounds = f"{least} and {'any number' if most is None else most}"
    note = f"Ray scales group {group['groupName']} between {bounds} replicas: {number} counted" if scaled else ""
    return Count(0 if group.get("suspend") is True else number * hosts, note)


_QUEUE_PROXY = ", without its own container queue-proxy"


def _count_knative(data: Mapping[str, Any], steps: Steps) -> Count:
    """Knative scales a revision by its requests; annotations of the template bound that."""
    template: Any = data
    for step in steps:
        template = template[step]
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    annotations = annotations if isinstance(annotations, dict) else {}
    prefix = "autoscaling.knative.dev/"
    least = annotations.get(f"{prefix}min-scale", annotations.get(f"{prefix}minScale"))
    if not str(least).isdecimal():
        return Count(1, f"Knative scales it by its requests: 1 counted ({prefix}min-scale is the least){_QUEUE_PROXY}")
    # Ten digits are enough, as counts are cut at MAX_COUNT; int() raises ValueError for thousands of them.
    number = max(int(str(least)[:10]), 1)
    return Count(number, f"Knative scales it by its requests, at least {number} counted{_QUEUE_PROXY}")


def _count_broadcast(_: Mapping[str, Any], __: Steps) -> Count:
    """Count one pod: it runs on each node; `parallelism` bounds on how many nodes at a time."""
    return Count(1)


def _count_mini_cluster(data: Mapping[str, Any], _: Steps) -> Count:
    return Count(number_of(part_of(data, "spec"), "size"))


def _count_cliques(data: Mapping[str, Any], steps: Steps) -> Count:
    """Count the pods of a clique: Grove repeats those of a scaling group as often as the group says."""
    count = _count_generic(data, steps)
    cliques = [part for part, _ in _ancestors(data, steps) if "podSpec" in part_of(part, "spec")]
    name = cliques[-1].get("name") if cliques else None
    for _, group in objects_of(part_of(data, "spec", "template"), "podCliqueScalingGroups"):
        names = group.get("cliqueNames")
        times = number_of(group, "replicas")
        if count.number is not None and times is not None and isinstance(names, list) and name in names:
            count = count._replace(number=count.number * times)
    return count


def _count_inference(data: Mapping[str, Any], steps: Steps) -> Count:
    """Count the pods of a predictor: on several nodes one head, and workers for the other stages of its pipeline."""
    count = _count_generic(data, steps)
    stages = number_of(part_of(data, "spec", "predictor", "workerSpec"), "pipelineParallelSize")
    if "workerSpec" in steps and stages is not None:
        return count._replace(number=(1 if count.number is None else count.number) * max(stages - 1, 1))
    return count


def _count_runtime(data: Mapping[str, Any], steps: Steps) -> Count:
    """Count the Jobs of a runtime once: Kubeflow's trainer starts none before a TrainJob names it."""
    count = _count_generic(data, steps)
    return count if count.number is not None else Count(1)


_KUBEFLOW = ("JAXJob", "MPIJob", "MXJob", "Notebook", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
_ONE_EACH = frozenset(
    {
        ("agents.x-k8s.io", "Sandbox"),
        ("apps.kruise.io", "AdvancedCronJob"),
        ("apps.kruise.io", "CloneSet"),
        ("apps.kruise.io", "DaemonSet"),
        ("apps.kruise.io", "StatefulSet"),
        ("apps.kruise.io", "UnitedDeployment"),
        ("apps.openshift.io", "DeploymentConfig"),
        ("argoproj.io", "Experiment"),
        ("argoproj.io", "Rollout"),
        ("batch.volcano.sh", "CronJob"),
        ("batch.volcano.sh", "Job"),
        ("flow.volcano.sh", "JobTemplate"),
        ("jobset.x-k8s.io", "JobSet"),
        ("kueue.x-k8s.io", "Workload"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("serving.kserve.io", "InferenceService"),
        *(("kubeflow.org", kind) for kind in _KUBEFLOW),
    }
)
"""Kinds whose templates stand for one pod where no field says another number: that is their default, or one on each
node, which counts like a DaemonSet."""
_SPECIAL: dict[tuple[str, str], Callable[[Mapping[str, Any], Steps], Count]] = {
    ("apps.kruise.io", "BroadcastJob"): _count_broadcast,
    ("flux-framework.org", "MiniCluster"): _count_mini_cluster,
    ("grove.io", "PodCliqueSet"): _count_cliques,
    ("ray.io", "RayCluster"): _count_ray,
    ("ray.io", "RayCronJob"): _count_ray,
    ("ray.io", "RayJob"): _count_ray,
    ("ray.io", "RayService"): _count_ray,
    ("serving.kserve.io", "InferenceService"): _count_inference,
    ("serving.knative.dev", "Configuration"): _count_knative,
    ("serving.knative.dev", "Revision"): _count_knative,
    ("serving.knative.dev", "Service"): _count_knative,
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): _count_runtime,
    ("trainer.kubeflow.org", "TrainingRuntime"): _count_runtime,
}
