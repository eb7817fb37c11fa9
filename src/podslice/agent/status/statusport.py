"""The listener for `kubectl podslice`: `/status`, `/node` and `/audit`, as JSON.

Users must not read which pods run where. So the listener is on a loopback address, which in a pod's own network can be
reached by a port-forward alone, by users who may make one. On any other address a client must send a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from podslice.agent.owner import Owner
from podslice.audit.audit import audit
from podslice.audit.report import AuditReport
from podslice.audit.state import load_state
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.http.access import is_local_host, is_token
from podslice.service.http.get_server import HTTPAnswer, Refusal, Route, plain
from podslice.service.tokens import read_access_token
from podslice.status.status import AgentStatus
from podslice.values.document import document
from podslice.values.errors import InputError

TOKEN_HEADER = "x-podslice-token"
_JSON = "application/json"
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed number of the initial PID namespace, which has all processes of the node."""


def status_routes(
    owner: Owner, tree: CgroupTree, *, status: Callable[[], AgentStatus], live: Callable[[], dict[str, Any]]
) -> dict[str, Route]:
    """Return the routes of the listener."""
    # An audit reads a file or two for every container, so it runs in a thread, and only one at a time.
    auditing = asyncio.Lock()

    async def tell_status() -> HTTPAnswer:
        return _json(document(status()))

    async def tell_node() -> HTTPAnswer:
        return _json(live())

    async def tell_audit() -> HTTPAnswer:
        names = {one.id: one.name for one in owner.containers.values()}
        try:
            async with auditing:
                return _json(document(await asyncio.to_thread(_audit, owner, tree, names)))
        except (InputError, OSError) as error:
            return plain(503, f"{error}\n")

    return {"/status": tell_status, "/node": tell_node, "/audit": tell_audit}


def require_token(token_file: str) -> Refusal:
    """Return a refusal of requests without the token in the file; without a file, of requests not for localhost."""

    def refusal(headers: Mapping[str, str]) -> HTTPAnswer | None:
        if not token_file:
            local = is_local_host(headers.get("host", ""))
            return None if local else plain(403, "this listener answers only to localhost\n")
        # Read for every request: a mounted Secret is replaced in place.
        try:
            token = read_access_token(token_file)
        except InputError as error:
            return plain(503, f"{error}\n")
        return None if is_token(headers.get(TOKEN_HEADER, ""), token) else plain(401, "the token is missing or wrong\n")

    return refusal


def _audit(owner: Owner, tree: CgroupTree, names: Mapping[str, str]) -> AuditReport:
    state, policy = load_state(owner.directory), owner.admitting.policy
    return audit(state, tree, DiskFileSystem("/proc") if sees_the_node() else None, names, policy=policy)


def sees_the_node() -> bool:
    """Whether process ids here are the node's own, and not those of a container."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _json(data: dict[str, Any]) -> HTTPAnswer:
    return HTTPAnswer(200, _JSON, msgspec.json.encode(data))
