"""The agents of a cluster: how they are found and queried."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from podslice.api.pod.names import check_node_name, subdomain_problems
from podslice.kubectl.client import Cluster
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.credentials import TOKEN_HEADER, is_sendable
from podslice.kubectl.portforward import forward_request
from podslice.kubectl.reply import Reply
from podslice.values.errors import InputError

LABEL = "app.kubernetes.io/name=podslice"
DEFAULT_PORT = 9096
_AT_ONCE = 16
_DOCS = "docs/kubectl.md"


class AgentPod(NamedTuple):
    """An agent: its pod, its node, the port of its status and the name of the Secret with the token, empty for none.
    `trouble` is the reason why it cannot answer, empty where it can."""

    namespace: str
    name: str
    node: str
    port: int
    secret: str = ""
    trouble: str = ""

    @property
    def path(self) -> str:
        """The pod's path in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class NoAgentError(InputError):
    """Raised where no agent runs on a node."""


class Agents(NamedTuple):
    """The agents of a cluster. `via`: `proxy` or `port-forward`; empty for the proxy where an agent has a token, else
    port-forward."""

    cluster: Cluster
    namespace: str = "podslice"
    label: str = LABEL
    via: str = ""

    def all(self) -> list[AgentPod]:
        """Return all agents, sorted by node. Raises `InputError` where there is none."""
        found = self._list({})
        if not found:
            raise InputError(
                f"no agent runs in namespace {self.namespace}", remedy=f"--agent-namespace names another; {_DOCS}"
            )
        return sorted(found, key=lambda agent: agent.node)

    def on(self, node: str) -> AgentPod:
        """Return the agent of a node. Raises `InputError` where there is no such node, or no agent on it."""
        found = self._list({"fieldSelector": f"spec.nodeName={check_node_name(node)}"})
        if found:
            return found[0]
        try:
            # Looked up only now: a node with an agent exists.
            self.cluster.read(f"/api/v1/nodes/{node}")
        except ClusterError as error:
            if error.status == 404:
                raise InputError(f"there is no node {node}", remedy="kubectl get nodes lists them") from None
        raise NoAgentError(
            f"no agent runs on node {node}",
            remedy=f"looked for {self.label} in namespace {self.namespace}; --agent-namespace names another; {_DOCS}",
        )

    def _list(self, query: dict[str, str]) -> list[AgentPod]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        try:
            listed = self.cluster.items(path, {"labelSelector": self.label, **query})
        except ClusterError as error:
            if error.status != 400:
                raise
            remedy = f"write a label selector such as {LABEL}"
            raise InputError(error.problem, path="--agent-label", remedy=remedy) from None
        found = [read_agent_pod(pod) for pod in listed]
        # Agents that can answer come first, because `on` takes the first one.
        return sorted((one for one in found if one.node), key=lambda one: bool(one.trouble))

    def ask(self, agent: AgentPod, target: str) -> Any:
        """Return one document of an agent. Raises `InputError`."""
        if agent.trouble:
            raise trouble_error(agent)
        try:
            reply = self._reply(agent, target)
        except ClusterError as error:
            raise pod_error(error, f"the agent on {agent.node}", agent) from None
        said = " ".join(reply.body[:400].decode("utf-8", "replace").split())
        if reply.code in (401, 403):
            raise InputError(
                f"the agent on {agent.node} says: {said}",
                remedy=f"is Secret {agent.secret or 'status-token'} the one it reads? {_DOCS}",
            )
        if reply.code != 200:
            raise InputError(f"the agent on {agent.node} says: {said or reply.code}")
        try:
            return reply.decode()
        except ValueError:
            problem = f"what answers at port {agent.port} of {agent.namespace}/{agent.name} is not an agent"
            raise InputError(problem, remedy=f"look at statusAddress; {_DOCS}") from None

    def _reply(self, agent: AgentPod, target: str) -> Reply:
        headers = {TOKEN_HEADER: read_secret_token(self.cluster, agent.namespace, agent.secret)} if agent.secret else {}
        if self.via != "port-forward" and (agent.secret or self.via):
            try:
                return self.cluster.ask(f"{agent.path}:{agent.port}/proxy{target}", headers)
            except ClusterError as error:
                # A user without the right to the pod's proxy may still have pods/portforward.
                if error.status != 403 or self.via:
                    raise
        return forward_request(self.cluster, agent.path, agent.port, target, headers)


