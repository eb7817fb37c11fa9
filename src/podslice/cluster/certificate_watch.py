"""Looks after the service's certificate: files that change are served without a restart, and all is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from podslice.cluster.log_lines import Log

LOOK_SECONDS = 10.0
"""A kubelet itself takes a minute or two to write a changed Secret into a pod."""


class WatchedCertificate(Protocol):
    """Implemented by `service.certificates.ServerCertificate`."""

    @property
    def expiries(self) -> Mapping[str, float]: ...

    @property
    def problem(self) -> str: ...

    def look(self) -> bool: ...


class CertificateWatch:
    """Looks at the files of a certificate every ten seconds. `trouble` gets files that cannot be used, once."""

    def __init__(
        self,
        certificate: WatchedCertificate,
        log: Log,
        *,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._certificate, self._log, self._trouble, self._sleep = certificate, log, trouble, sleep

    async def run(self) -> None:
        """Look, for ever."""
        self._tell("certificate loaded")
        while True:
            await self._sleep(LOOK_SECONDS)
            if not self._certificate.look():
                continue
            if self._certificate.problem:
                self._trouble("certificate", f"the new files are not served: {self._certificate.problem}")
            else:
                self._tell("certificate renewed")

    def _tell(self, event: str) -> None:
        ends = {name: datetime.fromtimestamp(end, UTC) for name, end in self._certificate.expiries.items()}
        self._log.info(event, expires={name: f"{end:%Y-%m-%dT%H:%M:%SZ}" for name, end in ends.items()})

    def is_served(self) -> float:
        """Return 1 where the files are what is served, 0 where they cannot be used."""
        return float(not self._certificate.problem)

    def expiry(self, name: str) -> float:
        """Return the Unix time at which what is served expires."""
        return self._certificate.expiries[name]
