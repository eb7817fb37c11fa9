"""The agents of a cluster: where they run, and what they tell."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from podslice.api.manifests.typed_names import node_name
from podslice.api.pod.names import subdomain_problems
from podslice.kubectl.client import Cluster
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.credentials import TOKEN_HEADER, sendable
from podslice.kubectl.portforward import forwarded
from podslice.kubectl.reply import Reply
from podslice.values.errors import InputError

LABEL = "app.kubernetes.io/name=podslice"
DEFAULT_PORT = 9096
_SIDE_BY_SIDE = 16
_DOCS = "docs/kubectl.md"


class AgentPod(NamedTuple):
    """An agent: its pod, its node, the port of its status and the Secret of the token for it, empty for none.
    `trouble` says why it cannot be asked."""

    namespace: str
    name: str
    node: str
    port: int
    secret: str = ""
    trouble: str = ""

    @property
    def path(self) -> str:
        """The pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class Agents(NamedTuple):
    """How the agents of a cluster are found and asked. `via`: `proxy`, `port-forward`, or empty for what each says."""

    cluster: Cluster
    namespace: str = "podslice"
    label: str = LABEL
    via: str = ""

    def all(self) -> list[AgentPod]:
        """By node. Raises `InputError` where there is none."""
        found = self._listed({})
        if not found:
            raise InputError(
                f"no agent runs in namespace {self.namespace}", remedy=f"--agent-namespace names another; {_DOCS}"
            )
        return sorted(found, key=lambda agent: agent.node)

    def on(self, node: str) -> AgentPod:
        """The agent of a node. Raises `InputError` where there is no such node, or no agent on it."""
        found = self._listed({"fieldSelector": f"spec.nodeName={node_name(node)}"})
        if found:
            return found[0]
        try:
            self.cluster.read(f"/api/v1/nodes/{node}")
        except ClusterError as error:
            if error.status == 404:
                raise InputError(f"there is no node {node}", remedy="kubectl get nodes lists them") from None
        raise InputError(
            f"no agent runs on node {node}",
            remedy=f"looked for {self.label} in namespace {self.namespace}; --agent-namespace names another; {_DOCS}",
        )

    def _listed(self, query: dict[str, str]) -> list[AgentPod]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        try:
            listed = self.cluster.items(path, {"labelSelector": self.label, **query})
        except ClusterError as error:
            if error.status != 400:
                raise
            remedy = f"write a label selector such as {LABEL}"
            raise InputError(error.problem, path="--agent-label", remedy=remedy) from None
        found = [agent_pod(pod) for pod in listed]
        return sorted((one for one in found if one.node), key=lambda one: bool(one.trouble))

    def ask(self, agent: AgentPod, target: str) -> Any:
        """One document. Raises `InputError`."""
        if agent.trouble:
            raise trouble_of(agent)
        try:
            reply = self._reply(agent, target)
        except ClusterError as error:
            raise beyond_the_api_server(error, f"the agent on {agent.node}", agent) from None
        said = " ".join(reply.body[:400].decode("utf-8", "replace").split())
        if reply.code in (401, 403):
            raise InputError(
                f"the agent on {agent.node} says: {said}",
                remedy=f"is Secret {agent.secret or 'status-token'} the one it reads? {_DOCS}",
            )
        if reply.code != 200:
            raise InputError(f"the agent on {agent.node} says: {said or reply.code}")
        try:
            return reply.decoded()
        except ValueError:
            problem = f"what answers at port {agent.port} of {agent.namespace}/{agent.name} is no agent"
            raise InputError(problem, remedy=f"look at statusAddress; {_DOCS}") from None

    def _reply(self, agent: AgentPod, target: str) -> Reply:
        headers = {TOKEN_HEADER: token_of(self.cluster, agent.namespace, agent.secret)} if agent.secret else {}
        if self.via != "port-forward" and (agent.secret or self.via):
            try:
                return self.cluster.ask(f"{agent.path}:{agent.port}/proxy{target}", headers)
            except ClusterError as error:
                if error.status != 403 or self.via:
                    raise
        return forwarded(self.cluster, agent.path, agent.port, target, headers)


def trouble_of(agent: AgentPod) -> InputError:
    """Why it cannot be asked, with who says more."""
    remedy = f"kubectl -n {agent.namespace} describe pod {agent.name}"
    return InputError(f"the agent on {agent.node} {agent.trouble}", remedy=remedy)