def trouble_error(agent: AgentPod) -> InputError:
    """Return the error for an agent that cannot answer."""
    remedy = f"kubectl -n {agent.namespace} describe pod {agent.name}"
    return InputError(f"the agent on {agent.node} {agent.trouble}", remedy=remedy)


def pod_error(error: ClusterError, who: str, pod: AgentPod) -> InputError:
    """Return the error of one pod where the API server answered and could not reach that pod. Errors of the API server
    itself are returned as they are, because they concern all pods."""
    if error.status in (0, 401, 403):
        return error
    remedy = f"is the node ready? kubectl get node {pod.node}; --via tries another way"
    return InputError(f"{who} cannot be asked: {error.problem}", remedy=remedy)


def read_secret_token(cluster: Cluster, namespace: str, name: str) -> str:
    """Return the token in a Secret. Raises `InputError`."""
    secret = cluster.read(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    try:
        token = base64.b64decode(secret["data"]["token"], validate=True).decode("ascii").strip()
    except (KeyError, TypeError, ValueError):
        token = ""
    if not token or not is_sendable(token):
        remedy = f"kubectl -n {namespace} create secret generic {name} --from-literal token=...; {_DOCS}"
        raise InputError(f"Secret {namespace}/{name} holds no token", path="data.token", remedy=remedy)
    return token


class Listener(NamedTuple):
    """The fields of a Pod that say where it listens: the name of its port, the default port, and the volume of the
    token's Secret."""

    port: str
    default: int
    volume: str


STATUS = Listener("status", DEFAULT_PORT, "status-token")


def read_agent_pod(pod: Any, listener: Listener = STATUS) -> AgentPod:
    """Read an agent, or a pod that listens in the same way, from its v1 Pod. Raises `InputError` for another object."""
    try:
        found = _read_agent_pod(pod, listener)
    except (KeyError, TypeError, AttributeError):
        found = None
    if found is None or not all(isinstance(one, str) for one in (*found[:3], found.secret)):
        raise _pod_list_error("it lists what is not a Pod")
    # The names become parts of a path.
    if type(found.port) is not int or subdomain_problems(found.name) or subdomain_problems(found.namespace):
        raise _pod_list_error(f"it lists a Pod {found.name!r} that cannot be")
    return found


def _pod_list_error(problem: str) -> InputError:
    return InputError(f"what answers is not an API server: {problem}", remedy="look at the server in the kubeconfig")


def _read_agent_pod(pod: Any, listener: Listener) -> AgentPod:
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
    # In a crash loop the phase stays Running; only the containers' states show it.
    if phase == "Running" and len(waiting) == len(containers) > 0:
        return f"does not run{f' ({waiting[0]})' if waiting[0] else ''}"
    if phase == "Running":
        return ""
    reason = next((one for one in waiting if one), status.get("reason"))
    return f"is {phase}{f' ({reason})' if reason else ''}"


T = TypeVar("T")


def ask_in_parallel(
    agents: Iterable[AgentPod], work: Callable[[AgentPod], T]
) -> Iterator[tuple[AgentPod, T | InputError]]:
    """Do the work for every agent, a few at a time; yield results in the order of `agents`, errors in place of
    results."""

    def attempt(agent: AgentPod) -> T | InputError:
        try:
            return work(agent)
        except InputError as error:
            return error

    listed = list(agents)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from zip(listed, pool.map(attempt, listed), strict=True)


def ask_agents(
    agents: Agents, nodes: Sequence[str], work: Callable[[AgentPod], T]
) -> list[tuple[AgentPod, T | InputError]]:
    """Do the work for the agents of these nodes, or of all. Raises `InputError` where every agent failed with the same
    error of the cluster: then the cause is not the nodes."""
    found = list(ask_in_parallel([agents.on(node) for node in nodes] if nodes else agents.all(), work))
    errors = [answer for _, answer in found if isinstance(answer, InputError)]
    cluster_codes = [error.status for error in errors if isinstance(error, ClusterError)]
    if len(cluster_codes) == len(found) and len(set(cluster_codes)) == 1:
        raise errors[0]
    return found
