"""Conditions that the driver writes into claims, at a real API server: the rights of deploy/manifests are enough, and
for nothing else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
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
from podslice.agent.dra.statuses import ClaimStatuses
from podslice.api.pod.spec import from_dict
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import ImpossibleClaimError
from podslice.service.http.apiconnection import AnswerError
from tests.conformance.deployed import FOLDER, deploy, deploy_rights
from tests.conformance.test_node_states import pod_of_an_agent

CLAIMS = f"{RESOURCES}/namespaces/conditions/resourceclaims"
SHARES = ("7d2c5b0e-8a2f-4a29-9a8e-0b5d3c8e1f00", "7d2c5b0e-8a2f-4a29-9a8e-0b5d3c8e1f01")
RAW = {"zone": 1, "clock": 2}
"""What another driver says, its keys as its program has them."""
PROBLEM = ImpossibleClaimError("NothingRequested", "claim conditions/c asks podslice-numa-0 for nothing")


@pytest.fixture
def token(cluster: Cluster, admin: Api, own_node: str) -> Iterator[str]:
    deploy_rights(admin)
    deploy(admin, *yaml.safe_load_all((FOLDER / "dra.yaml").read_text()))
    prepare_namespace(admin, "conditions")
    path, made = pod_of_an_agent(admin, own_node)
    yield made
    admin.call("DELETE", path)
    for one in admin.call("GET", CLAIMS)["items"]:
        admin.call("DELETE", f"{CLAIMS}/{one['metadata']['name']}")


def allocated(admin: Api, name: str, node: str) -> dict[str, Any]:
    """A claim with a device of ours on that node and one of another driver, of which that says something."""
    requests = [{"name": one, "exactly": {"deviceClassName": "podslice.io"}} for one in ("cpus", "gpu")]
    made = admin.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})
    pool = f"{node}/podslice.io"
    results = [
        {"request": "cpus", "driver": "podslice.io", "pool": pool, "device": "podslice-numa-0", "shareID": SHARES[0],
         "consumedCapacity": {"podslice.io/cpu": "0"}},
        {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"},
    ]  # fmt: skip
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    theirs = {"driver": "gpu.example.com", "pool": node, "device": "gpu-0", "data": RAW}
    pod = {"resource": "pods", "name": "p", "uid": "pod-uid"}
    status = {"allocation": allocation, "reservedFor": [pod], "devices": [theirs]}
    return dict(admin.call("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status}))


def devices_of(admin: Api, name: str) -> dict[str, Any]:
    """Return the statuses of the devices, by driver."""
    return {one["driver"]: one for one in admin.call("GET", f"{CLAIMS}/{name}")["status"]["devices"]}


def as_agent(config: dict[str, Any], claim: dict[str, Any], *changes: tuple[str, str, Any]) -> int:
    """The answer to a patch of a claim's status, 200 or what it is refused with."""
    where = claim["metadata"]
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": where["uid"]}]
    patch += [{"op": verb, "path": f"/status/{path}", "value": value} for verb, path, value in changes]

    async def main() -> int:
        server = HTTPApiServer(KubeConfig.from_dict(config).get())
        try:
            await server.patch_claim_status(where["namespace"], where["name"], patch)
        except AnswerError as error:
            return error.code
        finally:
            await server.close()
        return 200

    return asyncio.run(main())


CONDITION = {"type": "Ready", "status": "False", "reason": "X", "message": "",
             "lastTransitionTime": "2026-11-23T16:00:00Z"}  # fmt: skip
OTHER_POD = ("replace", "reservedFor", [{"resource": "pods", "name": "q", "uid": "other"}])


def others(message: str) -> tuple[str, str, Any]:
    """A condition on the other driver's device."""
    return "add", "devices/0/conditions", [{**CONDITION, "message": message}]


def own(node: str) -> tuple[str, str, Any]:
    """A condition on our device there."""
    return ("add", "devices/-", {"driver": "podslice.io", "pool": f"{node}/podslice.io", "device": "podslice-numa-0",
            "shareID": SHARES[0], "conditions": [CONDITION]})  # fmt: skip


def tell(config: dict[str, Any], admin: Api, node: str, name: str, problem: ImpossibleClaimError | None) -> list[str]:
    """Write a driver's conditions into the claim as it is now, and return its troubles."""
    troubles: list[str] = []

    async def main() -> None:
        server = HTTPApiServer(KubeConfig.from_dict(config).get())
        statuses = ClaimStatuses(server, node, trouble=lambda what, why: troubles.append(why))
        statuses.queue(from_dict(admin.call("GET", f"{CLAIMS}/{name}"), ResourceClaim), problem)
        while statuses.waiting:
            await statuses.write_first()
        await server.close()

    asyncio.run(main())
    return troubles


