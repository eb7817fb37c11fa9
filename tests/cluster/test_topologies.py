"""NodeResourceTopology objects at a real API server: the agent writes those of its node, beside other writers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.controlplane import Api
from e2e.scheduling import eventually
from e2e.sharedplane import Cluster
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.apiclient import TOPOLOGIES, HTTPApiServer
from podslice.agent.topologyobject import TopologyObject
from podslice.k8s.noderesourcetopology import from_node_resource_topology
from tests.agent.test_journal import Followed
from tests.clock import until
from tests.cluster.deployed import FOLDER, deploy, deploy_rights
from tests.cluster.test_node_states import pod_of_an_agent
from tests.conftest import make_pod

_LISTS = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "noderesourcetopologies.topology.node.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": "topology.node.k8s.io",
        "scope": "Cluster",
        "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies", "shortNames": ["node-res-topo"]},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["zones"],
                        "properties": {
                            "topologyPolicies": {"type": "array", "items": {"type": "string"}},
                            "attributes": _LISTS,
                            "zones": _LISTS,
                        },
                    }
                },
            }
        ],
    },
}
"""The kind with the lists of the real one (cluster-integration B.1), which nobody but their writer owns."""


@pytest.fixture
def token(cluster: Cluster, admin: Api, own_node: str) -> Iterator[str]:
    deploy_rights(admin)
    deploy(admin, KIND, *yaml.safe_load_all((FOLDER / "noderesourcetopology.yaml").read_text()))
    eventually(lambda: admin.ask("GET", TOPOLOGIES).code == 200)
    path, made = pod_of_an_agent(admin, own_node)
    yield made
    admin.call("DELETE", path)
    admin.ask("DELETE", f"{TOPOLOGIES}/{own_node}")


def keep(cluster: Cluster, token: str, node: Followed, name: str, *, merges: bool = False) -> list[str]:
    """Keep the object until it was written, or until something went wrong, which is returned."""
    troubles: list[str] = []

    async def main() -> None:
        api = HTTPApiServer(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        topology = TopologyObject(
            api,
            name,
            lambda: node.owner.node,
            node.journal,
            merges=merges,
            version="7",
            trouble=lambda what, why: troubles.append(why),
        )
        task = asyncio.ensure_future(topology.run())
        await until(lambda: bool(topology.writes or troubles))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()

    asyncio.run(main())
    return troubles


def test_an_agent_keeps_the_object_of_its_node(
    cluster: Cluster, admin: Api, own_node: str, token: str, tmp_path: Path
) -> None:
    """It is made, changed, read back as the machine it was made of, and goes with its Node."""
    node = Followed(tmp_path)
    assert keep(cluster, token, node, own_node) == []
    first = admin.call("GET", f"{TOPOLOGIES}/{own_node}")
    node.run(make_pod("a", ("c", "4")))
    assert keep(cluster, token, node, own_node) == []
    second = admin.call("GET", f"{TOPOLOGIES}/{own_node}")
    assert second["metadata"]["generation"] == first["metadata"]["generation"] + 1
    node_uid = admin.call("GET", f"/api/v1/nodes/{own_node}")["metadata"]["uid"]
    assert second["metadata"]["ownerReferences"][0]["uid"] == node_uid
    assert node.owner.node is not None
    assert from_node_resource_topology(second).machine.cpu_count == node.owner.node.machine.cpu_count


def test_an_agent_that_merges_begins_alone(
    cluster: Cluster, admin: Api, own_node: str, token: str, tmp_path: Path
) -> None:
    """Where nobody has written an object yet there is nothing to merge with, and it is made."""
    assert admin.ask("GET", f"{TOPOLOGIES}/{own_node}").code == 404
    assert keep(cluster, token, Followed(tmp_path), own_node, merges=True) == []
    assert admin.call("GET", f"{TOPOLOGIES}/{own_node}")["zones"]


def test_an_agent_merges_with_another_writer(
    cluster: Cluster, admin: Api, own_node: str, token: str, tmp_path: Path
) -> None:
    """What another writer put into a zone is still there; `own` takes the zones over."""
    thing = {"name": "other.io/thing", "capacity": "1", "allocatable": "1", "available": "1"}
    theirs = {"zones": [{"name": "node-0", "type": "Node", "resources": [thing]}]}
    made = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": own_node},
    }
    admin.call("POST", TOPOLOGIES, {**made, **theirs})
    node = Followed(tmp_path)
    assert keep(cluster, token, node, own_node, merges=True) == []
    zones: list[dict[str, Any]] = admin.call("GET", f"{TOPOLOGIES}/{own_node}")["zones"]
    assert thing in zones[0]["resources"]
    assert {"cpu", "memory"} <= {one["name"] for one in zones[0]["resources"]}
    assert keep(cluster, token, node, own_node) == []
    assert thing not in admin.call("GET", f"{TOPOLOGIES}/{own_node}")["zones"][0]["resources"]


def test_an_agent_writes_no_other_node(cluster: Cluster, admin: Api, own_node: str, token: str, tmp_path: Path) -> None:
    """The API server refuses the object of another node, and people hear why."""
    other = f"{own_node}-other"
    admin.call("POST", "/api/v1/nodes", {"metadata": {"name": other}})
    node = Followed(tmp_path)
    troubles = eventually(lambda: keep(cluster, token, node, other), "the policy does not come into force")
    assert "its own node only" in troubles[0]
    for path in (f"{TOPOLOGIES}/{other}", f"/api/v1/nodes/{other}"):
        admin.ask("DELETE", path)
