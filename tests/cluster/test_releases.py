"""A cluster whose nodes are of several releases: each answers by its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from podslice import Node
from podslice.cluster.page.app import read_asked_pod, read_pods
from podslice.cluster.page.shell import node_fragment
from tests.cluster.bench import LIKE, filter_request, pod_object
from tests.cluster.pagebench import PageCluster

OLD = Node(LIKE.rules.machine, LIKE.rules.config, kubernetes="1.33")
"""A node like the others whose kubelet honours the containers' requests of pods with pod-level resources."""


def level_pod(name: str, cpus: str) -> dict[str, Any]:
    """A pod that owns CPUs under 1.33 and shares those of 1.36."""
    made = pod_object(name, cpus)
    made["spec"]["resources"] = made["spec"]["containers"][0]["resources"]
    return made


def manifest(document: dict[str, Any]) -> bytes:
    """Return the text of a file with the pod."""
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **document}).encode()


@pytest.fixture
def cluster() -> PageCluster:
    """`old` of 1.33 and `new` of 1.36, with as many CPUs in use; 4 are free on each NUMA node but one."""
    made = PageCluster()
    made.node("old", 4, 4, like=OLD)
    made.node("new", 4, 4)
    return made


def test_filter_and_prioritize(cluster: PageCluster) -> None:
    """The old node has no room for six CPUs of its own, where the new one would give none away; each as it would
    itself."""
    document = level_pod("wide", "6")
    answer = cluster.placing.filter(filter_request(document, ["old", "new"]))
    assert answer.nodes == ["new"]
    assert {**answer.failed, **answer.unresolvable} == {"old": "no NUMA node has 6 exclusive CPUs free"}
    small = filter_request(level_pod("small", "3"), ["old", "new"])
    assert set(cluster.placing.prioritize(small)) == {"old", "new"}
    for name, like in (("old", OLD), ("new", LIKE)):
        node = Node.of(like.rules, cluster.placing.replicas[name].state)  # type: ignore[arg-type]
        found = read_pods(manifest(document))[0].pod
        assert node.try_admit(found).admitted == (name == "new")


def test_answers_name_the_release(cluster: PageCluster) -> None:
    """Where a pod could go, the maps, and the page of a node; with one release nothing more is said."""

    async def look() -> None:
        (loaded,) = read_pods(manifest(pod_object("p", "3")))
        found = (await cluster.queries.fit(read_asked_pod(loaded))).fit
        assert {one.node: one.kubernetes for one in found.best} == {"old": "1.33", "new": "1.36"}
        assert "each node decides by its own release: Kubernetes 1.33 (1), 1.36 (1)" in found.notes
        tiles = (await cluster.queries.nodes("")).items
        assert {one.node: one.kubernetes for one in tiles} == {"old": "1.33", "new": "1.36"}
        assert "old: Kubernetes 1.33, 2 pods" in node_fragment("old", await cluster.queries.node("old"))

    asyncio.run(look())

    async def alone() -> None:
        one = PageCluster()
        one.node("new")
        (loaded,) = read_pods(manifest(pod_object("p", "3")))
        assert (await one.queries.fit(read_asked_pod(loaded))).fit.notes == ()

    asyncio.run(alone())