def beyond_the_api_server(error: ClusterError, who: str, pod: AgentPod) -> InputError:
    """What it said where it answers us, and cannot reach a pod for us: that is this pod's trouble and no other's."""
    if error.status in (0, 401, 403):
        return error
    remedy = f"is the node ready? kubectl get node {pod.node}; --via tries another way"
    return InputError(f"{who} cannot be asked: {error.problem}", remedy=remedy)


def token_of(cluster: Cluster, namespace: str, name: str) -> str:
    """The token in a Secret. Raises `InputError`."""
    secret = cluster.read(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    try:
        token = base64.b64decode(secret["data"]["token"], validate=True).decode("ascii").strip()
    except (KeyError, TypeError, ValueError):
        token = ""
    if not token or not sendable(token):
        remedy = f"kubectl -n {namespace} create secret generic {name} --from-literal token=...; {_DOCS}"
        raise InputError(f"Secret {namespace}/{name} holds no token", path="data.token", remedy=remedy)
    return token


class Listener(NamedTuple):
    """How a pod says where it listens: the name of the port, the one where none has that name, and the volume of the
    token's Secret."""

    port: str
    default: int
    volume: str


STATUS = Listener("status", DEFAULT_PORT, "status-token")


def agent_pod(pod: Any, listener: Listener = STATUS) -> AgentPod:
    """An agent, or a pod that listens in the same way, from its v1 Pod. Raises `InputError` for what is none."""
    try:
        found = _agent_pod(pod, listener)
    except (KeyError, TypeError, AttributeError):
        found = None
    if found is None or not all(isinstance(one, str) for one in (*found[:3], found.secret)):
        raise _no_pod("it lists what is no Pod")
    if type(found.port) is not int or subdomain_problems(found.name) or subdomain_problems(found.namespace):
        raise _no_pod(f"it lists a Pod {found.name!r} that cannot be")
    return found


def _no_pod(problem: str) -> InputError:
    return InputError(f"what answers is no API server: {problem}", remedy="look at the server in the kubeconfig")


def _agent_pod(pod: Any, listener: Listener) -> AgentPod:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    ports = (port for container in spec["containers"] for port in container.get("ports") or ())
    secrets = (one.get("secret") or {} for one in spec.get("volumes") or () if one["name"] == listener.volume)
    return AgentPod(
        metadata["namespace"],
        metadata["name"],
        spec.get("nodeName") or "",
        next((port["containerPort"] for port in ports if port.get("name") == listener.port), listener.default),
        next((secret.get("secretName") or "" for secret in secrets), ""),
        _trouble(metadata, status),
    )


def _trouble(metadata: dict[str, Any], status: dict[str, Any]) -> str:
    if metadata.get("deletionTimestamp"):
        return "is ending"
    phase = status.get("phase") or "Pending"
    containers = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    waiting = [one["waiting"].get("reason") or "" for one in containers if one.get("waiting")]
    if phase == "Running" and len(waiting) == len(containers) > 0:
        return f"does not run{f' ({waiting[0]})' if waiting[0] else ''}"
    if phase == "Running":
        return ""
    reason = next((one for one in waiting if one), status.get("reason"))
    return f"is {phase}{f' ({reason})' if reason else ''}"


T = TypeVar("T")


def side_by_side(
    agents: Iterable[AgentPod], work: Callable[[AgentPod], T]
) -> Iterator[tuple[AgentPod, T | InputError]]:
    """The work for every agent, a few at a time, in their order; an error is its agent's alone."""

    def attempt(agent: AgentPod) -> T | InputError:
        try:
            return work(agent)
        except InputError as error:
            return error

    listed = list(agents)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        yield from zip(listed, pool.map(attempt, listed), strict=True)


def asked(agents: Agents, nodes: Sequence[str], work: Callable[[AgentPod], T]) -> list[tuple[AgentPod, T | InputError]]:
    """The work for the agents of these nodes, or of all. Raises `InputError` where the cluster lets us ask none of
    them: that is not the nodes'."""
    found = list(side_by_side([agents.on(node) for node in nodes] if nodes else agents.all(), work))
    errors = [answer for _, answer in found if isinstance(answer, InputError)]
    ours = [error.status for error in errors if isinstance(error, ClusterError)]
    if len(ours) == len(found) and len(set(ours)) == 1:
        raise errors[0]
    return found
