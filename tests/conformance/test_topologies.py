"""NodeResourceTopology objects at a real API server: the agent writes those of its node, beside other writers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.controlplane import APPLY, Api
from e2e.scheduling import eventually
from e2e.sharedplane import Cluster
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import COORDINATION, TOPOLOGIES, HTTPApiServer
from podslice.agent.api_server.topologylease import LeaseName, TopologyLease
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.node_objects.read_nrt import from_node_resource_topology
from tests.agent.test_journal import Followed
from tests.clock import until
from tests.conformance.deployed import FOLDER, deploy, deploy_rights
from tests.conformance.test_node_states import pod_of_an_agent
from tests.conftest import make_pod

LEASES = f"{COORDINATION}/namespaces/podslice/leases"
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
    admin.ask("DELETE", lease_path(own_node))


def lease_path(node: str) -> str:
    return f"{LEASES}/podslice-agent-{node}"


async def passing(seconds: float) -> None:
    """Five minutes pass as soon as anybody waits for them."""
    await asyncio.sleep(0.01)


def keep(
    cluster: Cluster,
    token: str,
    node: Followed,
    name: str,
    *,
    merges: bool = False,
    renewals: int = 1,
    namespace: str = "podslice",
) -> list[str]:
    """Keep the object until it was written and its Lease renewed so often, or until something went wrong, which is
    returned."""
    troubles: list[str] = []

    async def main() -> None:
        api = HTTPApiServer(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        named = LeaseName(namespace, name)
        topology = TopologyObject(
            api,
            name,
            lambda: node.owner.node,
            node.journal,
            merges=merges,
            version="7",
            lease=str(named),
            trouble=lambda what, why: troubles.append(why),
        )
        lease = TopologyLease(api, named, topology, trouble=lambda what, why: troubles.append(why), sleep=passing)
        tasks = [asyncio.ensure_future(one.run()) for one in (topology, lease)]
        await until(lambda: bool(lease.renewals >= renewals or troubles))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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


def test_a_lease_says_that_the_object_is_kept(
    cluster: Cluster, admin: Api, own_node: str, token: str, tmp_path: Path
) -> None:
    """With the rights of the manifest the Lease is made and renewed, which is no change of the object that names it; it
    goes with its Node, too."""
    node = Followed(tmp_path)
    assert keep(cluster, token, node, own_node) == []
    first, topology = admin.call("GET", lease_path(own_node)), admin.call("GET", f"{TOPOLOGIES}/{own_node}")
    assert keep(cluster, token, node, own_node, renewals=3) == []
    second = admin.call("GET", lease_path(own_node))
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert (second["spec"]["holderIdentity"], second["spec"]["leaseDurationSeconds"]) == (own_node, 900)
    assert second["metadata"]["ownerReferences"] == topology["metadata"]["ownerReferences"]
    assert [one["manager"] for one in second["metadata"]["managedFields"]] == ["podslice"]
    told = {one["name"]: one["value"] for one in topology["attributes"]}
    assert f"{LEASES.split('/')[-2]}/{second['metadata']['name']}" == told["podslice.io/lease"]
    again = admin.call("GET", f"{TOPOLOGIES}/{own_node}")
    assert again["metadata"]["resourceVersion"] == topology["metadata"]["resourceVersion"]


def test_an_agent_has_no_other_lease(cluster: Cluster, admin: Api, own_node: str, token: str, tmp_path: Path) -> None:
    """Neither in another namespace nor under another name, such as the scheduler's, may it write one, and the object is
    written all the same."""
    (trouble,) = keep(cluster, token, Followed(tmp_path), own_node, namespace="default")
    assert 'cannot patch resource "leases"' in trouble
    assert admin.call("GET", f"{TOPOLOGIES}/{own_node}")["zones"]
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": own_node}}
    with cluster.api(token=token) as agent:

        def refused(name: str) -> bool:
            path = f"{LEASES}/{name}?fieldManager=podslice&force=true"
            return "its own node only" in agent.ask("PATCH", path, {**body, "metadata": {"name": name}}, APPLY).message

        other = f"podslice-agent-{own_node}-other"
        eventually(lambda: refused(other), "the policy does not come into force")
        assert refused("podslice-scheduler")
        assert refused(own_node)
    admin.ask("DELETE", f"{LEASES}/{other}")


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
    """Fields of another writer stay in a zone; `own` takes the zones over."""
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
