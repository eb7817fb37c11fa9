"""The requests to the API server by its own audit log: all that the shipped roles allow, and no more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from e2e.controlplane import APPLY, Api, ControlPlane, Json, Settings
from e2e.programs import find_programs
from e2e.scheduling import Pods, create_node, eventually, extender, pod, start_scheduler_named
from e2e.sharedplane import prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import TOPOLOGIES, HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource
from podslice.agent.api_server.statuspatch import status_patch
from podslice.agent.api_server.topologylease import LeaseName, TopologyLease
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.agent.dra.driver import build_slices
from podslice.agent.dra.statuses import ClaimStatuses
from podslice.agent.records import ReportedRefusal
from podslice.api.pod.spec import from_dict
from podslice.dra.objects import ResourceClaim
from podslice.replica.nodestate import NODE_STATES, build_status, new_node_state
from podslice.service.apievents import ApiEvents
from podslice.service.identity import Identity
from tests.agent.test_journal import Followed
from tests.clock import until
from tests.conformance.beside import ACCOUNT, NODES, Beside, StreamingNodes, service_beside, streaming
from tests.conformance.deployed import FOLDER, apply, deploy, deploy_rights, manifests
from tests.conformance.test_claim_conditions import PROBLEM, allocated, devices_of
from tests.conformance.test_node_states import NODE, pod_of_an_agent
from tests.conformance.test_slices import SLICES, node_of, publishing, stored
from tests.conformance.test_topologies import KIND, LEASES
from tests.deploy.rendering import ON, by_kind_and_name, needs_helm, render

SOON_GONE = (
    "-c",
    "import podslice.cluster.journal.node_states as states; states.SWEEP_SECONDS = 1.0; "
    "from podslice.entry import main; main()",
)
"""The program, which need not wait minutes for a node that has left."""
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}}
        ]
    }
}
"""Whose pod is not nominated ahead."""
OWN_OBJECTS = ("nodestate.yaml", "noderesourcetopology.yaml")
APPLIED = {("topology.node.k8s.io", "noderesourcetopologies", "create"), ("coordination.k8s.io", "leases", "create")}
"""What server-side apply of objects that are not there needs besides; the log has it as patches."""
TOPOLOGY = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": []}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
Asked = tuple[str, str, str]
"""Group, resource with its subresource, and verb."""


class AuditLog(NamedTuple):
    """Whom the API server writes down, and where."""

    folder: Path
    user: str

    @property
    def options(self) -> tuple[str, ...]:
        """For the API server."""
        policy = self.folder / "audit-policy"
        rules = [{"level": "Metadata", "users": [self.user], "omitStages": ["RequestReceived"]}, {"level": "None"}]
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        return f"--audit-policy-file={policy}", f"--audit-log-path={self.folder / 'audit.log'}"

    def entries(self) -> list[Json]:
        """All that was asked so far."""
        text = (self.folder / "audit.log").read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def asked(self) -> set[Asked]:
        """Return the requests about objects."""
        return {try_on(one) for one in self.entries()}

    def forbidden(self) -> list[str]:
        """Return the requests that the server forbade."""
        found = self.entries()
        return [str(one["requestURI"]) for one in found if one.get("responseStatus", {}).get("code") in (401, 403)]


def try_on(entry: Json) -> Asked:
    about = entry.get("objectRef", {})
    name = "/".join(part for part in (about.get("resource", entry["requestURI"]), about.get("subresource")) if part)
    return about.get("apiGroup", ""), name, entry["verb"]


def granted(roles: Iterable[Json]) -> set[Asked]:
    """Return the rights that roles give."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_granted() -> None:
    """Every combination of a rule is a right of its own."""
    rule = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["list", "patch"]}
    assert len(granted([{"rules": [rule]}, {"rules": [rule]}])) == 4


@needs_helm
@pytest.mark.parametrize("evict", [False, True])
def test_what_is_granted_is_what_is_used(programs: None, tmp_path: Path, evict: bool) -> None:
    """Pods are nominated and bound, agents show tokens, a node refuses a pod, a node has left, and one has room for a
    pod that waits; with `cluster.evict` one pod leaves for another. Every right of the chart's role was used, nothing
    else was asked for, nothing forbidden."""
    log = AuditLog(tmp_path, f"system:serviceaccount:podslice:{ACCOUNT}")
    values = {**ON, "cluster": {**ON["cluster"], "evict": evict}}
    role: Any = by_kind_and_name(render(**values))["ClusterRole", "podslice-cluster"]
    kinds = [
        one for one in yaml.safe_load_all((FOLDER / "nodestate.yaml").read_text()) if "names" in one.get("spec", {})
    ]
    options = ("--evict",) if evict else ()
    started_by = {"settings": Settings(api_server=log.options), "manifests": [role, *kinds], "program": SOON_GONE}
    with service_beside(tmp_path, *options, **started_by) as beside:
        scene(beside, log, tmp_path, evict=evict)
        assert log.asked() == granted([role])
        assert log.forbidden() == []


