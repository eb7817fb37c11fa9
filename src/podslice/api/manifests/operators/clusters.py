"""Pods of databases, message brokers and the like, whose operators take amounts and make the pod themselves.

Each role of such an object (`spec.pxc`, an item of `spec.replsets`) says how many pods it has and the resources of
their main container, under names that its operator documents. What an operator puts beside the container is its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from podslice.api.manifests.fields import number_of, objects_of, part_of, text_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.api.manifests.shapes import find_shapes
from podslice.api.manifests.templates import template_pod

_NOTE = (
    "made of its resources; which containers the operator puts beside them, and so whether the pod is Guaranteed, is "
    "not known"
)
_DEFAULTS = "without resources it has those that its operator is set to"
_KEPT = {"nodeSelector": dict, "tolerations": list, "priorityClassName": str}
_SIDES = ("requests", "limits")


class _Role(msgspec.Struct, frozen=True):
    """Pods of an object. `path` leads to what describes them, `[]` to each item of a list; `container` is the main
    container, in which `{name}` is the object's name; `count` is the field with their number, else there are `default`.
    `resources` leads on to the amounts ("": they stand beside the other fields), `switch` to a field that has to be
    true; `beside` has further containers; `more` names containers with resources in a field of their own; `init` has
    those of the main one. `has_defaults`: without resources the operator takes its own."""

    path: str
    container: str
    count: str = "replicas"
    default: int = 1
    role: str = ""
    resources: str = "resources"
    switch: str = ""
    beside: str = ""
    more: tuple[tuple[str, str], ...] = ()
    init: str = ""
    has_defaults: bool = False
    is_whole: bool = False


_POSTGRES = (
    _Role("spec.instances[]", "database", beside="containers"),
    _Role("spec.proxy.pgBouncer", "pgbouncer", role="pgbouncer"),
)
_PROXIES = tuple(
    _Role(f"spec.{name}", name, "size", role=name, switch="enabled", beside="sidecars")
    for name in ("haproxy", "proxysql")
)
_SHARDING = "spec.sharding.enabled"
_CLUSTERS: Mapping[tuple[str, str], tuple[_Role, ...]] = {
    ("postgresql.cnpg.io", "Cluster"): (
        _Role("spec", "postgres", "instances", init="bootstrap-controller", is_whole=True),
    ),
    ("acid.zalan.do", "postgresql"): (
        _Role("spec", "postgres", "numberOfInstances", beside="sidecars", has_defaults=True),
        _Role("spec.connectionPooler", "connection-pooler", "numberOfInstances", 2, "pooler", has_defaults=True),
    ),
    ("postgres-operator.crunchydata.com", "PostgresCluster"): _POSTGRES,
    ("pgv2.percona.com", "PerconaPGCluster"): (msgspec.structs.replace(_POSTGRES[0], beside="sidecars"), _POSTGRES[1]),
    ("pxc.percona.com", "PerconaXtraDBCluster"): (
        _Role("spec.pxc", "pxc", "size", 3, "pxc", beside="sidecars"), *_PROXIES,
    ),
    ("ps.percona.com", "PerconaServerMySQL"): (
        _Role("spec.mysql", "mysql", "size", 3, "mysql", beside="sidecars"),
        _Role("spec.proxy.haproxy", "haproxy", "size", role="haproxy", switch="enabled"),
        _Role("spec.proxy.router", "router", "size", role="router", switch="enabled"),
        _Role("spec.orchestrator", "orchestrator", "size", role="orchestrator", switch="enabled"),
    ),
    ("psmdb.percona.com", "PerconaServerMongoDB"): (
        _Role("spec.replsets[]", "mongod", "size", 3, beside="sidecars"),
        _Role("spec.replsets[].arbiter", "mongod-arbiter", "size", role="arbiter", switch="enabled"),
        _Role("spec.replsets[].nonvoting", "mongod-nv", "size", role="nonvoting", switch="enabled"),
        _Role("spec.sharding.configsvrReplSet", "mongod", "size", 3, "cfg", switch=_SHARDING, beside="sidecars"),
        _Role("spec.sharding.mongos", "mongos", "size", role="mongos", switch=_SHARDING, beside="sidecars"),
    ),
    ("kafka.strimzi.io", "Kafka"): (
        _Role("spec.kafka", "kafka", role="kafka"),
        _Role("spec.zookeeper", "zookeeper", role="zookeeper"),
        _Role("spec.entityOperator", "", "", role="entity-operator", more=(
            ("topic-operator", "topicOperator.resources"), ("user-operator", "userOperator.resources"))),
        _Role("spec.cruiseControl", "cruise-control", "", role="cruise-control"),
        _Role("spec.kafkaExporter", "kafka-exporter", "", role="kafka-exporter"),
    ),
    ("kafka.strimzi.io", "KafkaNodePool"): (_Role("spec", "kafka"),),
    ("kafka.strimzi.io", "KafkaBridge"): (_Role("spec", "{name}-bridge"),),
    ("kafka.strimzi.io", "KafkaConnect"): (_Role("spec", "{name}-connect", default=3),),
    ("kafka.strimzi.io", "KafkaMirrorMaker2"): (_Role("spec", "{name}-mirrormaker2", default=3),),
    ("rabbitmq.com", "RabbitmqCluster"): (_Role("spec", "rabbitmq", has_defaults=True),),
    ("databases.spotahome.com", "RedisFailover"): (
        _Role("spec.redis", "redis", default=3, role="redis", beside="extraContainers"),
        _Role("spec.sentinel", "sentinel", default=3, role="sentinel", beside="extraContainers"),
    ),
    ("scylla.scylladb.com", "ScyllaCluster"): (
        _Role("spec.datacenter.racks[]", "scylla", "members", more=(("scylla-manager-agent", "agentResources"),)),
    ),
    ("cassandra.datastax.com", "CassandraDatacenter"): (
        _Role("spec", "cassandra", "size", more=(("server-system-logger", "systemLoggerResources"),)),
    ),
    ("pingcap.com", "TidbCluster"): tuple(
        _Role(f"spec.{name}", name, role=name, resources="") for name in ("pd", "tikv", "tidb", "tiflash", "ticdc")
    ),
    ("k8s.mariadb.com", "MariaDB"): (_Role("spec", "mariadb", beside="sidecarContainers"),),
    ("monitoring.coreos.com", "Alertmanager"): (_Role("spec", "alertmanager", beside="containers"),),
    ("monitoring.coreos.com", "Prometheus"): (_Role("spec", "prometheus", beside="containers"),),
    ("monitoring.coreos.com", "PrometheusAgent"): (_Role("spec", "prometheus", beside="containers"),),
    ("monitoring.coreos.com", "ThanosRuler"): (_Role("spec", "thanos-ruler", beside="containers"),),
}  # fmt: skip
CLUSTERS = tuple(_CLUSTERS)
"""Groups and kinds whose pods `cluster_pods` makes."""
_NODE_POOLS = "strimzi.io/node-pools"
_CLUSTER = "strimzi.io/cluster"


def cluster_pods(found: ManifestObject, others: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of each role of an object. Raises `InputError`."""
    lacking: dict[str, None] = {}
    for role in _CLUSTERS[found.group, found.kind]:
        for where, names, own in _parts(found.data, role):
            if not _is_there(found, role, own):
                continue
            own = _with_amounts_of_cluster(found, own, others)
            if role.has_defaults and not _amounts(own, role.resources):
                lacking[where] = None
                continue
            number = number_of(own, role.count) if role.count else None
            number = (role.default if number is None else number) * _shards(found)
            yield name_template(
                found,
                {"spec": _pod_spec(found, role, own)},
                where,
                replicas=number,
                roles=tuple(filter(None, (*names, role.role))),
                notes=() if role.is_whole else (_NOTE,),
            )
    if lacking:
        yield PassedOver(found, f"{', '.join(lacking)}: {_DEFAULTS}")


