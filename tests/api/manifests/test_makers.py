"""Pods that operators make of objects without a pod template: what follows from their documentation, and what is
assumed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from podslice.api.manifests.loaded import LoadedPod
from podslice.api.manifests.manifest import Manifests, read_text_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.api.pod.spec import Container
from podslice.values.errors import InputError

RESOURCES = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}


def read(*objects: dict[str, Any], **options: Any) -> Manifests:
    return read_text_manifests(yaml.safe_dump_all(objects), "f.yaml", ReadOptions(**options))


def thing(version: str, kind: str, spec: dict[str, Any], name: str = "x") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def named(found: Manifests) -> dict[str, LoadedPod]:
    return {one.pod.metadata.name: one for one in found.pods}


def amounts(container: Container) -> tuple[dict[str, str], dict[str, str]]:
    requests, limits = container.resources.requests or {}, container.resources.limits or {}
    return {name: str(one) for name, one in requests.items()}, {name: str(one) for name, one in limits.items()}


# Spark


def spark(**spec: Any) -> dict[str, Any]:
    return thing("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"type": "Scala", "image": "spark:4", **spec})


def test_spark_driver_and_executors() -> None:
    """Cores and memory become requests; memory has Spark's overhead, and is its own limit."""
    found = read(spark(
        driver={"cores": 1, "coreLimit": "1200m", "memory": "512m"},
        executor={"cores": 4, "coreRequest": "3500m", "instances": 3, "memory": "8g", "gpu": {
            "name": "nvidia.com/gpu", "quantity": 1}},
    ))  # fmt: skip
    driver, executor = found.pods
    assert (driver.pod.metadata.name, driver.replicas) == ("x-driver", 1)
    assert amounts(driver.pod.spec.containers[0]) == (
        {"cpu": "1", "memory": "896Mi"},
        {"cpu": "1200m", "memory": "896Mi"},
    )
    assert (executor.pod.metadata.name, executor.replicas) == ("x-executor", 3)
    assert amounts(executor.pod.spec.containers[0]) == (
        {"cpu": "3500m", "memory": "9011Mi", "nvidia.com/gpu": "1"},
        {"memory": "9011Mi", "nvidia.com/gpu": "1"},
    )
    assert "Spark's default overhead" in found.notes[0]


@pytest.mark.parametrize(
    ("spec", "memory"),
    [
        pytest.param({"executor": {"memory": "4g", "memoryOverhead": "1g"}}, "5Gi", id="overhead as written"),
        pytest.param({"type": "Python", "executor": {"memory": "4g"}}, "5734Mi", id="more beside Python"),
        pytest.param({"memoryOverheadFactor": "0.5", "executor": {"memory": "4g"}}, "6Gi", id="factor as written"),
        pytest.param({"executor": {}}, "1408Mi", id="Spark's default of one GiB"),
        pytest.param({"executor": {"memory": "2048"}}, "2432Mi", id="MiB without a unit"),
    ],
)
def test_spark_memory(spec: dict[str, Any], memory: str) -> None:
    """The overhead is a tenth, 40 % for Python, at least 384 MiB, or what is written."""
    executor = named(read(spark(**spec)))["x-executor"]
    assert amounts(executor.pod.spec.containers[0])[0]["memory"] == memory


def test_spark_executors_that_scale() -> None:
    """With dynamic allocation the first number counts; without any number Spark starts two."""
    dynamic = {"enabled": True, "initialExecutors": 2, "minExecutors": 1, "maxExecutors": 10}
    found = read(spark(dynamicAllocation=dynamic, executor={}))
    assert (named(found)["x-executor"].replicas, "up to 10: 2 counted" in found.notes[1]) == (2, True)
    found = read(spark(executor={}))
    assert (named(found)["x-executor"].replicas, "2 executors by default" in found.notes[1]) == (2, True)


def test_spark_template_adds_containers_and_no_amounts() -> None:
    """Spark sets the amounts of its own container whatever a template says, and keeps the others; a schedule and a
    server hold the same."""
    template = {"spec": {"containers": [
        {"name": "spark-kubernetes-driver", "resources": RESOURCES}, {"name": "log", "image": "log"}]}}  # fmt: skip
    application = spark(driver={"memory": "1g", "template": template})
    (driver, *_) = read(application).pods
    assert [one.name for one in driver.pod.spec.containers] == ["spark-kubernetes-driver", "log"]
    assert amounts(driver.pod.spec.containers[0])[0] == {"cpu": "1", "memory": "1408Mi"}
    schedule = thing("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", {"template": application["spec"]})
    assert [one.path for one in read(schedule).pods] == ["spec.template.driver", "spec.template.executor"]
    server = thing("sparkoperator.k8s.io/v1alpha1", "SparkConnect", {"server": {"cores": 2}, "executor": {}})
    assert list(named(read(server))) == ["x-server", "x-executor"]


