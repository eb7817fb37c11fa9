"""The node's NodeResourceTopology: when the agent writes it, what it leaves of others, and the Lease beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from podslice.agent.api_server.topologylease import LeaseName, TopologyLease
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.agent.process.daemon import Agent
from podslice.agent.settings import settings_from_dict
from podslice.node.holding import digest
from podslice.service import podaccess
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import with_agent
from tests.agent.test_journal import Followed
from tests.conftest import make_pod
from tests.service.fake_runtime import FakeRuntime

LEASE = LeaseName("agents", "n1")
HEAD = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}


def kept(
    node: Followed,
    api: FakeApiServer,
    seconds: float,
    *,
    merges: bool = False,
    meanwhile: Coroutine[Any, Any, None] | None = None,
) -> tuple[int, list[str]]:
    """Keep the object for so long, with its Lease: how often it was written, and what went wrong."""
    troubles: list[str] = []
    topology = TopologyObject(
        api,
        "n1",
        lambda: node.owner.node,
        node.journal,
        merges=merges,
        version="7",
        lease=str(LEASE),
        trouble=lambda what, why: troubles.append(f"{what}: {why}"),
    )

    async def main() -> None:
        now = asyncio.get_running_loop().time
        lease = TopologyLease(
            api, LEASE, topology, trouble=lambda what, why: troubles.append(f"{what}: {why}"), now=now
        )
        tasks = [asyncio.ensure_future(one.run()) for one in (topology, lease)]
        if meanwhile is not None:
            await meanwhile
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    clock.run(main())
    return topology.writes, troubles


def attributes(topology: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in topology["attributes"]}


def test_it_is_written_once_for_each_state(tmp_path: Path) -> None:
    """The object is there at once, under the node's name, owned by the Node, as of the journal's latest event; nothing
    is written while nothing changes."""
    node, api = Followed(tmp_path), FakeApiServer()
    node.run(make_pod("a", ("c", "4")))
    assert kept(node, api, 60.0) == (1, [])
    topology = api.topologies["n1"]
    assert topology["metadata"] == {
        "name": "n1",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-of-n1"}],
    }
    assert node.owner.node is not None
    assert node.journal.journal is not None
    told = attributes(topology)
    assert told["podslice.io/state"] == digest(node.owner.node.state).allocation
    assert told["podslice.io/sequence"] == str(node.journal.journal.sequence)
    assert told["podslice.io/version"] == "7"
    assert told["podslice.io/lease"] == "agents/podslice-agent-n1"
    assert told["nodeTopologyPodsFingerprint"].startswith("pfp0v001")


def test_a_change_is_written(tmp_path: Path) -> None:
    """A pod that goes is gone from the object within two seconds."""
    node, api = Followed(tmp_path), FakeApiServer()
    node.run(make_pod("a", ("c", "4")))
    kept(node, api, 2.0)
    before = api.topologies["n1"]["zones"]
    node.stop("a")
    kept(node, api, 2.0)
    free = [sum(int(one["available"]) for zone in zones for one in zone["resources"] if one["name"] == "cpu")
            for zones in (before, api.topologies["n1"]["zones"])]  # fmt: skip
    assert free[1] - free[0] == 4


def test_an_api_server_that_is_away(tmp_path: Path) -> None:
    """People hear why, less and less often, and the object is written when it is back."""
    node, api = Followed(tmp_path), FakeApiServer()
    api.down = True
    writes, troubles = kept(node, api, 60.0)
    assert (writes, set(troubles)) == (0, {"nodeResourceTopology: connection refused"})
    assert 2 <= len(troubles) <= 6
    api.down = False
    assert kept(node, api, 0.5) == (1, [])


def renewals(api: FakeApiServer) -> list[str]:
    return [one["spec"]["renewTime"] for one in api.leases]


def test_its_lease_is_renewed(tmp_path: Path) -> None:
    """While nothing changes, the node's Lease is renewed every five minutes, and the object is left alone. Its Lease
    belongs to the Node as it does, is held by the node, and lasts for three renewals."""
    node, api = Followed(tmp_path), FakeApiServer()
    assert kept(node, api, 650.0) == (1, [])
    assert renewals(api) == [f"1970-01-01T00:{minute}:00.000000Z" for minute in ("00", "05", "10")]
    assert api.leases[-1] == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": "agents",
            "name": "podslice-agent-n1",
            "ownerReferences": api.topologies["n1"]["metadata"]["ownerReferences"],
        },
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 900, "renewTime": "1970-01-01T00:10:00.000000Z"},
    }


def test_a_lease_that_cannot_be_renewed(tmp_path: Path) -> None:
    """People hear why, it is tried again before the next renewal is due, and the object is written all the same."""
    node, api = Followed(tmp_path), FakeApiServer()
    api.refused = {"lease"}
    writes, troubles = kept(node, api, 60.0)
    assert (writes, set(troubles), api.leases) == (1, {"lease: lease: forbidden"}, [])
    assert 2 <= len(troubles) <= 6
    assert api.topologies


def test_an_object_that_cannot_be_written(tmp_path: Path) -> None:
    """There is no Lease before there is an object; once there is, a write that fails does not end its renewals."""
    node, api = Followed(tmp_path), FakeApiServer()
    api.refused = {"topology"}
    writes, troubles = kept(node, api, 60.0)
    assert (writes, set(troubles), api.leases) == (0, {"nodeResourceTopology: topology: forbidden"}, [])

    async def change() -> None:
        await asyncio.sleep(10.0)
        api.refused = {"topology"}
        node.run(make_pod("a", ("c", "4")))

    api.refused = set()
    writes, troubles = kept(node, api, 650.0, meanwhile=change())
    assert (writes, set(troubles)) == (1, {"nodeResourceTopology: topology: forbidden"})
    assert len(api.leases) == 3


@pytest.mark.parametrize(("told", "namespace"), [("", "other"), ("own\n", "own")])
@pytest.mark.slow
def test_an_agent_keeps_both(told: str, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is in the namespace that the pod's service account tells; without one, in that of the settings."""
    if told:
        (tmp_path / "namespace").write_text(told)
    monkeypatch.setattr(podaccess, "SERVICE_ACCOUNT", tmp_path)

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await fake.run_pod("a")
        await clock.until(lambda: api.leases)
        (topology,) = api.topologies.values()
        metadata = api.leases[0]["metadata"]
        assert (metadata["namespace"], metadata["name"]) == (namespace, f"podslice-agent-{agent.node_name}")
        assert attributes(topology)["podslice.io/lease"] == f"{namespace}/{metadata['name']}"

    with_agent(tmp_path, test, nodeResourceTopology="own", namespace="other")