def _parts(data: Mapping[str, Any], role: _Role) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Yield what describes pods of a role: its path, the names of list items on the way, and the object."""
    above, listed, below = role.path.partition("[]")
    *steps, last = above.split(".")
    around = part_of(data, *steps)
    if not listed:
        if isinstance(around.get(last), dict):
            yield role.path, (), around[last]
        return
    for index, item in objects_of(around, last):
        own = part_of(item, *filter(None, below.split("."))) if below else item
        if own or not below:
            yield f"{above}[{index}]{below}", (text_of(item, "name") or str(index),), own


def _is_there(found: ManifestObject, role: _Role, own: Mapping[str, Any]) -> bool:
    if found.kind == "Kafka" and role.role == "kafka":
        annotations = found.metadata.get("annotations")
        pools = isinstance(annotations, dict) and annotations.get(_NODE_POOLS) == "enabled"
        return not pools and "replicas" in own
    if not role.switch:
        return True
    *steps, last = role.switch.split(".")
    return part_of(found.data if steps else own, *steps).get(last) is True


def _with_amounts_of_cluster(found: ManifestObject, own: dict[str, Any], others: Others) -> dict[str, Any]:
    """Return a pool of Kafka's nodes with the resources of its cluster, where it has none of its own."""
    labels = found.metadata.get("labels")
    if found.kind != "KafkaNodePool" or "resources" in own or not isinstance(labels, dict):
        return own
    cluster = others.find("Kafka", found.namespace, str(labels.get(_CLUSTER)))
    shared = {} if cluster is None else part_of(cluster.data, "spec", "kafka", "resources")
    return {**own, "resources": shared} if shared else own


