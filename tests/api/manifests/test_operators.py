"""Pod templates in operators' objects, and how many pods each stands for: short manifests in the shape that the
operators' documentation shows."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from podslice.api.manifests.manifest import Manifests, read_manifests, read_text_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.api.manifests.texts import Text
from podslice.values.errors import InputError

RESOURCES = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}
POD_SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "app:1", "resources": RESOURCES}]}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}


def read(*objects: dict[str, Any], **options: Any) -> Manifests:
    return read_text_manifests(yaml.safe_dump_all(objects), "f.yaml", ReadOptions(**options))


def thing(version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **fields}


def ray(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"rayStartParams": {}, "template": TEMPLATE}
    return {**more, "headGroupSpec": head, "workerGroupSpecs": [{"template": TEMPLATE, **group} for group in groups]}


KUBEFLOW = {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": {"replicas": 3, "template": TEMPLATE}}
JOB = {"parallelism": 4, "completions": 2, "template": TEMPLATE}
COUNTED = [
    pytest.param(
        thing("jobset.x-k8s.io/v1alpha2", "JobSet", spec={"replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
            {"name": "workers", "replicas": 3, "template": {"spec": JOB}},
        ]}), {"x-driver": 1, "x-workers": 6}, id="JobSet: replicas of Jobs, each with its parallelism and completions",
    ),
    pytest.param(
        thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec={"replicas": 3, "leaderWorkerTemplate": {
            "size": 4, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE,
        }}), {"x-leader": 3, "x-worker": 9}, id="LeaderWorkerSet: one of size is the leader",
    ),
    pytest.param(
        thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec={"replicas": 3, "leaderWorkerTemplate": {
            "size": 4, "workerTemplate": TEMPLATE,
        }}), {"x": 12}, id="LeaderWorkerSet: the leader has the workers' template",
    ),
    pytest.param(
        thing("ray.io/v1", "RayCluster", spec=ray(
            {"groupName": "gpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 5},
            {"groupName": "tpu", "replicas": 2, "numOfHosts": 4},
        )), {"x-head": 1, "x-gpu": 2, "x-tpu": 8}, id="RayCluster: replicas of groups, hosts of each",
    ),
    pytest.param(
        thing("ray.io/v1", "RayJob", spec={"entrypoint": "python a.py", "rayClusterSpec": ray(
            {"groupName": "gpu", "replicas": 0, "minReplicas": 2, "maxReplicas": 5},
        )}), {"x-head": 1, "x-gpu": 2}, id="RayJob: never fewer than the minimum",
    ),
    pytest.param(
        thing("kubeflow.org/v1", "PyTorchJob", spec={"pytorchReplicaSpecs": KUBEFLOW}),
        {"x-master": 1, "x-worker": 3}, id="PyTorchJob",
    ),
    pytest.param(
        thing("kubeflow.org/v1", "TFJob", spec={"tfReplicaSpecs": {"PS": {"template": TEMPLATE}, **KUBEFLOW}}),
        {"x-ps": 1, "x-master": 1, "x-worker": 3}, id="TFJob: one where it says nothing",
    ),
    pytest.param(
        thing("kubeflow.org/v2beta1", "MPIJob", spec={"slotsPerWorker": 8, "mpiReplicaSpecs": KUBEFLOW}),
        {"x-master": 1, "x-worker": 3}, id="MPIJob: slots are processes in a pod, not pods",
    ),
    pytest.param(
        thing("batch.volcano.sh/v1alpha1", "Job", spec={"minAvailable": 3, "tasks": [
            {"name": "ps", "replicas": 2, "template": TEMPLATE}, {"name": "worker", "template": TEMPLATE},
        ]}), {"x-ps": 2, "x-worker": 1}, id="Volcano Job",
    ),
    pytest.param(
        thing("batch.volcano.sh/v1alpha1", "CronJob", spec={"jobTemplate": {"spec": {"tasks": [
            {"name": "w", "replicas": 2, "template": TEMPLATE},
        ]}}}), {"x": 2}, id="Volcano CronJob",
    ),
    pytest.param(
        thing("apps.kruise.io/v1beta1", "StatefulSet", spec={"replicas": 4, "template": TEMPLATE}), {"x": 4},
        id="OpenKruise StatefulSet",
    ),
    pytest.param(
        thing("apps.kruise.io/v1alpha1", "BroadcastJob", spec={"parallelism": 2, "template": TEMPLATE}), {"x": 1},
        id="OpenKruise BroadcastJob: one on each node, as a DaemonSet",
    ),
    pytest.param(
        thing("apps.kruise.io/v1alpha1", "UnitedDeployment", spec={"replicas": 6, "template": {
            "statefulSetTemplate": {"spec": {"template": TEMPLATE}}}}), {"x": 6}, id="OpenKruise UnitedDeployment",
    ),
    pytest.param(
        thing("argoproj.io/v1alpha1", "Rollout", spec={"replicas": 5, "template": TEMPLATE}), {"x": 5}, id="Rollout",
    ),
    pytest.param(
        thing("apps.openshift.io/v1", "DeploymentConfig", spec={"replicas": 2, "template": TEMPLATE}), {"x": 2},
        id="DeploymentConfig",
    ),
    pytest.param(
        thing("serving.kserve.io/v1beta1", "InferenceService", spec={"predictor": {"minReplicas": 2, **POD_SPEC}}),
        {"x": 2}, id="KServe: a specification without a template",
    ),
    pytest.param(
        thing("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", spec={"nodeSets": [
            {"name": "hot", "count": 3, "podTemplate": TEMPLATE}, {"name": "cold", "count": 2, "podTemplate": TEMPLATE},
        ]}), {"x-hot": 3, "x-cold": 2}, id="Elasticsearch: count",
    ),
    pytest.param(
        thing("kueue.x-k8s.io/v1beta1", "Workload", spec={"podSets": [
            {"name": "main", "count": 7, "template": TEMPLATE}]}), {"x": 7}, id="Kueue Workload: count",
    ),
    pytest.param(
        thing("flux-framework.org/v1alpha2", "MiniCluster", spec={"size": 4, **POD_SPEC}), {"x": 4},
        id="MiniCluster: size",
    ),
    pytest.param(
        thing("kubernetes.dask.org/v1", "DaskCluster", spec={
            "worker": {"replicas": 3, "spec": POD_SPEC}, "scheduler": {"spec": POD_SPEC},
        }), {"x-worker": 3, "x-scheduler": 1}, id="DaskCluster: replicas beside the specification",
    ),
    pytest.param(
        thing("grove.io/v1alpha1", "PodCliqueSet", spec={"replicas": 2, "template": {"cliques": [
            {"name": "prefill", "spec": {"replicas": 3, "podSpec": POD_SPEC}},
            {"name": "decode", "spec": {"replicas": 1, "podSpec": POD_SPEC}},
        ]}}), {"x-prefill": 6, "x-decode": 2}, id="numbers above each other multiply",
    ),
    pytest.param(
        thing("grove.io/v1alpha1", "PodCliqueSet", spec={"replicas": 1, "template": {
            "cliques": [{"name": "w", "spec": {"replicas": 3, "podSpec": POD_SPEC}},
                        {"name": "router", "spec": {"replicas": 2, "podSpec": POD_SPEC}}],
            "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["w"], "replicas": 2}],
        }}), {"x-w": 6, "x-router": 2}, id="a scaling group repeats its cliques",
    ),
    pytest.param(
        thing("serving.kserve.io/v1beta1", "InferenceService", spec={"predictor": {
            "minReplicas": 2, **POD_SPEC, "workerSpec": {"pipelineParallelSize": 3, **POD_SPEC}}}),
        {"x-predictor": 2, "x-worker": 4}, id="KServe on several nodes",
    ),
    pytest.param(
        thing("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", spec={"template": {"spec": {
            "replicatedJobs": [{"name": "node", "template": {"spec": {"template": TEMPLATE}}}]}}}), {"x": 1},
        id="TrainingRuntime",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("object_", "counts"), COUNTED)
def test_templates_are_found_and_counted(object_: dict[str, Any], counts: dict[str, int]) -> None:
    """Each template is a pod with a name of its own; `replicas` expands it."""
    once = read(object_)
    assert {one.pod.metadata.name: one.replicas for one in once.pods} == counts
    assert all(one.pod.spec.containers[0].name == "main" for one in once.pods)
    assert len(read(object_, replicas=True).pods) == sum(counts.values())


KNOWN = [param for param in COUNTED if param.id not in {"DaskCluster: replicas beside the specification"}]


@pytest.mark.parametrize(("object_", "counts"), KNOWN)
def test_known_numbers_need_no_warning(object_: dict[str, Any], counts: dict[str, int]) -> None:
    """Where the field is known nothing is assumed, except that a scaler may change it."""
    assert [note for note in read(object_).notes if "not known" in note] == []


def test_unknown_number_is_one_and_said() -> None:
    """A template of a kind that nobody knows, without a field of replicas, counts once, with a warning."""
    found = read(thing("example.com/v1", "Gizmo", spec={"engine": {"template": TEMPLATE}}))
    assert [one.replicas for one in found.pods] == [1]
    assert found.notes == ("f.yaml: Gizmo x: how many such pods run is not known: 1 counted",)


@pytest.mark.parametrize(
    ("scale", "count", "note"),
    [
        pytest.param(
            {}, 1, "Knative scales it by its requests: 1 counted (autoscaling.knative.dev/min-scale is the least)"
        ),
        pytest.param(
            {"autoscaling.knative.dev/min-scale": "3"}, 3, "at least 3 counted, without its own container queue-proxy"
        ),
        pytest.param({"autoscaling.knative.dev/minScale": "0"}, 1, "at least 1 counted"),
    ],
)
def test_knative_scales(scale: dict[str, str], count: int, note: str) -> None:
    """The least number of pods is in an annotation of the template; fields of Knative's own are no unknown ones."""
    spec = {**POD_SPEC, "containerConcurrency": 10}
    template = {"metadata": {"annotations": scale}, "spec": spec}
    found = read(thing("serving.knative.dev/v1", "Service", spec={"template": template}), strict=True)
    assert [(one.replicas, one.warnings) for one in found.pods] == [(count, ())]
    assert note in found.notes[0]


