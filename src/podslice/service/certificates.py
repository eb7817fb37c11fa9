"""Certificates in PEM files: when they expire, whether a key belongs to one, and a server's that is read again.

Standard library only. Of X.509 (RFC 5280, 4.1) only the validity is read; all else is OpenSSL's to judge.
"""

from __future__ import annotations

import binascii
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from podslice.values.errors import InputError

LARGEST_FILE = 1 << 20
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----", re.DOTALL)
_CERTIFICATES = (b"CERTIFICATE", b"TRUSTED CERTIFICATE", b"X509 CERTIFICATE")
_VERSION = 0xA0
_UTC_TIME = 0x17


def read_pem(path: str, field: str) -> bytes:
    """Read a PEM file. Raises `InputError` that names `field` and the file."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=path, path=field) from None
    if len(data) > LARGEST_FILE:
        raise InputError(f"has more than {LARGEST_FILE} bytes", source=path, path=field)
    return data


def certificate_expiries(data: bytes, path: str, field: str) -> list[float]:
    """Return the Unix times at which the certificates of a PEM file expire. Raises `InputError` for a file without a
    certificate, such as a private key that was given in its place."""
    found, labels = list[float](), list[str]()
    for match in _BLOCK.finditer(data):
        labels.append(match[1].decode())
        if match[1] in _CERTIFICATES:
            try:
                found.append(_expiry(binascii.a2b_base64(match[2])))
            except (ValueError, IndexError):
                raise InputError("has a certificate that cannot be read", source=path, path=field) from None
    if found:
        return found
    if any("PRIVATE KEY" in label for label in labels):
        problem = "has a private key and no certificate"
        remedy = "give the file of the certificate, usually tls.crt; of an authority ca.crt"
    else:
        what = f"only {', '.join(sorted(set(labels)))}" if labels else "no PEM block"
        problem, remedy = f"has no certificate: {what}", "give a file that has BEGIN CERTIFICATE"
    raise InputError(problem, source=path, path=field, remedy=remedy)


def check_key(data: bytes, path: str, field: str) -> None:
    """Check that a PEM file has a private key. Raises `InputError`."""
    labels = [match[1] for match in _BLOCK.finditer(data)]
    if any(b"PRIVATE KEY" in label for label in labels):
        return
    problem = "has a certificate and no private key" if set(labels) & set(_CERTIFICATES) else "has no private key"
    raise InputError(problem, source=path, path=field, remedy="give the file of the key, usually tls.key")


def _expiry(der: bytes) -> float:
    """Return notAfter of a certificate. Raises `ValueError` or `IndexError` for anything else."""
    _, start, end = _elements(der, 0, len(der))[0]
    _, start, end = _elements(der, start, end)[0]
    # version (optional), serialNumber, signature, issuer, validity
    _, start, end = [one for one in _elements(der, start, end) if one[0] != _VERSION][3]
    tag, start, end = _elements(der, start, end)[1]
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year; from 50 on of the last century (RFC 5280, 4.1.2.5.1)
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(der: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return the elements of an ASN.1 value in DER: tag, and where the content begins and ends."""
    found = []
    while start < end:
        tag, length, start = der[start], der[start + 1], start + 2
        if length & 0x80:
            size = length & 0x7F
            if not 0 < size <= 4:
                raise ValueError("a length without end")
            length = int.from_bytes(der[start : start + size], "big")
            start += size
        if start + length > end:
            raise ValueError("an element ends after its parent")
        found.append((tag, start, start + length))
        start += length
    return found


class CertificateFiles(NamedTuple):
    """Files in PEM: the server's certificate and key, and the authority of clients, empty for none; `fields` are the
    options that name them."""

    cert: str = ""
    key: str = ""
    client_authority: str = ""
    fields: tuple[str, str, str] = ("--tls-cert", "--tls-key", "--client-ca")


class LoadedCertificate(NamedTuple):
    """A certificate that was read and tried. `content`: the files' bytes. `expiries`: Unix times; of the server's chain
    and of the clients' authorities the earliest. `plain` is the TLS context for clients without certificates, `mutual`
    the one that requires them, None without an authority."""

    content: tuple[bytes, bytes, bytes]
    expiries: dict[str, float]
    plain: ssl.SSLContext
    mutual: ssl.SSLContext | None