def _shards(found: ManifestObject) -> int:
    """Return how often Prometheus runs each of its replicas."""
    number = number_of(part_of(found.data, "spec"), "shards") if found.kind.startswith("Prometheus") else 1
    return 1 if number is None else number


def _amounts(own: Mapping[str, Any], path: str) -> dict[str, Any]:
    written = part_of(own, *filter(None, path.split(".")))
    found = {side: part_of(written, side) for side in _SIDES}
    # TiDB's operator has the size of a volume among the amounts.
    amounts = {side: {name: value for name, value in one.items() if name != "storage"} for side, one in found.items()}
    return {side: one for side, one in amounts.items() if one}


def _pod_spec(found: ManifestObject, role: _Role, own: Mapping[str, Any]) -> dict[str, Any]:
    name = role.container.format(name=found.metadata.get("name"))
    main = _container(name, own, role.resources)
    extra = [_container(one, own, path) for one, path in role.more if path.partition(".")[0] in own or name]
    beside = [one for _, one in objects_of(own, role.beside) if one.get("name") != name]
    # A container of the main one's name completes it.
    same = next((one for _, one in objects_of(own, role.beside) if one.get("name") == name), {})
    kept = {field: own[field] for field, kind in _KEPT.items() if isinstance(own.get(field), kind)}
    spec = {"containers": [*([{**main, **same}] if name else []), *extra, *beside], **kept}
    return {**spec, "initContainers": [{**main, "name": role.init}]} if role.init else spec


def _container(name: str, own: Mapping[str, Any], resources: str) -> dict[str, Any]:
    return {"name": name, "image": text_of(own, "image") or name, "resources": _amounts(own, resources)}


def elastic_pods(found: ManifestObject, _: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of Elasticsearch. A set of nodes without a pod template has the operator's amounts."""
    shapes = [shape for shape in find_shapes(found.data) if not shape.is_object]
    yield from (template_pod(found, shape) for shape in shapes)
    written = {shape.steps[2] for shape in shapes if shape.steps[:2] == ("spec", "nodeSets")}
    sets = objects_of(part_of(found.data, "spec"), "nodeSets")
    if lacking := [text_of(one, "name") or str(index) for index, one in sets if index not in written]:
        yield PassedOver(found, f"{', '.join(lacking)} of nodeSets: {_DEFAULTS}")