def test_spark_memory_that_cannot_be_read() -> None:
    """An application whose amounts make no sense is passed over with the reason."""
    with pytest.raises(
        InputError, match=r"passed over: SparkApplication x: spec.driver.memory: 'much' is not an amount"
    ):
        read(spark(driver={"memory": "much"}))


# KubeVirt


def machine(domain: dict[str, Any], kind: str = "VirtualMachineInstance", **spec: Any) -> dict[str, Any]:
    inner: dict[str, Any] = {"domain": domain, "nodeSelector": {"a": "b"}}
    body = inner if kind == "VirtualMachineInstance" else {"template": {"spec": inner}, **spec}
    return thing("kubevirt.io/v1", kind, body)


def test_launcher_of_a_machine_with_dedicated_cpus() -> None:
    """The pod is Guaranteed: a CPU for each of the guest's, one for the emulator, memory with an assumed overhead."""
    cpu = {"cores": 2, "sockets": 2, "threads": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
    found = read(machine({"cpu": cpu, "memory": {"guest": "4Gi"}}))
    (container,) = found.pods[0].pod.spec.containers
    requests, limits = amounts(container)
    assert (container.name, requests, requests["cpu"]) == ("compute", limits, "9")
    # 228 MiB of helpers, 32 of video, 8 for each of 8 CPUs and the emulator, 1/512 of the guest's memory
    overhead = 228 + 32 + 8 * 9 + 8
    assert requests["memory"] == str((4096 + overhead) << 20)
    assert f"an assumed {overhead}Mi beside the guest's memory" in found.notes[0]
    assert found.pods[0].pod.spec.node_selector == {"a": "b"}


def test_launcher_of_an_ordinary_machine() -> None:
    """Without dedicated CPUs a tenth of the guest's CPUs is requested, or what its resources say."""
    (one,) = read(machine({"cpu": {"cores": 4}, "memory": {"guest": "1Gi"}})).pods
    requests, limits = amounts(one.pod.spec.containers[0])
    assert (requests["cpu"], limits) == ("400m", {})
    written = {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}
    (one,) = read(machine({"resources": written})).pods
    requests, limits = amounts(one.pod.spec.containers[0])
    assert (requests["cpu"], limits["cpu"]) == ("3", "3")
    assert int(limits["memory"]) - int(requests["memory"]) == 1 << 30


def test_launcher_with_huge_pages_and_devices() -> None:
    """The guest's memory comes from huge pages; passed-through devices are counted by name, and need memory."""
    devices = {"gpus": [{"deviceName": "nvidia.com/A100"}] * 2, "hostDevices": [{"deviceName": "intel.com/qat"}]}
    domain = {"cpu": {"cores": 1}, "memory": {"guest": "2Gi", "hugepages": {"pageSize": "1Gi"}}, "devices": devices}
    (one,) = read(machine(domain)).pods
    requests, _ = amounts(one.pod.spec.containers[0])
    assert {name: requests[name] for name in ("hugepages-1Gi", "nvidia.com/A100", "intel.com/qat")} == {
        "hugepages-1Gi": "2Gi", "nvidia.com/A100": "2", "intel.com/qat": "1"}  # fmt: skip
    assert 1 << 30 < int(requests["memory"]) < 2 << 30


def test_machines_of_an_instance_type() -> None:
    """CPUs and memory are those of the instance type in the input; without it the machine is passed over."""
    reference = {"instancetype": {"kind": "VirtualMachineInstancetype", "name": "large"}}
    vm = machine({}, "VirtualMachine", runStrategy="Always", **reference)
    kind = thing("instancetype.kubevirt.io/v1beta1", "VirtualMachineInstancetype",
                 {"cpu": {"guest": 3, "dedicatedCPUPlacement": True}, "memory": {"guest": "1Gi"}}, "large")  # fmt: skip
    (one,) = read(vm, kind).pods
    assert amounts(one.pod.spec.containers[0])[1]["cpu"] == "3"
    with pytest.raises(InputError, match="its VirtualMachineInstancetype large is not in the input"):
        read(vm)


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        pytest.param("VirtualMachine", {"runStrategy": "Always"}, 1, id="runs"),
        pytest.param("VirtualMachine", {"running": True}, 1, id="runs, in the old words"),
        pytest.param("VirtualMachineInstanceReplicaSet", {"replicas": 4}, 4, id="replicas"),
    ],
)
def test_number_of_machines(kind: str, spec: dict[str, Any], count: int) -> None:
    """A machine is one pod, a set has replicas."""
    (one,) = read(machine({"memory": {"guest": "1Gi"}}, kind, **spec)).pods
    assert one.replicas == count