def test_autoscaled_group_of_ray() -> None:
    """With Ray's autoscaler the number is one within bounds, which the warning names."""
    group = {"groupName": "gpu", "replicas": 9, "minReplicas": 1, "maxReplicas": 5}
    found = read(thing("ray.io/v1", "RayCluster", spec=ray(group, enableInTreeAutoscaling=True)))
    assert [one.replicas for one in found.pods] == [1, 5]
    assert found.notes == ("f.yaml: RayCluster x: Ray scales group gpu between 1 and 5 replicas: 5 counted",)


def test_objects_in_objects() -> None:
    """An AppWrapper, a ManifestWork and a Template carry whole objects, of Kubernetes and of operators."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": JOB}
    pytorch = thing("kubeflow.org/v1", "PyTorchJob", spec={"pytorchReplicaSpecs": KUBEFLOW})
    wrapper = thing("workload.codeflare.dev/v1beta2", "AppWrapper", spec={
        "components": [{"template": job}, {"template": pytorch}, {"template": thing("v1", "Service", spec={})}],
    })  # fmt: skip
    found = read(wrapper)
    assert {one.pod.metadata.name: one.replicas for one in found.pods} == {"j": 2, "x-master": 1, "x-worker": 3}
    assert found.pods[0].path == "spec.components[0].template.spec.template"
    assert found.notes == ()


def test_numbers_around_an_object() -> None:
    """Katib runs so many trials at a time, each of them a Job of its own number of pods."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "template": TEMPLATE}}
    experiment = {"parallelTrialCount": 3, "trialTemplate": {"trialSpec": job}}
    assert [one.replicas for one in read(thing("kubeflow.org/v1beta1", "Experiment", spec=experiment)).pods] == [6]


