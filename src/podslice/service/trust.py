"""The authorities that a client trusts, in files that are read again when they change. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from podslice.service.certificates import certificate_expiries, read_pem
from podslice.values.errors import InputError

LOOK_SECONDS = 10.0


def trust_as_go(context: ssl.SSLContext) -> None:
    """Make a TLS context verify as Go does, which a kubelet is written in. Chains, names and dates are verified as
    ever."""
    # Since Python 3.13 a context refuses authorities without key usage and certificates without key identifiers. Many
    # clusters have such certificates, and Go accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # An intermediate that the trust store names is an authority, though another one signed it; older Pythons deny that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


class TrustedContext:
    """A TLS context of a client that trusts the authorities in a file, and those that the file gets later. One that
    leaves the file is trusted until the program ends. Raises `OSError` for a file that cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen = self._mark()
        self.context = ssl.create_default_context(cafile=path)
        trust_as_go(self.context)

    def _mark(self) -> tuple[int, ...]:
        if self._path is None:
            return ()
        found = os.stat(self._path)
        return found.st_ino, found.st_mtime_ns, found.st_size

    def latest(self) -> ssl.SSLContext:
        """Return the context for a new connection. A file that cannot be read changes nothing."""
        try:
            mark = self._mark()
            if self._path is not None and mark != self._seen:
                self.context.load_verify_locations(self._path)
                self._seen = mark
        except OSError:
            pass
        return self.context


class AuthorityFile:
    """The authorities of a file in PEM, for clients that take bytes. `problem`: why the file is not what is trusted,
    empty where it is."""

    def __init__(self, path: Path, field: str) -> None:
        self._path, self._field = path, field
        self._good: bytes | None = None
        self._expires = 0.0
        self.problem = ""

    def read(self) -> bytes:
        """Return the authorities: of the file, or of how it was while it cannot be used. Raises `InputError` where it
        never could."""
        try:
            data = read_pem(str(self._path), self._field)
            expires = max(certificate_expiries(data, str(self._path), self._field))
        except InputError as error:
            self.problem = str(error)
            if self._good is None:
                raise
            return self._good
        self._good, self._expires, self.problem = data, expires, ""
        return data

    async def watch(
        self, trouble: Callable[[str, str], None], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Read the file every ten seconds, for ever. `trouble` gets each problem once."""
        reported = ""
        while True:
            with contextlib.suppress(InputError):
                self.read()
            if self.problem and self.problem != reported:
                trouble("cluster", f"the new authority is not used: {self.problem}" if self._good else self.problem)
            reported = self.problem
            await sleep(LOOK_SECONDS)

    def is_used(self) -> float:
        """Return 1 where the file is what is trusted, 0 where it cannot be used."""
        return float(not self.problem)

    def expiry(self) -> float:
        """Return the Unix time from which on nothing that is trusted is valid, 0 where nothing is trusted."""
        with contextlib.suppress(InputError):
            self.read()
        return self._expires
