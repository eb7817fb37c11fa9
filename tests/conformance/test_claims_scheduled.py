"""Claims and the real scheduler: what it counts with the requests of pods (gate DRANodeAllocatableResources, KEP-5517),
what it refuses and what of that the node has to refuse, and CPUs beside the device of another driver."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from e2e.controlplane import Api, ControlPlane, Settings, StatusError
from e2e.programs import find_programs
from e2e.scheduling import Pods, create_node, eventually
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import RESOURCES, HTTPApiServer
from podslice.agent.dra.driver import build_slices
from podslice.agent.dra.publisher import Publisher
from podslice.api.pod.demand import pod_requests
from podslice.api.pod.spec import Pod, from_dict
from podslice.cli.main import cli
from podslice.dra.accounting import MAPPINGS, add_accounting
from podslice.dra.allocation.nodes import ClusterDevices
from podslice.dra.allocation.pools import LabelledNode
from podslice.dra.allocation.search import RequestedClaim
from podslice.dra.cel import CELSelectors
from podslice.dra.devices import ClaimableAmounts
from podslice.dra.objects import DeviceClass, ResourceClaimSpec, ResourceSlice
from podslice.dra.prepared import PreparedClaim, PreparedDevice
from podslice.dra.slices import machine_slices
from podslice.machine.readers.synthetic import from_synthetic
from tests.clock import until
from tests.conformance.deployed import FOLDER, apply
from tests.conformance.test_slices import node_of

GATE = "DRANodeAllocatableResources"
SCHEDULER = "counting"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
SLICES = f"{RESOURCES}/resourceslices"
Json = dict[str, Any]
_PATIENCE = 300.0


@pytest.fixture(scope="module")
def plane(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    settings = Settings(nodes=("n",), gates={GATE: True})
    with ControlPlane(find_programs(), tmp_path_factory.mktemp("plane"), settings) as running:
        with running.api() as admin:
            admin.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            for document in yaml.safe_load_all((FOLDER / "dra.yaml").read_text()):
                if document["kind"] == "DeviceClass":
                    assert apply(admin, document).code == 201
        running.start_scheduler(
            {"profiles": [{"schedulerName": SCHEDULER}], "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1},
            f"--feature-gates={GATE}=true",
        )
        yield running


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    with plane.api() as admin:
        yield admin


def node(api: Api, name: str, cpus: str) -> None:
    """A node with so many allocatable CPUs and one NUMA node of 7 for claims."""
    create_node(api, name)
    amounts = {"cpu": cpus, "memory": "64Gi", "pods": "20"}
    api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"capacity": amounts, "allocatable": amounts}},
             "application/merge-patch+json")  # fmt: skip
    (spec,) = build_slices(node_of(2), name)
    spec = add_accounting(spec, MAPPINGS)
    body = {"metadata": {"name": f"0-podslice.io-{name}"}, "spec": spec | {"pool": spec["pool"] | {"generation": 1}}}
    api.call("POST", SLICES, body)


def claim(api: Api, name: str, cpus: int) -> None:
    exactly = {"deviceClassName": "podslice.io", "capacity": {"requests": {"podslice.io/cpu": str(cpus)}}}
    spec = {"devices": {"requests": [{"name": "cpus", "exactly": exactly}]}}
    api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})


def container(name: str, milli: int, *claims: str, **more: Any) -> Json:
    named = {"claims": [{"name": one} for one in claims]} if claims else {}
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": f"{milli}m"}, **named}, **more}


def pod(name: str, where: str, containers: list[Json], claims: tuple[str, ...] = (), **spec: Any) -> Json:
    """A pod that can go to one node only; its claims are called as in the API."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [where]}]}
    only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": SCHEDULER, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
            "affinity": {"nodeAffinity": only}, "containers": containers,
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        } | spec,
    }  # fmt: skip


def bound(pods: Pods, name: str) -> Json:
    return eventually(lambda: pods.get(name) if pods.node(name) else {}, f"{name} is bound", _PATIENCE)


def refused(pods: Pods, name: str, text: str) -> None:
    eventually(lambda: text in str(pods.unscheduled(name).get("message")), f"{name} is refused: {text}", _PATIENCE)