def test_name_of_a_generated_object() -> None:
    """The API server completes `generateName`; its beginning names the pods until then."""
    found = read({**thing("ray.io/v1", "RayJob", spec={"rayClusterSpec": ray()}), "metadata": {"generateName": "fit-"}})
    assert [one.pod.metadata.name for one in found.pods] == ["fit"]


NO_TEMPLATES = [
    pytest.param(
        thing("kyverno.io/v1", "ClusterPolicy", spec={"rules": [
            {"validate": {"pattern": {"spec": {"containers": [{"name": "*", "image": "!*:latest"}]}}}}]}),
        id="pattern of a policy",
    ),
    pytest.param(
        thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", spec={"versions": [
            {"schema": {"openAPIV3Schema": {"default": TEMPLATE, "properties": {"spec": {"containers": []}}}}}]}),
        id="schema",
    ),
    pytest.param(thing("apps/v1", "ControllerRevision", data={"spec": {"template": TEMPLATE}}), id="old revision"),
    pytest.param(thing("apps.kruise.io/v1alpha1", "SidecarSet", spec=POD_SPEC), id="injected containers"),
    pytest.param(thing("v1", "ConfigMap", data={"pod.yaml": yaml.safe_dump(TEMPLATE)}), id="text of a ConfigMap"),
    pytest.param(
        thing("monitoring.coreos.com/v1", "ServiceMonitor", spec={"endpoints": []}), id="a kind without pods"
    ),
]  # fmt: skip


