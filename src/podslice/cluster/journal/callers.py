"""The node of a calling agent, by the token of its service account (TokenReview).

A token that the kubelet projects into a pod is bound to the pod and names its node, so an agent can only report its own
node, whatever it claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import Any

import msgspec

from podslice.values.errors import PodsliceError

AUDIENCE = "podslice-cluster"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NODE_NAME = "authentication.kubernetes.io/node-name"
_LARGEST_TOKEN = 64 << 10
_REVIEWS = 64
"""Most TokenReviews at a time, however many agents connect."""


class CallerError(PodsliceError):
    """Raised for a caller that is not the agent of a node. The text has the reason, and nothing of the token."""


class _ReviewedUser(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _ReviewedUser = _ReviewedUser()
    audiences: list[str] = []
    error: str = ""


class _TokenReview(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class TokenCallers:
    """Reviews tokens. `post` sends a body to a path of the API server and returns the answer's; it may raise
    `ApiError`. `accounts` are the user names of agents: `system:serviceaccount:NAMESPACE:NAME`."""

    def __init__(
        self,
        post: Callable[[str, bytes], Awaitable[bytes]],
        accounts: Container[str],
        *,
        audience: str = AUDIENCE,
    ) -> None:
        self._post = post
        self._accounts = accounts
        self._audience = audience
        self._reviews = asyncio.Semaphore(_REVIEWS)

    async def find_node(self, token: str) -> str:
        """Return the node whose agent has this token. Raises `CallerError`, `ApiError`."""
        if not token or len(token) > _LARGEST_TOKEN:
            raise CallerError("there is no token")
        async with self._reviews:
            answer = await self._post(REVIEWS, msgspec.json.encode(review_of(token, self._audience)))
        return self._node(answer)

    def _node(self, answer: bytes) -> str:
        try:
            status = msgspec.json.decode(answer, type=_TokenReview).status
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CallerError(f"the API server's answer is not a review: {str(error)[:200]}") from None
        # A server that does not know audiences answers with its own: the token may then be meant for another service.
        if not status.authenticated or self._audience not in status.audiences:
            raise CallerError(f"the token is not valid for audience {self._audience} {status.error[:200]}".rstrip())
        if status.user.username not in self._accounts:
            raise CallerError(f"{status.user.username[:200]!r} is not an agent")
        nodes = status.user.extra.get(NODE_NAME, [])
        if len(nodes) != 1 or not nodes[0]:
            raise CallerError("the token is not bound to a pod on a node")
        return nodes[0]


def review_of(token: str, audience: str) -> dict[str, Any]:
    """Return the TokenReview for a token."""
    spec = {"token": token, "audiences": [audience]}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