def test_published(plane: ControlPlane, api: Api) -> None:
    """The server's schema says which form it takes; that is kept as it was sent, and written once, also by the agent
    after."""
    create_node(api, "n")
    troubles: list[str] = []

    async def main() -> None:
        for agent, writes in enumerate((1, 0)):
            server = HTTPApiServer(KubeConfig.from_dict(plane.kubeconfig("admin")).get())
            publisher = Publisher(server, "n", lambda: build_slices(node_of(2), "n"), accounting=True,
                                  trouble=lambda what, why: troubles.append(why))  # fmt: skip
            tasks = [asyncio.ensure_future(publisher.run()), asyncio.ensure_future(publisher.follow())]
            await until(lambda: publisher.published)  # noqa: B023
            assert (agent, publisher.writes, publisher.dropped) == (agent, writes, ())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.close()

    asyncio.run(main())
    assert troubles == []
    found = api.call("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dn")["items"]
    (mappings,) = {str(device[MAPPINGS]) for device in found[0]["spec"]["devices"]}
    assert mappings == str({"cpu": {"capacityKey": "podslice.io/cpu", "allocationMultiplier": "1"}})


def random_pod(draw: random.Random, name: str, where: str) -> tuple[Json, dict[str, int]]:
    """With init containers, a sidecar, one or two claims, sometimes pod-level requests; and the CPUs of its claims."""
    claims = {f"{name}-{place}": draw.randint(1, 3) for place in range(draw.randint(1, 2))}
    containers = [container(f"c{place}", draw.randrange(50, 900, 50)) for place in range(draw.randint(1, 3))]
    inits = [container("init", draw.randrange(100, 3000, 50))] if draw.random() < 0.5 else []
    if draw.random() < 0.5:
        inits.append(container("sidecar", draw.randrange(50, 600, 50), restartPolicy="Always"))
    everyone = [*inits, *containers]
    for one in claims:
        for who in draw.sample(everyone, draw.randint(1, len(everyone))):
            who["resources"].setdefault("claims", []).append({"name": one})
    level = {"resources": {"requests": {"cpu": f"{draw.randint(10, 15)}"}}} if draw.random() < 0.3 else {}
    return pod(name, where, containers, tuple(claims), initContainers=inits, **level), claims


def footprint(document: Json, claims: dict[str, int]) -> int:
    """Thousandths of a CPU: what the pod asks for and each claim once, or what it asks for as a whole."""
    spec = pod_requests(from_dict(document, Pod))["cpu"].milli_value()
    return spec if "resources" in document["spec"] else spec + 1000 * sum(claims.values())


@pytest.mark.parametrize("seed", range(3))
def test_footprint(api: Api, seed: int) -> None:
    """Pods of any shape: on a node with exactly as much as is counted the pod is bound, and its status says what its
    claims are; with a thousandth of a CPU less there is not enough."""
    draw, pods = random.Random(seed), Pods(api)
    cases = []
    for number in range(4):
        for short in (0, 1):
            name = f"s{seed}-{number}-{short}"
            state = draw.getstate()
            document, claims = random_pod(draw, name, name)
            if not short:
                draw.setstate(state)
            node(api, name, f"{footprint(document, claims) - short}m")
            for one, cpus in claims.items():
                claim(api, one, cpus)
            pods.create(document)
            cases.append((name, document, claims, short))
    for name, document, claims, short in cases:
        if short:
            refused(pods, name, "Insufficient cpu")
            continue
        said = bound(pods, name)["status"]["nodeAllocatableResourceClaimStatuses"]
        assert [(one["resourceClaimName"], Decimal(one["resources"]["cpu"])) for one in said] == sorted(claims.items())
        spec = document["spec"]
        for one in said:
            users = [who["name"] for who in (*spec["initContainers"], *spec["containers"])
                     if {"name": one["resourceClaimName"]} in who["resources"].get("claims", [])]  # fmt: skip
            assert one["containers"] == users


