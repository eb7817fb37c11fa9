"""NodeState objects and agents' tokens at a real API server: who may write what, and who reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from e2e.controlplane import Api
from e2e.scheduling import eventually
from e2e.sharedplane import Cluster, prepare_namespace
from lightkube.config.kubeconfig import KubeConfig

from podslice.agent.api_server.apiclient import HTTPApiServer
from podslice.agent.journal import NodeJournal
from podslice.cluster.apiclient import HTTPClusterApi
from podslice.cluster.journal.callers import CallerError, TokenCallers
from podslice.cluster.journal.journals import Journals
from podslice.cluster.journal.node_states import node_states
from podslice.node.holding import digest
from podslice.replica.nodestate import NODE_STATES, NodeStateStatus, build_status, read_node_state
from podslice.replica.rulebook import Rulebook
from podslice.service.http.apiconnection import AnswerError
from tests.clock import PATIENCE, until
from tests.conformance.deployed import FOLDER, deploy, deploy_rights, token_of
from tests.conftest import make_node, make_pod

ACCOUNT = "system:serviceaccount:podslice:podslice-agent"
NODE = "one"


@pytest.fixture(scope="session")
def deployed(cluster: Cluster) -> None:
    """Apply the files for agents that are followed."""
    with cluster.api() as admin:
        deploy_rights(admin)
        deploy(admin, *yaml.safe_load_all((FOLDER / "nodestate.yaml").read_text()))
        eventually(lambda: admin.ask("GET", NODE_STATES).code == 200)


def pod_of_an_agent(admin: Api, node: str = NODE) -> tuple[str, str]:
    """A pod of the agent on that node, by its path, and the token that the kubelet would put into it."""
    pods = "/api/v1/namespaces/podslice/pods"
    spec = {"serviceAccountName": "podslice-agent", "nodeName": node, "containers": [{"name": "c", "image": "x"}]}
    made = admin.call("POST", pods, {"metadata": {"generateName": "agent-"}, "spec": spec})
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
    token = token_of(admin, boundObjectRef=bound, audiences=["podslice-cluster", *server_audiences(admin)])
    return f"{pods}/{name}?gracePeriodSeconds=0", token


@pytest.fixture
def token(cluster: Cluster, admin: Api, own_node: str, deployed: None) -> Iterator[str]:
    path, made = pod_of_an_agent(admin, own_node)
    yield made
    admin.call("DELETE", path)
    admin.ask("DELETE", f"{NODE_STATES}/{own_node}")


def server_audiences(admin: Api) -> list[str]:
    """The API server's own, so that one token serves both."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token_of(admin)}}
    answer = admin.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    found: list[str] = answer["status"]["audiences"]
    return found


def journal_of(*pods: str) -> NodeJournal:
    node = make_node()
    for uid in pods:
        node.admit(make_pod(uid, ("c", "4")))
    journal = NodeJournal(version="test")
    journal.begin(node)
    return journal


def status(journal: NodeJournal) -> NodeStateStatus:
    assert journal.journal is not None
    return build_status(journal.journal.whole_state())


def write(cluster: Cluster, token: str, node: str, written: NodeStateStatus) -> None:
    async def main() -> None:
        api = HTTPApiServer(KubeConfig.from_dict(cluster.kubeconfig(token=token)).get())
        try:
            await api.write_node_state(node, written)
        finally:
            await api.close()

    asyncio.run(main())


def refuses(cluster: Cluster, token: str, node: str) -> bool:
    """Whether the object of another node is refused; a new policy is not in force at once."""
    try:
        write(cluster, token, node, status(journal_of()))
    except AnswerError as error:
        return "its own node only" in str(error)
    return False


def test_the_kind_is_taken_and_structural(cluster: Cluster, admin: Api, deployed: None) -> None:
    """The API server finds nothing wrong with the schema, serves the kind, and prunes what is not in it."""
    found = admin.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodestates.podslice.io")
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_an_agent_writes_its_node_and_a_replica_reads_it(
    cluster: Cluster, admin: Api, own_node: str, token: str
) -> None:
    """The object is made by the first write and changed by the next; who reads it has the node's digests."""
    journal = journal_of("a")
    write(cluster, token, own_node, status(journal_of()))
    write(cluster, token, own_node, status(journal))
    read = read_node_state(msgspec.json.encode(admin.call("GET", f"{NODE_STATES}/{own_node}")))
    assert read.state is not None
    assert journal.journal is not None
    assert read.state.digest == journal.journal.digest


