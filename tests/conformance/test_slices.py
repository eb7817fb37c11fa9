"""ResourceSlices and claims at a real API server: what the driver writes is taken, kept, and read by its own rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.controlplane import Api, ControlPlane, Settings
from e2e.programs import find_programs
from e2e.scheduling import create_node, eventually
from e2e.sharedplane import Cluster, prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import RESOURCES, HTTPApiServer
from podslice.agent.dra.driver import build_slices
from podslice.agent.dra.publisher import Publisher
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import ClaimRules, PodslicePolicy
from podslice.dra.prepared import node_devices, prepare
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.service.http.apiconnection import AnswerError
from tests.clock import until
from tests.conformance.deployed import FOLDER, deploy, deploy_rights
from tests.conformance.test_node_states import pod_of_an_agent

SLICES = f"{RESOURCES}/resourceslices"


@pytest.fixture
def token(cluster: Cluster, admin: Api, own_node: str) -> Iterator[str]:
    deploy_rights(admin)
    deploy(admin, *yaml.safe_load_all((FOLDER / "dra.yaml").read_text()))
    path, made = pod_of_an_agent(admin, own_node)
    yield made
    admin.call("DELETE", path)
    admin.call("DELETE", slices_of(own_node))


def slices_of(node: str) -> str:
    return f"{SLICES}?fieldSelector=spec.nodeName%3D{node}"


def node_of(numa: int) -> Node:
    """A machine of so many NUMA nodes, of which all but CPU 0 is for claims."""
    machine = from_synthetic(f"pack:1 numa:{numa}(memory=1GiB) core:4 pu:1")
    cpus = f"1-{4 * numa - 1}"
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    return Node(machine, config, predicates=False, policy=PodslicePolicy(claims=ClaimRules(cpus)))


def node_of_cpus(count: int) -> Node:
    """A machine on which each of so many CPUs is a device of its own."""
    machine = from_synthetic(f"pack:1 numa:1(memory=1GiB) core:{count + 1} pu:1")
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    rules = ClaimRules(f"1-{count}" if count > 1 else "1", devices="perCPU")
    return Node(machine, config, predicates=False, policy=PodslicePolicy(claims=rules))


def stored(admin: Api, node: str) -> list[dict[str, Any]]:
    """The slices of a node in order of their names."""
    found = admin.call("GET", slices_of(node))["items"]
    return sorted(found, key=lambda one: str(one["metadata"]["name"]))


@asynccontextmanager
async def publishing(config: dict[str, Any], node: str, wanted: Callable[[], Any]) -> AsyncIterator[Publisher]:
    """A publisher that runs."""
    server = HTTPApiServer(KubeConfig.from_dict(config).get())
    troubles: list[str] = []
    publisher = Publisher(server, node, wanted, trouble=lambda what, why: troubles.append(why))
    tasks = [asyncio.ensure_future(publisher.run()), asyncio.ensure_future(publisher.follow())]
    try:
        yield publisher
        assert troubles == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.close()


@pytest.mark.parametrize("numa", [1, 3, 64])
def test_published(cluster: Cluster, admin: Api, own_node: str, token: str, numa: int) -> None:
    """Slices of 1 to 64 NUMA nodes are taken and kept as they were sent, belong to the Node, and are written once."""
    node = node_of(numa)

    async def main() -> None:
        wanted = build_slices(node, own_node)
        async with publishing(cluster.kubeconfig(token=token), own_node, lambda: wanted) as publisher:
            await until(lambda: publisher.published)
            assert publisher.writes == 1
            assert publisher.dropped == ()
            publisher.look()
            await until(lambda: not publisher._due.is_set())
            assert publisher.writes == 1

    asyncio.run(main())
    (one,) = stored(admin, own_node)
    assert len(one["spec"]["devices"]) == numa
    assert one["spec"]["pool"] == {"name": f"{own_node}/podslice.io", "generation": 1, "resourceSliceCount": 1}
    assert one["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert one["metadata"]["name"].startswith(f"0-podslice.io-{own_node}-")


@pytest.mark.parametrize("count", [1, 128, 129, 300])
def test_many_devices(cluster: Cluster, admin: Api, own_node: str, token: str, count: int) -> None:
    """Pools of 1 to 300 devices are as many slices as are needed, of one generation and one count, each device once; of
    fewer devices later there are fewer slices."""
    wanted = [build_slices(node_of_cpus(one), own_node) for one in (count, 1)]

    async def main() -> None:
        async with publishing(cluster.kubeconfig(token=token), own_node, lambda: wanted[0]) as publisher:
            await until(lambda: publisher.published)
            assert publisher.dropped == ()
            check(stored(admin, own_node), count)
            del wanted[0]
            publisher.look()
            await until(lambda: not publisher._due.is_set() and devices_of(stored(admin, own_node)) == 1)

    asyncio.run(main())
    check(stored(admin, own_node), 1)


def devices_of(slices: list[dict[str, Any]]) -> int:
    return sum(len(one["spec"]["devices"]) for one in slices)


def check(slices: list[dict[str, Any]], count: int) -> None:
    """They are a whole pool of so many devices."""
    names = [device["name"] for one in slices for device in one["spec"]["devices"]]
    assert len(names) == len(set(names)) == count
    pools = [one["spec"]["pool"] for one in slices]
    assert {one["resourceSliceCount"] for one in pools} == {len(slices)} == {-(-count // 128)}
    assert len({one["generation"] for one in pools}) == 1
    assert [one["metadata"]["name"].split("-")[0] for one in slices] == [f"{place:x}" for place in range(len(slices))]


@pytest.mark.parametrize("gate", ["DRAPartitionableDevices", "DRAConsumableCapacity"])
def test_gate_off(programs: None, tmp_path: Path, gate: str) -> None:
    """A server that drops what devices mean offers none of them, instead of some that the scheduler gives twice."""
    machine = from_synthetic("pack:2 [numa(memory=1GiB)] core:4 pu:1")
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    rules = ClaimRules("1-7", devices="partitions" if "Partition" in gate else "perNUMANode")
    wanted = build_slices(Node(machine, config, predicates=False, policy=PodslicePolicy(claims=rules)), "n")
    troubles: list[str] = []

    async def main(config: dict[str, Any], admin: Api) -> None:
        server = HTTPApiServer(KubeConfig.from_dict(config).get())
        publisher = Publisher(server, "n", lambda: wanted, trouble=lambda what, why: troubles.append(why))
        await publisher.publish(wanted)
        assert stored(admin, "n") == []
        await server.close()

    with (
        ControlPlane(find_programs(), tmp_path, Settings(nodes=("n",), gates={gate: False})) as plane,
        plane.api() as api,
    ):
        create_node(api, "n")
        asyncio.run(main(plane.kubeconfig("admin"), api))
    assert [why.endswith("a gate is off") for why in troubles] == [True, False]
    assert "nothing is offered to claims" in troubles[1]


def test_wiped_and_changed(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """Slices that a kubelet has taken away come back; another machine is one change of one slice; somebody else's
    slice of our driver goes."""
    nodes = [node_of(2)]

    async def main() -> None:
        config = cluster.kubeconfig(token=token)
        async with publishing(config, own_node, lambda: build_slices(nodes[0], own_node)) as publisher:
            await until(lambda: publisher.published)
            first = stored(admin, own_node)
            admin.call("DELETE", slices_of(own_node))
            await until(lambda: bool(stored(admin, own_node)))
            second = stored(admin, own_node)
            assert [one["spec"] for one in second] == [one["spec"] for one in first]
            nodes[0] = node_of(3)
            await until(lambda: len(stored(admin, own_node)[0]["spec"]["devices"]) == 3)
            (third,) = stored(admin, own_node)
            assert third["metadata"]["uid"] == second[0]["metadata"]["uid"]
            assert third["spec"]["pool"]["generation"] == 1
            odd = {**first[0], "metadata": {"name": "odd"}}
            admin.call("POST", SLICES, odd)
            await until(
                lambda: [one["metadata"]["name"] for one in stored(admin, own_node)] == [third["metadata"]["name"]]
            )

    asyncio.run(main())


def test_other_nodes(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """An agent writes and deletes no slice of another node, nor of another driver."""
    other = f"{own_node}-other"
    (spec,) = build_slices(node_of(1), other)
    whole = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    spec["pool"]["generation"] = 1
    theirs = admin.call("POST", SLICES, {**whole, "metadata": {"generateName": "x-"}, "spec": spec})

    async def refused(write: Callable[[HTTPApiServer], Awaitable[Any]]) -> bool:
        server = HTTPApiServer(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        try:
            await write(server)
        except AnswerError as error:
            return "its own node only" in str(error)
        finally:
            await server.close()
        return False

    made = {**whole, "metadata": {"generateName": "y-"}, "spec": spec}
    for write in (lambda server: server.create_slice(made), lambda server: server.replace_slice(theirs),
                  lambda server: server.delete_slice(theirs)):  # fmt: skip
        eventually(lambda write=write: asyncio.run(refused(write)), "the policy does not come into force")
    admin.call("DELETE", slices_of(other))


def test_claim_is_read(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """A claim as the server has it is what is prepared; one that is not there is none."""
    prepare_namespace(admin, "claims")
    path = f"{RESOURCES}/namespaces/claims/resourceclaims"
    form = {"deviceClassName": "podslice.io", "capacity": {"requests": {"podslice.io/cpu": "2"}}}
    requests = [{"name": "cpus", "exactly": form}]
    made = admin.call("POST", path, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    result = {"request": "cpus", "driver": "podslice.io", "pool": f"{own_node}/podslice.io",
              "device": "podslice-numa-0", "shareID": "7d2c5b0e-8a2f-4a29-9a8e-0b5d3c8e1f00",
              "consumedCapacity": {"podslice.io/cpu": "2"}}  # fmt: skip
    pod = {"resource": "pods", "name": "p", "uid": "pod-uid"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [pod]}
    admin.call("PUT", f"{path}/c/status", {**made, "status": status})

    async def main() -> None:
        server = HTTPApiServer(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        found = await server.read_claim("claims", "c")
        assert found is not None
        node = node_of(2)
        devices = node_devices((0, 1), node.topology, {})
        prepared = prepare(found, uid=made["metadata"]["uid"], node=own_node, devices=devices)
        assert (prepared.devices[0].cpus, prepared.devices[0].numa_node, prepared.pods) == (2, 0, ("pod-uid",))
        assert prepared.devices[0].share_id == result["shareID"]
        assert await server.read_claim("claims", "none") is None
        assert (await server.server_version()).startswith("v1.36.")
        await server.close()

    asyncio.run(main())
    admin.call("DELETE", f"{path}/c")