def test_others_keep_what_they_wrote(tmp_path: Path) -> None:
    """`merge` leaves resources, zones and attributes of others alone and replaces our own; `own` does not look."""
    node, api = Followed(tmp_path), FakeApiServer()
    theirs = {"name": "other.io/thing", "capacity": "1", "allocatable": "1", "available": "1"}
    stale = {"name": "cpu", "capacity": "1", "allocatable": "1", "available": "1"}
    there = {
        "attributes": [{"name": "theirs", "value": "x"}, {"name": "topologyManagerPolicy", "value": "stale"}],
        "zones": [
            {"name": "node-0", "type": "Node", "resources": [theirs, stale]},
            {"name": "node-99", "type": "Node", "resources": [stale]},
            {"name": "socket-0", "type": "Socket", "resources": [theirs]},
        ],
    }
    api.topologies["n1"] = there
    kept(node, api, 2.0, merges=True)
    merged = api.topologies["n1"]
    assert theirs in merged["zones"][0]["resources"]
    assert stale not in merged["zones"][0]["resources"]
    assert {zone["name"] for zone in merged["zones"]} & {"node-99", "socket-0"} == {"socket-0"}
    assert attributes(merged)["theirs"] == "x"
    assert attributes(merged)["topologyManagerPolicy"] != "stale"
    api.topologies["n1"] = there
    kept(node, api, 2.0)
    assert theirs not in api.topologies["n1"]["zones"][0]["resources"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("sometimes", "own, merge or off"),
        ("own", "needs an API server"),
        ("merge", "needs an API server"),
        (True, "unknown"),
    ],
)
def test_settings_that_cannot_be(value: Any, problem: str) -> None:
    """A wrong word, or nobody to write to, is an error with its field."""
    with pytest.raises(InputError, match=problem) as raised:
        settings_from_dict({**HEAD, "nodeResourceTopology": value})
    assert raised.value.path == "nodeResourceTopology"


def test_no_name_of_a_namespace() -> None:
    """The namespace of an agent that runs in no pod is named as the API server names them."""
    assert settings_from_dict(HEAD).agent.namespace == "podslice"
    with pytest.raises(InputError, match="is not a valid namespace name") as raised:
        settings_from_dict({**HEAD, "namespace": "kube/system"})
    assert raised.value.path == "namespace"


def test_settings_that_can_be() -> None:
    """`off`, which YAML may read as false, and words with an API server."""
    for value in ("off", False):
        assert not settings_from_dict({**HEAD, "nodeResourceTopology": value}).agent.writes_topology
    with_api = {**HEAD, "sources": {"apiServer": True}}
    for value in ("own", "merge"):
        assert settings_from_dict({**with_api, "nodeResourceTopology": value}).agent.writes_topology