def test_refusals(api: Api) -> None:
    """A claim that no container uses, one that another pod counts already, and a pod that asks for less as a whole than
    its parts; and a pod that is counted is not resized."""
    pods = Pods(api)
    node(api, "refusals", "16")
    for name in ("used", "unused", "small"):
        claim(api, name, 2)
    pods.create(pod("first", "refusals", [container("c", 500, "used")], ("used",)))
    bound(pods, "first")
    pods.create(pod("second", "refusals", [container("c", 500, "used")], ("used",)))
    pods.create(pod("apart", "refusals", [container("c", 500)], ("unused",)))
    level = {"requests": {"cpu": "2"}}
    pods.create(pod("less", "refusals", [container("c", 500, "small")], ("small",), resources=level))
    refused(pods, "second", "is already used by another pod")
    refused(pods, "apart", "node-allocatable resource claim not referenced by any container within the pod")
    refused(pods, "less", "pod level request for cpu is insufficient to cover the aggregated container and node-")
    smaller = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "400m"}}}]}}
    with pytest.raises(StatusError, match="pods with node allocatable resource claims cannot be resized"):
        api.call("PATCH", f"{pods.path}/first/resize", smaller, "application/strategic-merge-patch+json")


def test_simulated(api: Api, tmp_path: Path) -> None:
    """`podslice admit` predicts from the server's objects how claims count, and why a pod with them is refused."""
    pods, draw = Pods(api), random.Random(20261123)
    node(api, "simulated", "64")
    documents = []
    for number in range(4):
        document, claims = random_pod(draw, f"drawn-{number}", "simulated")
        documents.append(document)
        for name in claims:
            claim(api, name, 1)
    for name in ("unheard", "short"):
        claim(api, name, 1)
    first = documents[0]["spec"]["resourceClaims"][0]["name"]
    documents += [
        pod("again", "simulated", [container("c", 100, first)], (first,)),
        pod("unheard", "simulated", [container("c", 100)], ("unheard",)),
        pod("short", "simulated", [container("c", 500, "short")], ("short",), resources={"requests": {"cpu": "1"}}),
    ]
    for name, kind, items in (
        ("claims", "DeviceClass", api.call("GET", f"{RESOURCES}/deviceclasses")["items"]),
        ("claims", "ResourceClaim", api.call("GET", CLAIMS)["items"]),
        ("slices", "ResourceSlice", api.call("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dsimulated")["items"]),
        ("pods", "Pod", documents),
    ):
        version = "v1" if kind == "Pod" else "resource.k8s.io/v1"
        with (tmp_path / f"{name}.yaml").open("a") as file:
            yaml.safe_dump_all([{"apiVersion": version, "kind": kind, **one} for one in items], file)
            file.write("---\n")
    kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    (tmp_path / "kubelet.yaml").write_text(yaml.safe_dump({**kind, "featureGates": {GATE: True}}))
    given = [f"--{name}={tmp_path}/{name}.yaml" for name in ("claims", "slices")]
    machine = ["--from", "pack:1 numa:2(memory=64GiB) core:32 pu:1", "--config", str(tmp_path / "kubelet.yaml")]
    arguments = ["admit", str(tmp_path / "pods.yaml"), *given, *machine, "-o", "json"]
    told = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    expected = {one["pod"]: one for one in json.loads(told.output)["claims"] if one["pod"]}
    for document in documents:
        name = document["metadata"]["name"]
        pods.create(document)
        answer = expected[f"default/{name}"]
        if not answer["allocated"]:
            refused(pods, name, f" 1 {answer['message']}")
            continue
        said = bound(pods, name)["status"]["nodeAllocatableResourceClaimStatuses"]
        assert said == [
            {"resourceClaimName": one["claim"], "containers": one["containers"], "resources": one["resources"]}
            for one in answer["counts"]
        ]
    assert [one["allocated"] for one in expected.values()] == [True] * 3 + [False] * 4


