"""This node's pods from the endpoint `/pods` of the kubelet beside the agent.

The kubelet lists its static pods as well, under the UIDs of their sandboxes, so no mirror pods are needed. It has no
watch: the list is read at intervals, and at once when a sandbox needs a pod that is not known. It may be read with the
right to `get` `nodes/pods` (KEP-2862), which gives nothing else of the kubelet, and not the pods of other nodes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from podslice.agent.api_server.apiclient import read_page
from podslice.agent.kubelet.knownpods import KnownPods
from podslice.agent.kubelet.sources import explain_no_pods
from podslice.agent.settings import KubeletSettings
from podslice.api.pod.spec import Pod
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import PLAIN, read_pieces
from podslice.service.http.failures import describe_failure
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff, wait_at_most
from podslice.service.podlist import PodListPage
from podslice.service.tokens import read_account_token
from podslice.service.trust import TrustedContext
from podslice.values.errors import InputError

LARGEST_ANSWER = 1 << 30
"""Bytes of an answer that are read, not kept: the kubelet has no pages."""
REQUEST_SECONDS = 10.0
NODE_NAME = "$(NODE_NAME)"
"""Placeholder of the node's name in `serverName`, so that many nodes have one configuration."""
_PATH = "/pods"
_GAP = 0.05
"""Least seconds between two readings."""
_SAID_OF_A_LIST = 3


class KubeletEndpoint(Protocol):
    """The calls that the agent makes to the kubelet."""

    async def pods(self) -> PodListPage:
        """Read all pods of the kubelet. Raises `ApiError`."""


class KubeletSource:
    """The pods of the kubelet, a `PodSource`. `run` keeps them current for ever, whatever is answered.

    `cause`: the last failure, empty after a success.
    """

    def __init__(
        self,
        kubelet: KubeletEndpoint,
        *,
        every: float,
        trouble: Callable[[str, str], None],
        wait: Callable[[asyncio.Event, float], Awaitable[None]] = wait_at_most,
    ) -> None:
        self.name = "kubelet"
        self.ready = False
        self.changed = asyncio.Event()
        self.cause = ""
        self.pods = KnownPods()
        self._kubelet = kubelet
        self._every = every
        self._trouble = trouble
        self._wait = wait
        self._asked = asyncio.Event()
        self._said: set[str] = set()

    def find(self, identity: Identity) -> Pod | None:
        """Find a pod. Raises `InputError` for one that cannot be read."""
        return self.pods.find(identity)

    def expects(self, identity: Identity) -> bool:
        """Whether the kubelet will list the pod: it knows a pod before it makes its sandbox."""
        # The kubelet authorizes readers by the API server, which may be a static pod: waiting for that would never end.
        return not identity.static or (self.ready and not self.cause)

    def ask(self, identity: Identity) -> None:
        """Read the list soon."""
        self._asked.set()

    def explain_unknown(self) -> str:
        """Return a message why a pod that is expected is not known."""
        nothing = explain_no_pods("the kubelet", self.cause, ready=self.ready)
        return nothing or "the kubelet does not list this pod yet"

    async def run(self, back_off: BackOff | None = None) -> None:
        """Read the list at intervals, and at once when a pod is looked for; waits grow while that fails."""
        back_off = back_off or BackOff(0.2, 30.0)
        never = asyncio.Event()
        while True:
            try:
                self._asked.clear()
                self._take(await self._kubelet.pods())
                back_off.reset()
                # The gap first, whatever is asked for: many new pods at once need one reading.
                await self._wait(never, _GAP)
                await self._wait(self._asked, self._every)
                continue
            except ApiError as error:
                self._fail(str(error))
            except Exception as error:
                self._fail(f"{type(error).__name__}: {str(error)[:300]}")
            await self._wait(never, back_off.next())

    def _fail(self, cause: str) -> None:
        self.cause = cause
        self._trouble("kubelet", cause)

    def _take(self, page: PodListPage) -> None:
        """Replace the known pods by this list. A pod that cannot be read is reported once, not at every reading."""
        self.pods.replace(page.pods)
        problems = {*page.problems, *(str(pod.problem) for pod in page.pods if pod.problem is not None)}
        for problem in sorted(problems - self._said)[:_SAID_OF_A_LIST]:
            self._trouble("kubeletPod", problem)
        # A problem that was solved and comes back is reported again.
        self._said = problems
        self.ready = True
        self.cause = ""
        self.changed.set()


class HTTPKubelet:
    """The HTTPS port of a kubelet, with the token of a service account. Raises `InputError` for a certificate authority
    that cannot be read."""

    def __init__(self, settings: KubeletSettings, node: str, address: str) -> None:
        import httpx2

        self._node = node
        self._token_file = Path(settings.token_file)
        host = f"[{address}]" if ":" in address else address
        self._url = f"https://{host}:{settings.port}{_PATH}"
        name = settings.server_name.replace(NODE_NAME, node)
        self._options = {"sni_hostname": name} if name else {}
        try:
            self._trust = _trust(settings)
            # Without the environment: a proxy for the outside world must not get the token.
            self._client = httpx2.AsyncClient(verify=self._trust.context, timeout=REQUEST_SECONDS, trust_env=False)
        except OSError as error:
            raise InputError(
                f"{settings.ca_file}: cannot be used: {error}",
                path="sources.kubelet.caFile",
                remedy="name the authority, or the kubelet's own certificate /var/lib/kubelet/pki/kubelet.crt",
            ) from None
        self._errors = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, TimeoutError)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def pods(self) -> PodListPage:
        """Read all pods of the node. Raises `ApiError`."""
        try:
            self._trust.latest()
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._read(self._token())
        except self._errors as error:
            raise ApiError(f"{self._url}: {describe_failure(error)}") from None

    async def _read(self, token: str) -> PodListPage:
        headers = PLAIN | {"Authorization": f"Bearer {token}"}
        async with self._client.stream("GET", self._url, headers=headers, extensions=self._options) as response:
            pieces = read_pieces(response, self._url)
            return await read_page(pieces, self._node, LARGEST_ANSWER, f"{self._url}: the answer")

    def _token(self) -> str:
        """Read the token, every time: it is replaced every hour or so. Raises `ApiError`, `OSError`."""
        return read_account_token(self._token_file)


def _trust(settings: KubeletSettings) -> TrustedContext:
    """Return the TLS settings. Raises `OSError`."""
    trust = TrustedContext(Path(settings.ca_file) if settings.ca_file else None)
    if settings.insecure_skip_tls_verify:
        trust.context.check_hostname = False
        trust.context.verify_mode = ssl.CERT_NONE
    return trust