@pytest.mark.parametrize("object_", NO_TEMPLATES)
def test_what_only_looks_like_a_template(object_: dict[str, Any]) -> None:
    """Patterns, schemas, revisions and injected containers are not pods, and nothing is passed over with them."""
    found = read(thing("v1", "Pod", spec=POD_SPEC), object_, strict=True)
    assert ([one.kind for one in found.pods], found.notes) == (["Pod"], ())


@pytest.mark.parametrize("field", ["status", "values", "patch"])
def test_fields_that_are_not_searched(field: str) -> None:
    """A status repeats templates, and values of a chart are its author's."""
    with pytest.raises(InputError, match="holds no pods; passed over: Gizmo x: no pod template is in it"):
        read(thing("example.com/v1", "Gizmo", **{field: {"template": TEMPLATE}}))


def test_passed_over_is_named_counted_and_strict() -> None:
    """Operators' objects of which no pod can be read are one line for a file; --strict makes it an error."""
    databases = [{**thing("example.com/v1", "Database", spec={"numberOfInstances": 2}), "metadata": {"name": name}}
                 for name in ("a", "b", "c", "d")]  # fmt: skip
    pod = thing("v1", "Pod", spec=POD_SPEC)
    line = "passed over: 4 Database (a, b, c, …): no pod template is in it"
    assert read(pod, *databases).notes == (f"f.yaml: {line}",)
    with pytest.raises(InputError, match=r"f.yaml: passed over: 4 Database \(a, b, c, …\)"):
        read(pod, *databases, strict=True)


def test_foreign_kind_never_ends_a_file() -> None:
    """An unreadable part of an operator's object is a reason to pass it over; the rest of the file is read."""
    broken = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "{{cpu}}"}}}]}}
    found = read(
        thing("v1", "Pod", spec=POD_SPEC), thing("batch.volcano.sh/v1alpha1", "Job", spec={"tasks": "none"}),
        thing("example.com/v1", "Deployment", spec={"template": broken}),
    )  # fmt: skip
    assert [one.kind for one in found.pods] == ["Pod"]
    assert found.notes[0] == "f.yaml: passed over: Job x: no pod template is in it"
    assert "Deployment x: spec.template.spec.containers[0].resources.limits[cpu]: '{{cpu}}' is not" in found.notes[1]


def test_own_kinds_in_a_wrong_version_stay_errors() -> None:
    """A group of Kubernetes itself has one version of each kind: another one is a mistake."""
    with pytest.raises(InputError, match='no kind "Deployment" is registered for version "extensions/v1beta1"'):
        read(thing("extensions/v1beta1", "Deployment", spec={"template": TEMPLATE}))


def test_misspelt_field_in_an_operators_template() -> None:
    """Unknown fields of containers are found there too, with the path in the document."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limit": {"cpu": "1"}}}]}
    (one,) = read(thing("argoproj.io/v1alpha1", "Rollout", spec={"template": {"spec": spec}})).pods
    assert [field.path for field in one.unknown_fields] == ["spec.template.spec.containers[0].resources.limit"]
    assert "did you mean limits?" in one.warnings[0]


def test_fields_of_an_operators_own_containers() -> None:
    """Operators add fields to containers; only resources are those of Kubernetes everywhere."""
    container = {"name": "c", "image": "i", "runFlux": True, "resources": {"limit": {"cpu": "1"}}}
    (one,) = read(thing("flux-framework.org/v1alpha2", "MiniCluster", spec={"size": 2, "containers": [container]})).pods
    assert [field.path for field in one.unknown_fields] == ["spec.containers[0].resources.limit"]


@pytest.mark.parametrize("version", ["v1", None])
def test_kinds_without_a_group(version: str | None) -> None:
    """Older OpenShift writes v1, and some authors nothing: a template counts, and without one nothing is said."""
    config = {**thing("", "DeploymentConfig", spec={"replicas": 3, "template": TEMPLATE}), "apiVersion": version}
    service = {**thing("", "Service", spec={"ports": []}), "apiVersion": version}
    found = read(config, service, strict=True)
    assert ([one.replicas for one in found.pods], found.notes) == ([3], ())


def test_placeholders_in_metadata() -> None:
    """An object that is itself a template names its pods by placeholders, which somebody fills in."""
    meta = {"name": "${NAME}", "labels": {"app": "{{.Name}}"}}
    template = {"metadata": {"labels": meta["labels"]}, "spec": POD_SPEC}
    spec = {"replicas": 2, "template": template}
    inner = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    (one,) = read(thing("template.openshift.io/v1", "Template", objects=[inner]), strict=True).pods
    assert (one.pod.metadata.name, one.pod.metadata.labels, one.replicas) == ("name", {"app": "name"}, 2)


def test_templates_that_an_operator_completes() -> None:
    """Elastic's templates name a container to change it: what the operator adds is not known, and said so."""
    partial = {"spec": {"containers": [{"name": "elasticsearch", "resources": RESOURCES}]}}
    sets = [{"name": "hot", "count": 3, "podTemplate": partial}]
    found = read(thing("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", spec={"nodeSets": sets}))
    assert [one.replicas for one in found.pods] == [3]
    assert "its operator completes this template, which lacks an image" in found.notes[0]