def test_machines_that_are_off() -> None:
    """A halted machine has no pod."""
    with pytest.raises(InputError, match="holds no pods: VirtualMachine x asks for 0"):
        read(machine({"memory": {"guest": "1Gi"}}, "VirtualMachine", runStrategy="Halted"))


def test_pool_of_machines() -> None:
    """A pool holds a template of machines, and says how many."""
    template = {"spec": machine({"memory": {"guest": "1Gi"}}, "VirtualMachine", runStrategy="Always")["spec"]}
    (one,) = read(thing("pool.kubevirt.io/v1beta1", "VirtualMachinePool",
                        {"replicas": 3, "virtualMachineTemplate": template})).pods  # fmt: skip
    assert one.replicas == 3


def test_machine_without_memory() -> None:
    """A machine of which no memory is known is passed over."""
    with pytest.raises(InputError, match=r"passed over: VirtualMachineInstance x: spec\.domain: says no memory"):
        read(machine({"cpu": {"cores": 2}}))


# Argo Workflows


STEPS = [
    {"name": "main", "dag": {"tasks": [{"name": "a", "template": "build"}]}},
    {"name": "build", "nodeSelector": {"pool": "big"}, "container": {"image": "go:1", "resources": RESOURCES}},
    {"name": "script", "script": {"image": "py:3", "source": "print()"}, "sidecars": [{"name": "db", "image": "pg"}]},
    {"name": "set", "containerSet": {"containers": [{"name": "a", "image": "one"}, {"name": "main", "image": "two"}]}},
    {"name": "wait-a-bit", "suspend": {}},
    {"name": "make", "resource": {"action": "create", "manifest": "kind: Job"}},
]


def test_workflow_steps_are_pods() -> None:
    """Each template that runs something is a pod, with Argo's own containers; graphs and waiting are none."""
    found = read(thing("argoproj.io/v1alpha1", "Workflow", {"templates": STEPS}))
    names = {name: [one.name for one in each.pod.spec.containers] for name, each in named(found).items()}
    assert names == {
        "x-build": ["main", "wait"], "x-script": ["main", "db", "wait"], "x-set": ["a", "main", "wait"],
        "x-make": ["main", "wait"],
    }  # fmt: skip
    build = named(found)["x-build"]
    assert (build.path, build.pod.spec.node_selector) == ("spec.templates[1]", {"pool": "big"})
    assert [one.name for one in build.pod.spec.init_containers] == ["init"]
    assert amounts(build.pod.spec.containers[0])[0]["cpu"] == "2"
    assert "how many steps run at a time is not known" in found.notes[0]


def test_inline_templates_of_a_scheduled_workflow() -> None:
    """A template may stand in the step that runs it, and a workflow below a schedule."""
    inline = {"container": {"image": "go:1"}}
    spec = {"templates": [
        {"name": "dag", "dag": {"tasks": [{"name": "a", "inline": inline}]}},
        {"name": "steps", "steps": [[{"name": "b", "inline": inline}]]},
    ]}  # fmt: skip
    found = read(thing("argoproj.io/v1alpha1", "CronWorkflow", {"schedule": "* * * * *", "workflowSpec": spec}))
    assert list(named(found)) == ["x-a", "x-b"]
    assert found.pods[1].path == "spec.workflowSpec.templates[1].steps[0][0].inline"


def test_templates_of_another_object() -> None:
    """A workflow that refers to templates needs them in the input, where they count once."""
    library = thing("argoproj.io/v1alpha1", "WorkflowTemplate", {"templates": STEPS[1:2]}, "lib")
    whole = thing("argoproj.io/v1alpha1", "Workflow", {"workflowTemplateRef": {"name": "lib"}})
    steps = {"templates": [{"name": "s", "steps": [[{"name": "a", "templateRef": {"name": "lib"}}]]}]}
    for workflow in (whole, thing("argoproj.io/v1alpha1", "Workflow", steps)):
        assert list(named(read(workflow, library))) == ["lib"]
        with pytest.raises(InputError, match="Workflow x: WorkflowTemplate lib is not in the input"):
            read(workflow)


# Kubeflow's trainer and KServe


def runtime(kind: str = "ClusterTrainingRuntime") -> dict[str, Any]:
    def job(name: str, step: str) -> dict[str, Any]:
        spec = {"containers": [{"name": name, "image": "torch"}, {"name": "log", "image": "log"}]}
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step}
        return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": spec}}}}

    jobs = [job("dataset-initializer", "dataset-initializer"), job("node", "trainer")]
    spec = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}}
    return thing("trainer.kubeflow.org/v1alpha1", kind, spec, "torch")


