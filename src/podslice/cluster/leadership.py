"""The leadership of the kube-scheduler beside this service, by the Lease of its election: only the leader asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from podslice.cluster.log_lines import Log
from podslice.service.answers import ApiError
from podslice.values.errors import InputError

LOOK_SECONDS = 5.0


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str = ""


class _Lease(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


def lease_path(text: str, option: str) -> str:
    """Return the API path of a Lease NAMESPACE/NAME. Raises `InputError`."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise InputError(f"{text!r} is not a Lease", path=option, remedy="write NAMESPACE/NAME")
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


class Leadership:
    """Reads the Lease at intervals. `read` returns the body of a GET, and may raise `ApiError`; `host` is the name of
    this pod, with which kube-scheduler begins its identity. `leads` is None before the first answer."""

    def __init__(
        self,
        read: Callable[[str], Awaitable[bytes]],
        path: str,
        host: str,
        log: Log,
        *,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._read, self._path, self._host, self._log = read, path, host, log
        self._trouble, self._sleep = trouble, sleep
        self._problem = ""
        self.leads: bool | None = None

    async def run(self) -> None:
        """Look every five seconds, for ever."""
        while True:
            await self._look()
            await self._sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        problem = ""
        try:
            holder = msgspec.json.decode(await self._read(self._path), type=_Lease).spec.holder_identity
            leads = holder.startswith(f"{self._host}_")
            if leads != self.leads:
                self._log.info("leads" if leads else "does not lead", holder=holder)
            self.leads = leads
        except (ApiError, msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = str(error)
        if problem and problem != self._problem:
            self._trouble("lease", problem)
        self._problem = problem