def load_certificate(files: CertificateFiles) -> LoadedCertificate:
    """Read the files and try them. Raises `InputError` for files that cannot be used, or changed meanwhile."""
    content = _read(files)
    cert, key, authority = content
    expiries = {"server": min(certificate_expiries(cert, files.cert, files.fields[0]))}
    check_key(key, files.key, files.fields[1])
    if files.client_authority:
        times = certificate_expiries(authority, files.client_authority, files.fields[2])
        expiries["clientAuthority"] = min(times)
    plain = _with_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
    mutual = None
    if files.client_authority:
        mutual = _with_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
        mutual.verify_mode = ssl.CERT_REQUIRED
        try:
            mutual.load_verify_locations(cadata=authority.decode("latin-1"))
        except ssl.SSLError as error:
            raise InputError(
                f"cannot be used: {error.reason or error}", source=files.client_authority, path=files.fields[2]
            ) from None
    if _read(files) != content:
        raise InputError("the files changed while they were read", path=", ".join(files.fields[:2]))
    return LoadedCertificate(content, expiries, plain, mutual)


def _read(files: CertificateFiles) -> tuple[bytes, bytes, bytes]:
    cert, key = read_pem(files.cert, files.fields[0]), read_pem(files.key, files.fields[1])
    return cert, key, read_pem(files.client_authority, files.fields[2]) if files.client_authority else b""


def _with_chain(context: ssl.SSLContext, files: CertificateFiles) -> ssl.SSLContext:
    try:
        # An empty password: OpenSSL would ask for one on the terminal.
        context.load_cert_chain(files.cert, files.key, password="")
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or str(error)
        matches = reason != "KEY_VALUES_MISMATCH"
        problem = f"cannot be used: {reason}" if matches else "the key is not that of the certificate"
        raise InputError(
            problem, source=f"{files.cert}, {files.key}", path=", ".join(files.fields[:2]),
            remedy="give both files of one Secret; a key must have no password",
        ) from None  # fmt: skip
    return context


class ServerCertificate:
    """A server's certificate that is read again when its files change, also by a swap of a Secret's `..data`.

    Connections that are open go on; new ones see the new certificate. Files that cannot be used change nothing. Raises
    `InputError` for files that cannot be used at the start.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self.loaded = load_certificate(files)
        self.problem = ""
        """Why the files are not what is served, empty where they are."""
        self._doubtful = ""
        self.plain = self._follow(self.loaded.plain, lambda: self.loaded.plain)
        """The TLS context of a listener whose clients have no certificates."""
        self.mutual = None if self.loaded.mutual is None else self._follow(self.loaded.mutual, self._mutual)
        """That of one whose clients must show a certificate; None without an authority of clients."""

    def _mutual(self) -> ssl.SSLContext:
        assert self.loaded.mutual is not None
        return self.loaded.mutual

    def _follow(self, first: ssl.SSLContext, latest: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return a context whose handshakes use the latest one. A listener keeps its context for ever, and a context
        that trusts an authority cannot unlearn it."""

        def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connection.context = latest()

        first.sni_callback = choose
        # A client could else resume a session, and never show a certificate of the new authority.
        first.num_tickets = 0
        first.options |= ssl.OP_NO_TICKET
        return first

    def watch_handshakes(self, plain: Callable[[str], None], mutual: Callable[[str], None]) -> None:
        """Call `plain` with the cause of each handshake that fails of a listener whose clients have no certificates,
        `mutual` with those of one whose clients must show a certificate."""
        for context, failed in ((self.plain, plain), (self.mutual, mutual)):
            if context is not None:
                context.sslobject_class, context.sslsocket_class = _watched_classes(failed)

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """The certificate and its key in PEM."""
        return self.loaded.content[:2]

    @property
    def expiries(self) -> dict[str, float]:
        """When what is served expires; see `LoadedCertificate`."""
        return self.loaded.expiries

    def look(self) -> bool:
        """Read the files again, and return whether there is a new certificate, or a new problem. A problem counts when
        it is there twice in a row: a swap of files takes a moment."""
        try:
            renewed = _read(self._files) != self.loaded.content
            if renewed:
                self.loaded = load_certificate(self._files)
        except InputError as error:
            before, self._doubtful = self._doubtful, str(error)
            if before != self._doubtful or before == self.problem:
                return False
            self.problem = before
            return True
        self.problem = self._doubtful = ""
        return renewed


def _watched_classes(failed: Callable[[str], None]) -> tuple[type[ssl.SSLObject], type[ssl.SSLSocket]]:
    """Return the classes of connections that report handshakes: asyncio and `socketserver` keep their errors to
    themselves."""

    def watch(handshake: Callable[[], None], peer: str) -> None:
        try:
            handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            failed(f"{peer}{error.reason or error}")
            raise

    class WatchedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            watch(super().do_handshake, "")

    class WatchedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001
            watch(lambda: super(WatchedSocket, self).do_handshake(block), f"{self.getpeername()[0]}: ")

    return WatchedObject, WatchedSocket