def test_operators_themselves() -> None:
    """OLM's object of an operator holds its Deployments; the copies in other namespaces stand for nothing."""
    own = {"install": {"spec": {"deployments": [{"name": "manager", "spec": {"replicas": 2, "template": TEMPLATE}}]}}}
    version = thing("operators.coreos.com/v1alpha1", "ClusterServiceVersion", spec=own)
    copy = {**version, "metadata": {"name": "x", "namespace": "a", "labels": {"olm.copiedFrom": "operators"}}}
    found = read(version, copy, strict=True)
    assert ([one.replicas for one in found.pods], found.notes) == ([2], ())


def test_settings_are_not_missed() -> None:
    """An object that configures others is not a workload, whatever its group; with a template in it, it is one."""
    settings = thing("example.com/v1", "GizmoPolicy", spec={"a": 1})
    assert read(thing("v1", "Pod", spec=POD_SPEC), settings, strict=True).notes == ()
    assert [one.kind for one in read(thing("example.com/v1", "GizmoConfig", spec={"template": TEMPLATE})).pods] == [
        "GizmoConfig"]  # fmt: skip


def test_hostile_objects_are_bounded() -> None:
    """Depth, the number of templates, and products of numbers have bounds."""
    deep: dict[str, Any] = {"template": TEMPLATE}
    for _ in range(70):
        deep = {"inner": deep}
    nested = thing("v1", "Pod", spec=POD_SPEC)
    for _ in range(8):
        nested = thing("example.com/v1", "Box", spec={"inside": nested})
    many = {"spec": {"items": [{"template": TEMPLATE}] * 1500}}
    huge = {"spec": {"replicas": 10**9, "inner": {"replicas": 10**9, "template": TEMPLATE}}}
    documents = [thing("example.com/v1", "Gizmo", **one) for one in ({"spec": deep}, many, huge)]
    found = read_manifests([Text([*documents, nested], "f.yaml")], ReadOptions())
    assert len(found.pods) == 1001
    assert found.pods[-1].replicas == 10**9
    assert any("it is inside more than 5 objects" in note for note in found.notes)


def test_a_key_that_is_there_twice() -> None:
    """In an operator's object the last value counts, and a note says so; the rest of the file is read. In a Pod it is
    an error, as for kubectl."""
    spark = (
        "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: s}\nspec:\n"
        "  sparkConf: {a: '1',\n    a: '2'}\n  executor: {cores: 1, cores: 3}\n"
    )
    pod = yaml.safe_dump(thing("v1", "Pod", spec=POD_SPEC))
    found = read_text_manifests(f"{spark}---\n{pod}", "f.yaml", ReadOptions())
    assert [one.pod.metadata.name for one in found.pods] == ["s-driver", "s-executor", "x"]
    assert str((found.pods[1].pod.spec.containers[0].resources.requests or {})["cpu"]) == "3"
    assert [line for line in found.notes if "more than once" in line] == [
        "f.yaml: line 6: the key 'a' is there more than once; the last one counts",
        "f.yaml: line 7: the key 'cores' is there more than once; the last one counts",
    ]
    with pytest.raises(InputError, match=r"f.yaml document 2: duplicate key 'kind' in line 10"):
        read_text_manifests(f"{spark}---\nkind: Pod\nkind: Pod\n{pod}", "f.yaml", ReadOptions())