def test_already_allocated(api: Api) -> None:
    """A claim that keeps its allocation from an earlier pod is not counted for the next: the scheduler then gives the
    node's CPUs twice (docs/dra.md)."""
    pods = Pods(api)
    node(api, "again", "8")
    claim(api, "kept", 4)
    pods.create(pod("before", "again", [container("c", 1000, "kept")], ("kept",)))
    assert "nodeAllocatableResourceClaimStatuses" in bound(pods, "before")["status"]
    pods.delete("before")
    eventually(lambda: api.ask("GET", f"{pods.path}/before").code == 404, "the pod is gone", _PATIENCE)
    api.call("PATCH", f"{CLAIMS}/kept/status", {"status": {"reservedFor": None}}, "application/merge-patch+json")
    pods.create(pod("after", "again", [container("c", 4000, "kept")], ("kept",)))
    assert "nodeAllocatableResourceClaimStatuses" not in bound(pods, "after")["status"]
    pods.create(pod("beside", "again", [container("c", 4000)]))
    bound(pods, "beside")


GPUS = "gpu.example.com"


def gpu_slice(where: str, *numa: int) -> Json:
    """Another driver's devices, one on each of these NUMA nodes; it calls them as most do."""
    devices = [
        {"name": f"gpu-{place}", "attributes": {"resource.kubernetes.io/numaNode": {"int": one}}}
        for place, one in enumerate(numa)
    ]
    pool = {"name": where, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": f"0-{GPUS}-{where}"},
            "spec": {"driver": GPUS, "nodeName": where, "pool": pool, "devices": devices}}  # fmt: skip


def aligned(cpus: int) -> Json:
    """The spec of a claim for CPUs and a GPU of the same NUMA node."""
    own = {"deviceClassName": "podslice.io", "capacity": {"requests": {"podslice.io/cpu": str(cpus)}}}
    requests = [{"name": "cpus", "exactly": own}, {"name": "gpu", "exactly": {"deviceClassName": GPUS}}]
    constraint = {"requests": ["cpus", "gpu"], "matchAttribute": "resource.kubernetes.io/numaNode"}
    return {"devices": {"requests": requests, "constraints": [constraint]}}


def simulated(api: Api, where: str, specs: dict[str, Json]) -> dict[str, list[str] | None]:
    """The devices of each claim as podslice says, one claim after the other on one node."""
    listed = [from_dict(one, ResourceSlice) for one in api.call("GET", SLICES)["items"]]
    classes = {one["metadata"]["name"]: from_dict(one, DeviceClass)
               for one in api.call("GET", f"{RESOURCES}/deviceclasses")["items"]}  # fmt: skip
    own = [one for one in listed if one.spec.node_name == where]
    cluster = ClusterDevices(own, [LabelledNode(where)], classes, CELSelectors().matches)
    answers: dict[str, list[str] | None] = {}
    for name, spec in specs.items():
        found = cluster.find(where, [RequestedClaim(name, from_dict(spec, ResourceClaimSpec).devices)])
        answers[name] = None if found is None else [grant.offered.id[2] for grant in found[0]]
        if found is not None:
            cluster.take(where, found[0], name)
    return answers