def test_the_agents_rights(programs: None, tmp_path: Path) -> None:
    """An agent follows its pods, tells of one that it refused, marks it, and keeps the objects of its node: every right
    of its shipped roles is used, nothing else is asked for, nothing forbidden."""
    log = AuditLog(tmp_path, "system:serviceaccount:podslice:podslice-agent")
    told = Settings(api_server=log.options)
    with ControlPlane(find_programs(), tmp_path / "plane", told) as plane, plane.api() as admin:
        prepare_namespace(admin, "default")
        deploy_rights(admin)
        shipped = [one for name in OWN_OBJECTS for one in yaml.safe_load_all((FOLDER / name).read_text())]
        deploy(admin, KIND, *shipped)
        for path in (NODE_STATES, TOPOLOGIES):
            eventually(lambda path=path: admin.ask("GET", path).code == 200)
        admin.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        _, token = pod_of_an_agent(admin)
        document = pod("p", "default-scheduler", nodeName=NODE)
        uid = Pods(admin).create(document)["metadata"]["uid"]
        config = KubeConfig.from_dict(plane.kubeconfig_of(token)).get()
        asyncio.run(everything(HTTPApiServer(config), Identity(uid, "default", "p", {}), Followed(tmp_path), log))
        roles = {one["metadata"]["name"]: one for one in (*manifests(), *shipped) if one["kind"] == "ClusterRole"}
        mine = [roles["podslice-agent"], *(one for one in shipped if one["kind"] in ("ClusterRole", "Role"))]
        assert log.asked() | APPLIED == granted(mine)
        assert log.forbidden() == []
        with Api(plane.port, plane.authority, token) as agent:
            for name, path, kind in (
                ("podslice-agent-topology", f"{TOPOLOGIES}/{NODE}", TOPOLOGY),
                ("podslice-agent-lease", f"{LEASES}/podslice-agent-{NODE}", LEASE),
            ):
                (role,) = [one for one in mine if one["metadata"]["name"] == name]
                role["rules"][0]["verbs"].remove("create")
                assert apply(admin, role).code == 200
                eventually(lambda path=path, kind=kind: refused_without(admin, agent, path, kind), f"{kind}: no need")


def test_the_drivers_rights(programs: None, tmp_path: Path) -> None:
    """An agent publishes the devices of its node, changes them, takes away what is not its own, reads a claim and says
    what is wrong with one: every right of the role for drivers is used, nothing else is asked for, nothing forbidden.
    That it may write of its own devices the server asks itself, for the claim's status."""
    log = AuditLog(tmp_path, "system:serviceaccount:podslice:podslice-agent")
    with (
        ControlPlane(find_programs(), tmp_path / "plane", Settings(api_server=log.options)) as plane,
        plane.api() as admin,
    ):
        prepare_namespace(admin, "default")
        deploy_rights(admin)
        shipped = list(yaml.safe_load_all((FOLDER / "dra.yaml").read_text()))
        deploy(admin, *shipped)
        admin.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        _, token = pod_of_an_agent(admin)
        asyncio.run(as_a_driver(plane.kubeconfig_of(token), admin))
        (role,) = [one for one in shipped if one["kind"] == "ClusterRole"]
        assert log.asked() == granted([role]) - {("resource.k8s.io", "resourceclaims/driver", "associated-node:patch")}
        assert log.forbidden() == []


