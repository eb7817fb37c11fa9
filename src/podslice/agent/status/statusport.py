"""What `kubectl podslice` reads of an agent: `/status`, `/node` and `/audit`, as JSON, on a listener of its own.

Names of pods and where they run are no tenant's business. So the listener is on a loopback address, which in a pod's
own network means: through a port-forward, by those who may make one. Anywhere else whoever asks must know a token.
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
"""The kernel's fixed number of the namespace that every process id of the node is in."""


def status_routes(
    owner: Owner, tree: CgroupTree, *, status: Callable[[], AgentStatus], live: Callable[[], dict[str, Any]]
) -> dict[str, Route]:
    """One audit runs at a time, in a thread: it reads a file or two for every container."""
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


def strangers(token_file: str) -> Refusal:
    """Turns away who does not know the token in the file, which is read each time because secrets are replaced;
    without a file, who did not ask for localhost."""

    def refusal(headers: Mapping[str, str]) -> HTTPAnswer | None:
        if not token_file:
            local = is_local_host(headers.get("host", ""))
            return None if local else plain(403, "this listener answers only to localhost\n")
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
