"""Databases, brokers, pipelines and Spark's own operator: objects that have amounts in fields of their own, in short
manifests of the shape that the operators' documentation shows."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.api.manifests.manifest import Manifests
from podslice.values.errors import InputError
from tests.api.manifests.test_operators import read, thing

BOTH = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}
SMALL = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


def amounts(found: Manifests) -> dict[str, dict[str, Any]]:
    """Return the requests of each container, by pod; init containers too."""
    return {
        one.pod.metadata.name: {
            c.name: {name: str(value) for name, value in (c.resources.requests or {}).items()}
            for c in (*one.pod.spec.init_containers, *one.pod.spec.containers)
        }
        for one in found.pods
    }


FOUR, ONE = BOTH["requests"], SMALL["requests"]
OBJECTS = [
    pytest.param(
        [thing("postgresql.cnpg.io/v1", "Cluster", spec={"instances": 3, "resources": BOTH})],
        {"x": (3, {"bootstrap-controller": FOUR, "postgres": FOUR})}, id="CloudNativePG",
    ),
    pytest.param(
        [thing("acid.zalan.do/v1", "postgresql", spec={
            "numberOfInstances": 2, "resources": BOTH, "connectionPooler": {"resources": SMALL},
            "sidecars": [{"name": "exporter", "image": "e", "resources": SMALL}]})],
        {"x": (2, {"postgres": FOUR, "exporter": ONE}), "x-pooler": (2, {"connection-pooler": ONE})}, id="Zalando",
    ),
    pytest.param(
        [thing("postgres-operator.crunchydata.com/v1beta1", "PostgresCluster", spec={
            "instances": [{"name": "a", "replicas": 2, "resources": BOTH}],
            "proxy": {"pgBouncer": {"replicas": 2, "resources": SMALL}}})],
        {"x-a": (2, {"database": FOUR}), "x-pgbouncer": (2, {"pgbouncer": ONE})}, id="Crunchy",
    ),
    pytest.param(
        [thing("pxc.percona.com/v1", "PerconaXtraDBCluster", spec={
            "pxc": {"size": 3, "resources": BOTH, "nodeSelector": {"db": "yes"}},
            "haproxy": {"enabled": True, "size": 2, "resources": SMALL}, "proxysql": {"enabled": False, "size": 3}})],
        {"x-pxc": (3, {"pxc": FOUR}), "x-haproxy": (2, {"haproxy": ONE})}, id="Percona XtraDB",
    ),
    pytest.param(
        [thing("psmdb.percona.com/v1", "PerconaServerMongoDB", spec={
            "replsets": [{"name": "rs0", "size": 3, "resources": BOTH,
                          "arbiter": {"enabled": True, "size": 1, "resources": SMALL}},
                         {"name": "rs1", "size": 2, "resources": BOTH, "arbiter": {"enabled": False, "size": 1}}],
            "sharding": {"enabled": True, "mongos": {"size": 2, "resources": SMALL}}})],
        {"x-rs0": (3, {"mongod": FOUR}), "x-rs1": (2, {"mongod": FOUR}), "x-arbiter": (1, {"mongod-arbiter": ONE}),
         "x-mongos": (2, {"mongos": ONE})}, id="Percona MongoDB",
    ),
    pytest.param(
        [thing("kafka.strimzi.io/v1beta2", "Kafka", spec={
            "kafka": {"replicas": 3, "resources": BOTH}, "zookeeper": {"replicas": 3, "resources": SMALL},
            "entityOperator": {"topicOperator": {"resources": SMALL}, "userOperator": {}}})],
        {"x-kafka": (3, {"kafka": FOUR}), "x-zookeeper": (3, {"zookeeper": ONE}),
         "x-entity-operator": (1, {"topic-operator": ONE, "user-operator": {}})}, id="Kafka with ZooKeeper",
    ),
    pytest.param(
        [{**thing("kafka.strimzi.io/v1beta2", "KafkaNodePool", spec={"replicas": 3, "roles": ["broker"]}),
          "metadata": {"name": "pool", "labels": {"strimzi.io/cluster": "x"}}},
         {**thing("kafka.strimzi.io/v1beta2", "Kafka", spec={"kafka": {"resources": BOTH, "replicas": 1}}),
          "metadata": {"name": "x", "annotations": {"strimzi.io/node-pools": "enabled"}}}],
        {"pool": (3, {"kafka": FOUR})}, id="Kafka with node pools, which have the cluster's resources",
    ),
    pytest.param(
        [thing("rabbitmq.com/v1beta1", "RabbitmqCluster", spec={"replicas": 3, "resources": BOTH})],
        {"x": (3, {"rabbitmq": FOUR})}, id="RabbitMQ",
    ),
    pytest.param(
        [thing("scylla.scylladb.com/v1", "ScyllaCluster", spec={"datacenter": {"racks": [
            {"name": "a", "members": 3, "resources": BOTH, "agentResources": SMALL}]}})],
        {"x": (3, {"scylla": FOUR, "scylla-manager-agent": ONE})}, id="Scylla",
    ),
    pytest.param(
        [thing("pingcap.com/v1alpha1", "TidbCluster", spec={
            "tikv": {"replicas": 3, "requests": {**FOUR, "storage": "100Gi"}, "limits": FOUR}, "pd": {"replicas": 1}})],
        {"x-pd": (1, {"pd": {}}), "x-tikv": (3, {"tikv": FOUR})}, id="TiDB: amounts beside the other fields",
    ),
    pytest.param(
        [thing("monitoring.coreos.com/v1", "Prometheus", spec={
            "replicas": 2, "shards": 3, "containers": [{"name": "prometheus", "resources": BOTH},
                                                       {"name": "proxy", "image": "p", "resources": SMALL}]})],
        {"x": (6, {"prometheus": FOUR, "proxy": ONE})}, id="Prometheus: containers complete its own",
    ),
    pytest.param(
        [thing("databases.spotahome.com/v1", "RedisFailover", spec={
            "redis": {"resources": BOTH}, "sentinel": {"replicas": 5, "resources": SMALL}})],
        {"x-redis": (3, {"redis": FOUR}), "x-sentinel": (5, {"sentinel": ONE})}, id="RedisFailover",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "pods"), OBJECTS)
def test_pods_of_roles(objects: list[dict[str, Any]], pods: dict[str, tuple[int, dict[str, Any]]]) -> None:
    """Each role has its pods with the resources of its container, as often as its field says."""
    found = read(*objects)
    assert {one.pod.metadata.name: one.replicas for one in found.pods} == {name: n for name, (n, _) in pods.items()}
    assert amounts(found) == {name: own for name, (_, own) in pods.items()}
    assert found.passed_over == ()


@pytest.mark.parametrize(
    ("version", "kind", "spec", "why"),
    [
        ("acid.zalan.do/v1", "postgresql", {"numberOfInstances": 2}, "spec: without resources it has those that its"),
        ("rabbitmq.com/v1beta1", "RabbitmqCluster", {}, "spec: without resources it has those that its operator"),
        ("elasticsearch.k8s.elastic.co/v1", "Elasticsearch", {"nodeSets": [{"name": "hot", "count": 3}]},
         "hot of nodeSets: without resources"),
        ("postgresql.cnpg.io/v1", "Pooler", {"instances": 1}, "no pod template is in it"),
        ("tekton.dev/v1", "TaskRun", {"taskRef": {"name": "build"}}, "Task build is not in the input"),
        ("tekton.dev/v1", "PipelineRun", {"pipelineRef": {"resolver": "git"}}, "its pipeline by resolver git is not"),
    ],
)  # fmt: skip
def test_amounts_that_are_somewhere_else(version: str, kind: str, spec: dict[str, Any], why: str) -> None:
    """Nothing is invented: the object is named, with what is not known of it."""
    with pytest.raises(InputError, match=why):
        read(thing(version, kind, spec=spec))


def test_the_operators_own_containers_are_said() -> None:
    """A container without resources beside the main one costs the pod its own CPUs, and operators add such ones."""
    found = read(thing("rabbitmq.com/v1beta1", "RabbitmqCluster", spec={"resources": BOTH}))
    assert "and so whether the pod is Guaranteed, is not known" in found.notes[0]
    assert read(thing("postgresql.cnpg.io/v1", "Cluster", spec={"instances": 1, "resources": BOTH})).notes == ()


STEPS = [{"name": "build", "image": "b", "computeResources": BOTH}, {"image": "t"}]


def test_tasks_of_tekton() -> None:
    """Each task is a pod, each step a container; older objects say `resources`; pod templates say where it runs."""
    task = {"steps": STEPS, "sidecars": [{"name": "db", "image": "d"}], "stepTemplate": {"computeResources": SMALL}}
    own = {"step-build": FOUR, "step-unnamed-1": ONE, "sidecar-db": {}, "prepare": {}, "place-scripts": {}}
    run = thing("tekton.dev/v1", "TaskRun", spec={"taskSpec": task, "podTemplate": {"nodeSelector": {"a": "b"}}})
    found = read(run)
    assert amounts(found) == {"x": own}
    assert found.pods[0].pod.spec.node_selector == {"a": "b"}
    old = {"steps": [{"name": "build", "image": "b", "resources": SMALL}]}
    pipeline = {"tasks": [{"name": "one", "taskSpec": task}, {"name": "two", "taskRef": {"name": "x"}}],
                "finally": [{"name": "last", "taskSpec": old}]}  # fmt: skip
    found = read(
        thing("tekton.dev/v1beta1", "PipelineRun", spec={"pipelineSpec": pipeline}),
        thing("tekton.dev/v1beta1", "Task", spec=old),
    )
    plain = {"step-build": ONE, "prepare": {}, "place-scripts": {}}
    assert amounts(found) == {"x-one": own, "x-last": plain, "x": plain}
    inner = {"tasks": [{"name": "in", "pipelineSpec": {"tasks": [{"name": "deep", "taskSpec": old}]}}]}
    assert amounts(read(thing("tekton.dev/v1", "Pipeline", spec=inner))) == {"x": plain}


def test_amounts_of_a_whole_task_are_divided() -> None:
    """Tekton gives every step the same share of them."""
    spec = {"taskSpec": {"steps": STEPS}, "computeResources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    own = amounts(read(thing("tekton.dev/v1", "TaskRun", spec=spec)))["x"]
    assert own["step-build"] == own["step-unnamed-1"] == {"cpu": "1500m", "memory": str(1 << 29)}
    spec["computeResources"] = {"requests": {"cpu": "many"}}
    with pytest.raises(InputError, match="'many' is not an amount"):
        read(thing("tekton.dev/v1", "TaskRun", spec=spec))


def spark(conf: dict[str, str], **spec: Any) -> dict[str, Any]:
    return thing("spark.apache.org/v1", "SparkApplication", spec={"sparkConf": conf, **spec})


@pytest.mark.parametrize(
    ("conf", "more", "executors", "driver", "executor"),
    [
        ({}, {}, 2, ("1", "1408Mi"), ("1", "1408Mi")),
        ({"spark.executor.instances": "5", "spark.executor.cores": "4", "spark.executor.memory": "20g",
          "spark.kubernetes.driver.request.cores": "500m"}, {}, 5, ("500m", "1408Mi"), ("4", "22Gi")),
        ({"spark.driver.memory": "2048", "spark.driver.memoryOverhead": "1g"}, {"pyFiles": "a.py"}, 2,
         ("1", "3Gi"), ("1", "1433Mi")),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(1 << 30)}, {}, 2,
         ("1", "1408Mi"), ("1", "2432Mi")),
        ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "3"}, {}, 3,
         ("1", "1408Mi"), ("1", "1408Mi")),
    ],
)  # fmt: skip
def test_spark_settings(
    conf: dict[str, str], more: dict[str, Any], executors: int, driver: tuple[str, str], executor: tuple[str, str]
) -> None:
    """Driver and executors of Apache's own operator are made of Spark's settings and their defaults."""
    found = read(spark(conf, **more))
    assert [one.replicas for one in found.pods] == [1, executors]
    for name, (cpu, memory) in (("driver", driver), ("executor", executor)):
        own = amounts(found)[f"x-{name}"][f"spark-kubernetes-{name}"]
        assert own == {"cpu": cpu, "memory": memory}


def test_spark_templates_and_bad_settings() -> None:
    """The first container of a template is Spark's; others stay beside it. A bad amount names its setting."""
    template = {"spec": {"containers": [{"name": "main", "image": "i"}, {"name": "log", "image": "l"}]}}
    found = read(spark({"spark.kubernetes.driver.limit.cores": "2"}, driverSpec={"podTemplateSpec": template}))
    assert amounts(found)["x-driver"] == {"main": {"cpu": "1", "memory": "1408Mi"}, "log": {}}
    with pytest.raises(InputError, match=r"spark.driver.memory.*not an amount of memory as the JVM"):
        read(spark({"spark.driver.memory": "much"}))