def test_an_agent_writes_no_other_node(cluster: Cluster, own_node: str, token: str) -> None:
    """Neither making nor changing another node's object is let through, nor is a token that names no node."""
    other = f"{own_node}-other"
    with cluster.api() as admin:
        unbound = token_of(admin)
        for caller, name in ((token, other), (unbound, own_node)):
            eventually(lambda caller=caller, name=name: refuses(cluster, caller, name), "the policy is not in force")
            admin.ask("DELETE", f"{NODE_STATES}/{name}")


def test_what_the_schema_forbids(cluster: Cluster, own_node: str, token: str) -> None:
    """A state that is larger than allowed is refused by the API server too."""
    large = msgspec.structs.replace(status(journal_of()), state="x" * 70000)
    with pytest.raises(AnswerError, match="may not be more than 65536 bytes"):
        write(cluster, token, own_node, large)


def test_tokens_name_their_node(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """A projected token of the agent is the agent of its node. Tokens for another audience, of another account, without
    a node, and made up ones are nobody's."""
    prepare_namespace(admin, "plain")

    async def main() -> None:
        api = HTTPClusterApi(KubeConfig.from_dict(cluster.kubeconfig()).get())
        callers = TokenCallers(api.ask, {ACCOUNT})
        try:
            assert await callers.find_node(token) == own_node
            for wrong, said in (
                (token_of(admin), "not valid for audience"),
                (token_of(admin, audiences=["podslice-cluster"]), "not bound to a pod on a node"),
                (token_of(admin, "default", "plain", audiences=["podslice-cluster"]), "is not an agent"),
                ("guessed", "not valid"),
                ("", "no token"),
            ):
                with pytest.raises(CallerError, match=said):
                    await callers.find_node(wrong)
        finally:
            await api.close()

    asyncio.run(main())


async def while_valid(callers: TokenCallers, token: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await callers.find_node(token):
            await asyncio.sleep(0.2)


def test_a_token_ends_with_its_pod(cluster: Cluster, admin: Api, deployed: None) -> None:
    """Once the agent's pod is gone its token is nobody's."""
    path, token = pod_of_an_agent(admin)

    async def main() -> None:
        api = HTTPClusterApi(KubeConfig.from_dict(cluster.kubeconfig()).get())
        callers = TokenCallers(api.ask, {ACCOUNT})
        try:
            assert await callers.find_node(token) == NODE
            admin.call("DELETE", path)
            with pytest.raises(CallerError, match="not valid"):
                await while_valid(callers, token)
        finally:
            await api.close()

    asyncio.run(main())


def test_the_service_begins_with_the_objects(cluster: Cluster, admin: Api, own_node: str, token: str) -> None:
    """A service that starts, and one that runs, has the digests of what agents wrote; nothing is confirmed by that."""
    write(cluster, token, own_node, status(first := journal_of("a")))

    async def main() -> None:
        api = HTTPClusterApi(KubeConfig.from_dict(cluster.kubeconfig()).get())
        troubles: list[str] = []
        journals = Journals(Rulebook(), {"test"}, caller=nobody, trouble=lambda what, why: troubles.append(why))
        table = node_states(api, journals, trouble=lambda what, why: troubles.append(why))
        task = asyncio.ensure_future(table.run())
        try:
            await until(lambda: known(journals, own_node) == digest_of(first))
            second = journal_of("a", "b")
            await asyncio.to_thread(write, cluster, token, own_node, status(second))
            await until(lambda: known(journals, own_node) == digest_of(second))
            assert not journals.is_fresh(own_node)
            assert troubles == []
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await api.close()

    asyncio.run(main())


async def nobody(token: str) -> str:
    raise CallerError("nobody calls here")


def known(journals: Journals, name: str) -> Any:
    entry = journals.nodes.get(name)
    return None if entry is None else entry.replica.digest


def digest_of(journal: NodeJournal) -> Any:
    assert journal._node is not None
    return digest(journal._node.state)