def test_told_and_taken_back(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """The claim says why it is not prepared beside what the other driver says, is not written again for the same, and
    says that it is once it can be."""
    allocated(admin, "c", own_node)
    config = cluster.kubeconfig(token=token)
    assert tell(config, admin, own_node, "c", PROBLEM) == []
    said = devices_of(admin, "c")
    (condition,) = said["podslice.io"]["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {"type": "Ready", "status": "False", "reason": PROBLEM.reason, "message": str(PROBLEM)}
    assert said["podslice.io"]["shareID"] == SHARES[0]
    assert said["gpu.example.com"]["data"] == RAW
    version = admin.call("GET", f"{CLAIMS}/c")["metadata"]["resourceVersion"]
    assert tell(config, admin, own_node, "c", PROBLEM) == []
    assert admin.call("GET", f"{CLAIMS}/c")["metadata"]["resourceVersion"] == version
    assert tell(config, admin, own_node, "c", None) == []
    said = devices_of(admin, "c")
    assert [(one["status"], one["reason"]) for one in said["podslice.io"]["conditions"]] == [("True", "Prepared")]
    assert set(said) == {"podslice.io", "gpu.example.com"}


def test_only_what_is_the_agents(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """No claim on another node, no device of another driver, not who has what, and no claim that was made again."""
    config = cluster.kubeconfig(token=token)
    mine, theirs = allocated(admin, "mine", own_node), allocated(admin, "theirs", f"{own_node}-other")
    assert as_agent(config, theirs, own(f"{own_node}-other")) == 422
    assert as_agent(config, mine, others("x")) == 422
    assert as_agent(config, mine, OTHER_POD) == 422
    assert as_agent(config, mine, ("remove", "allocation", None)) == 422
    again = {**mine, "metadata": {**mine["metadata"], "uid": "another"}}
    assert as_agent(config, again, own(own_node)) == 422
    assert devices_of(admin, "mine").keys() == {"gpu.example.com"}
    assert as_agent(config, mine, own(own_node)) == 200
    assert not devices_of(admin, "mine")["gpu.example.com"]["conditions"]


@pytest.mark.parametrize("lacking", ["resourceclaims/status", "resourceclaims/driver"])
def test_without_the_right(programs: None, tmp_path: Path, lacking: str) -> None:
    """Each of the two rights is needed; without it that is said in one line, and nothing is written."""
    documents = list(yaml.safe_load_all((FOLDER / "dra.yaml").read_text()))
    for one in documents:
        if one["kind"] == "ClusterRole":
            one["rules"] = [rule for rule in one["rules"] if lacking not in rule["resources"]]
    with ControlPlane(find_programs(), tmp_path, Settings(nodes=("n",))) as plane, plane.api() as admin:
        create_node(admin, "n")
        deploy_rights(admin)
        deploy(admin, *documents)
        prepare_namespace(admin, "conditions")
        _, token = pod_of_an_agent(admin, "n")
        config = plane.kubeconfig("admin")
        config["users"][0]["user"] = {"token": token}
        allocated(admin, "c", "n")
        (trouble,) = tell(config, admin, "n", "c", PROBLEM)
        assert trouble.startswith(
            "no condition is written into claims that cannot be prepared; deploy/manifests/dra.yaml has"
        )
        assert "\n" not in trouble
        assert set(devices_of(admin, "c")) == {"gpu.example.com"}


def test_server_that_does_not_look(programs: None, tmp_path: Path) -> None:
    """Without the gate the right to claims' status is the right to all of it: the policy keeps the agent to its own."""
    gates = {"DRAResourceClaimGranularStatusAuthorization": False}
    with ControlPlane(find_programs(), tmp_path, Settings(nodes=("n",), gates=gates)) as plane, plane.api() as admin:
        for node in ("n", "m"):
            create_node(admin, node)
        deploy_rights(admin)
        deploy(admin, *yaml.safe_load_all((FOLDER / "dra.yaml").read_text()))
        prepare_namespace(admin, "conditions")
        _, token = pod_of_an_agent(admin, "n")
        config = plane.kubeconfig("admin")
        config["users"][0]["user"] = {"token": token}
        mine, theirs = allocated(admin, "mine", "n"), allocated(admin, "theirs", "m")
        number = itertools.count()
        eventually(
            lambda: as_agent(config, mine, others(str(next(number)))) == 422, "the policy does not come into force"
        )
        assert as_agent(config, theirs, own("m")) == 422
        assert as_agent(config, mine, OTHER_POD) == 422
        assert as_agent(config, mine, own("n")) == 200