TRAINER = {"numNodes": 4, "image": "mine", "resourcesPerNode": RESOURCES}
TRAIN = thing("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}, "trainer": TRAINER})


def test_trainjob_and_its_runtime() -> None:
    """The job's nodes have the runtime's template with the job's resources; the runtime does not count beside it."""
    found = read(runtime(), TRAIN, strict=True)
    assert {name: one.replicas for name, one in named(found).items()} == {"x-dataset-initializer": 1, "x-node": 4}
    node, beside = named(found)["x-node"].pod.spec.containers
    assert (node.image, amounts(node)[0]["cpu"], amounts(beside)) == ("mine", "2", ({}, {}))


def test_runtime_alone_has_its_default_nodes() -> None:
    """A runtime without a job is read as a template."""
    found = read(runtime())
    assert {name: one.replicas for name, one in named(found).items()} == {
        "torch-dataset-initializer": 1, "torch-node": 2}  # fmt: skip


def test_trainjob_without_its_runtime() -> None:
    """Resources of a node make a pod, which is said; a job without them is passed over."""
    found = read(TRAIN)
    assert [(one.replicas, one.pod.spec.containers[0].name) for one in found.pods] == [(4, "node")]
    assert "its runtime torch is not in the input: one container with resourcesPerNode is assumed" in found.notes[0]
    with pytest.raises(InputError, match="passed over: TrainJob x: its runtime torch is not in the input"):
        read(thing("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}}))


def test_model_of_an_inference_service() -> None:
    """A model's resources are those of its runtime's container; a model without any is passed over."""

    def service(model: dict[str, Any], **more: Any) -> dict[str, Any]:
        return thing("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {"model": model}, **more})

    found = read(service({"modelFormat": {"name": "pytorch"}, "resources": RESOURCES}))
    assert [one.name for one in found.pods[0].pod.spec.containers] == ["kserve-container"]
    assert "the serving runtime's container with the model's resources" in found.notes[0]
    explainer = {"explainer": {"containers": [{"image": "e"}]}}
    found = read(service({"modelFormat": {"name": "pytorch"}}, **explainer))
    assert [one.pod.spec.containers[0].name for one in found.pods] == ["container-0"]
    assert found.notes[0] == "f.yaml: passed over: InferenceService x: its resources are those of a serving runtime"


def test_rollout_of_another_workload() -> None:
    """A rollout that refers to a Deployment has its template, and its own number of pods; the Deployment runs none."""
    template = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
    deployment = thing("apps/v1", "Deployment", {"replicas": 0, "template": template}, "web")
    rollout = thing("argoproj.io/v1alpha1", "Rollout", {
        "replicas": 5, "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}})  # fmt: skip
    found = read(deployment, rollout)
    assert [(one.kind, one.pod.metadata.name, one.replicas) for one in found.pods] == [("Rollout", "x", 5)]
    with pytest.raises(InputError, match="passed over: Rollout x: its Deployment web is not in the input"):
        read(rollout)


# Flink


def flink(**spec: Any) -> Manifests:
    return read(thing("flink.apache.org/v1beta1", "FlinkDeployment", {"image": "flink:1", **spec}))


def test_flink_managers() -> None:
    """Amounts beside the template are those of Flink's container; memory is in MiB, and limits equal requests."""
    template = {"spec": {"containers": [{"name": "flink-main-container", "env": []}, {"name": "log", "image": "log"}]}}
    found = flink(
        flinkConfiguration={"taskmanager.numberOfTaskSlots": "2"},
        jobManager={"resource": {"memory": "2048m", "cpu": 1}},
        taskManager={"resource": {"memory": "4g", "cpu": 2}},
        podTemplate=template,
        job={"parallelism": 5},
    )
    assert {name: one.replicas for name, one in named(found).items()} == {"x-jobmanager": 1, "x-taskmanager": 3}
    manager, worker = (one.pod.spec.containers for one in found.pods)
    assert [one.name for one in manager] == ["flink-main-container", "log"]
    assert amounts(manager[0]) == ({"cpu": "1", "memory": "2Gi"}, {"cpu": "1", "memory": "2Gi"})
    assert amounts(worker[0])[0] == {"cpu": "2", "memory": "4Gi"}


def test_flink_resources_and_sessions() -> None:
    """Newer objects have requests and limits; a session starts task managers as jobs come."""
    resources = {"requests": {"cpu": "0.5", "memory": "2048m"}}
    found = flink(jobManager={"resources": resources}, taskManager={"resources": resources})
    assert amounts(found.pods[0].pod.spec.containers[0]) == ({"cpu": "500m", "memory": "2Gi"}, {})
    assert "how many task managers run is not known: 1 counted" in found.notes[1]
    assert named(flink(taskManager={"replicas": 4}))["x-taskmanager"].replicas == 4