def test_aligned_with_another_driver(api: Api) -> None:
    """CPUs of a claim are on the NUMA node of its GPU, although another comes first; where that has no room, or no GPU
    is left on one that has, the pod waits. The simulation says the same of each."""
    selector = {"cel": {"expression": f'device.driver == "{GPUS}"'}}
    api.ask("POST", f"{RESOURCES}/deviceclasses", {"metadata": {"name": GPUS}, "spec": {"selectors": [selector]}})
    node(api, "aligned", "32")
    api.call("POST", SLICES, gpu_slice("aligned", 1, 1))
    specs = {"near": aligned(2), "crowded": aligned(3), "next": aligned(2), "late": aligned(1)}
    expected = simulated(api, "aligned", specs)
    assert expected == {"near": ["podslice-numa-1", "gpu-0"], "crowded": None,
                        "next": ["podslice-numa-1", "gpu-1"], "late": None}  # fmt: skip
    pods = Pods(api)
    for name, spec in specs.items():
        api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        pods.create(pod(name, "aligned", [container("c", 100, name)], (name,)))
        devices = expected[name]
        if devices is None:
            refused(pods, name, "cannot allocate all claims")
            continue
        bound(pods, name)
        results = api.call("GET", f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
        assert [one["device"] for one in results] == devices


def of(kind: str, count: int = 1) -> Json:
    """The spec of a claim for whole caches, NUMA nodes or sockets."""
    selector = {"cel": {"expression": f'device.attributes["podslice.io"].?partition.orValue("") == "{kind}"'}}
    own = {"deviceClassName": "podslice.io", "selectors": [selector], "count": count}
    return {"devices": {"requests": [{"name": "cpus", "exactly": own}]}}


def test_partitions(api: Api) -> None:
    """Whole NUMA nodes and sockets of a machine in the real scheduler: what overlaps is given once, the simulation says
    the same, and each counts with the CPUs that it has."""
    create_node(api, "parts")
    amounts = {"cpu": "33", "memory": "64Gi", "pods": "20"}
    api.call("PATCH", "/api/v1/nodes/parts/status", {"status": {"capacity": amounts, "allocatable": amounts}},
             "application/merge-patch+json")  # fmt: skip
    machine = from_synthetic("pack:2 numa:2(memory=1GiB) core:4 pu:1")
    for one in machine_slices(machine, "parts", ClaimableAmounts(devices="partitions")):
        api.call("POST", SLICES, {**one, "spec": add_accounting(one["spec"], MAPPINGS)})
    specs = {"socket": of("socket"), "node": of("numaNode"), "machine": of("machine"), "two": of("numaNode", 2),
             "last": of("numaNode")}  # fmt: skip
    expected = simulated(api, "parts", specs)
    assert expected == {"socket": ["podslice-whole-socket-0"], "node": ["podslice-whole-numa-2"], "machine": None,
                        "two": None, "last": ["podslice-whole-numa-3"]}  # fmt: skip
    pods = Pods(api)
    for name, spec in specs.items():
        api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        pods.create(pod(name, "parts", [container("c", 100, name)], (name,)))
        devices = expected[name]
        if devices is None:
            refused(pods, name, "cannot allocate all claims")
            continue
        (said,) = bound(pods, name)["status"]["nodeAllocatableResourceClaimStatuses"]
        assert said["resources"] == {"cpu": "8" if name == "socket" else "4"}
        results = api.call("GET", f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
        assert [one["device"] for one in results] == devices


def test_claims_spread(plane: ControlPlane, api: Api) -> None:
    """With order mostFree claims that do not say where go to the NUMA node with most CPUs left, not all to the
    lowest."""
    create_node(api, "spread")
    amounts = {"cpu": "32", "memory": "64Gi", "pods": "20"}
    api.call("PATCH", "/api/v1/nodes/spread/status", {"status": {"capacity": amounts, "allocatable": amounts}},
             "application/merge-patch+json")  # fmt: skip
    on, pods = node_of(2), Pods(api)

    async def publish(number: int) -> None:
        """So that claims can name it: the scheduler may hear of a pod before it hears of the slice."""
        server = HTTPApiServer(KubeConfig.from_dict(plane.kubeconfig("admin")).get())
        wanted = build_slices(on, "spread", "mostFree")
        for device in wanted[0]["devices"]:
            device["attributes"]["podslice.io/writing"] = {"int": number}
        await Publisher(server, "spread", lambda: wanted, trouble=lambda what, why: None).publish(wanted)
        await server.close()

    def given(name: str, number: int) -> str:
        expression = f'device.attributes["podslice.io"].?writing.orValue(-1) == {number}'
        own = {"deviceClassName": "podslice.io", "capacity": {"requests": {"podslice.io/cpu": "2"}},
               "selectors": [{"cel": {"expression": expression}}]}  # fmt: skip
        spec = {"devices": {"requests": [{"name": "cpus", "exactly": own}]}}
        api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        pods.create(pod(name, "spread", [container("c", 100, name)], (name,)))
        bound(pods, name)
        (result,) = api.call("GET", f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
        return str(result["device"])

    found = []
    for number in range(3):
        asyncio.run(publish(number))
        found.append(given(f"spread-{number}", number))
        held = PreparedDevice("cpus", "spread/podslice.io", found[-1], int(found[-1][-1]), 2)
        holder = PreparedClaim(f"uid-{number}", "default", f"spread-{number}", (held,)).holder_pod()
        assert holder is not None
        assert on.admit(holder).admitted
    assert found == ["podslice-numa-1", "podslice-numa-0", "podslice-numa-1"]