async def as_a_driver(config: Json, admin: Api) -> None:
    """Make the requests of an agent that serves claims."""
    nodes = [node_of(2)]
    async with publishing(config, NODE, lambda: build_slices(nodes[0], NODE)) as publisher:
        await until(lambda: publisher.published)
        (first,) = stored(admin, NODE)
        nodes[0] = node_of(3)
        await until(lambda: [len(one["spec"]["devices"]) for one in stored(admin, NODE)] == [3])
        admin.call("POST", SLICES, {**first, "metadata": {"name": "odd"}})
        await until(lambda: len(stored(admin, NODE)) == 1)
    server = HTTPApiServer(KubeConfig.from_dict(config).get())
    assert await server.read_claim("default", "none") is None
    prepare_namespace(admin, "conditions")
    statuses = ClaimStatuses(server, NODE, trouble=lambda what, why: None)
    statuses.queue(from_dict(allocated(admin, "odd", NODE), ResourceClaim), PROBLEM)
    while statuses.waiting:
        await statuses.write_first()
    assert devices_of(admin, "odd")["podslice.io"]["conditions"][0]["reason"] == PROBLEM.reason
    await server.close()


def refused_without(admin: Api, agent: Api, path: str, body: Json) -> bool:
    """An object that is not there cannot be applied."""
    admin.ask("DELETE", path)
    named = {**body, "metadata": {"name": path.rpartition("/")[2]}}
    return agent.ask("PATCH", f"{path}?fieldManager=x&force=true", named, APPLY).code == 403


async def everything(api: HTTPApiServer, refused: Identity, node: Followed, log: AuditLog) -> None:
    """Make the requests of an agent."""
    troubles: list[str] = []

    def trouble(where: str, what: str) -> None:
        troubles.append(f"{where}: {what}")

    source, events = ApiSource(api, NODE, trouble=trouble), ApiEvents(api, NODE)
    name = LeaseName("podslice", NODE)
    topology = TopologyObject(
        api, NODE, lambda: node.owner.node, node.journal, merges=True, version="7", lease=str(name), trouble=trouble
    )  # fmt: skip
    lease = TopologyLease(api, name, topology, trouble=trouble)
    tasks = [asyncio.ensure_future(loop.run()) for loop in (source, events, topology, lease)]
    try:
        await until(lambda: source.find(refused))
        events.emit(refused, "Warning", "TopologyAffinityError", "no room")
        refusal = ReportedRefusal("TopologyAffinityError", "no room")
        await api.patch_pod_status(refused.namespace, refused.name, status_patch(refused.uid, refusal, time.time()))
        journal = node.journal.journal
        assert journal is not None
        await api.write_node_state(NODE, build_status(journal.whole_state()))
        await until(lambda: lease.renewals)
        for one in (("", "pods", "watch"), ("", "events", "create")):
            await until(lambda one=one: one in log.asked())
        assert troubles == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await api.close()


def scene(beside: Beside, log: AuditLog, folder: Path, *, evict: bool) -> None:
    """Everything that the service does."""
    for name in NODES:
        create_node(beside.api, name, cpus=63)
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value}
        beside.api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    eventually(lambda: beside.api.ask("GET", NODE_STATES).code == 200)
    beside.api.call("POST", NODE_STATES, new_node_state("gone"))
    start_scheduler_named(beside.plane, "podslice", {"extenders": [extender(f"http://127.0.0.1:{beside.port}/v1")]})
    pods = Pods(beside.api)

    def play(nodes: StreamingNodes, loop: asyncio.AbstractEventLoop) -> None:
        eventually(lambda: "podslice_cluster_nodes_proven 2.0" in beside.asked("/metrics"), "a node is not proven")
        for number in range(8):
            pods.create(pod(f"p{number}", "podslice", cpus="10", priorityClassName="low"))
        eventually(lambda: len(nodes.decided) == 8 + len(NODES), "not every pod that fits was placed")
        nodes.declines.add("small")
        pods.create(pod("small", "podslice", cpus="2"))
        eventually(lambda: [one for one in pods.events("small") if one["reason"] == "PodsliceRefused"], "no event")
        if evict:
            pods.create(pod("big", "podslice", cpus="14", priorityClassName="high"))
            eventually(lambda: pods.node("big"), "nobody left for it")
        for name, node, affinity in (("later", NODES[1], {}), ("apart", NODES[0], {"affinity": APART})):
            pods.create(pod(name, "podslice", cpus="10", **affinity))
            eventually(lambda name=name: pods.unscheduled(name))
            loop.call_soon_threadsafe(nodes.lose, node)
            eventually(lambda name=name: pods.node(name), "nobody has the scheduler look again")
        eventually(lambda: ("podslice.io", "nodestates", "delete") in log.asked(), "a state of a node that left stays")

    async def main() -> None:
        async with streaming(beside, folder, StreamingNodes()) as nodes:
            await asyncio.to_thread(play, nodes, asyncio.get_running_loop())

    asyncio.run(main())
