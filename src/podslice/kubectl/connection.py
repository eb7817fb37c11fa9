"""A connection to an API server, through a proxy where one is set, with the certificates of the kubeconfig.

Every failure becomes one line with a remedy (`ClusterError`).
"""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
import tempfile
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from podslice.kubectl.credentials import Credential, read_content
from podslice.kubectl.kubeconfig import Access
from podslice.kubectl.reply import timed_response_class
from podslice.service.trust import trust_as_go
from podslice.values.errors import InputError

_TLS_RECORD = "WRONG_VERSION_NUMBER"
_PASSWORD = re.compile(r"(//)?[^/@]*@")
_WORDS = re.compile(r"[!-~]+")


class ClusterError(InputError):
    """Raised for a failed request. `status` is the API server's HTTP status, 0 where it gave none; `answer` the message
    of its Status object."""

    def __init__(self, problem: str, *, source: str = "", remedy: str = "", status: int = 0, answer: str = "") -> None:
        super().__init__(problem, source=source, remedy=remedy)
        self.status, self.answer = status, answer


class Server(NamedTuple):
    """The address of an API server, with the `prefix` of all its paths."""

    tls: bool
    host: str
    port: int
    prefix: str


def server_of(access: Access) -> Server:
    """Return the address of the cluster's server. Raises `InputError` for another text."""
    url, where = access.cluster.server, f"cluster {access.cluster_name}"
    parts = _split(url if "://" in url else f"https://{url}", access, where)
    good = parts.scheme in ("https", "http") and parts.hostname and _WORDS.fullmatch(f"{parts.hostname}{parts.path}")
    if not good or not parts.hostname:
        said = repr(server_text(access))
        raise InputError(f"{said} is not an address", source=access.source, path=where, remedy="https://HOST:PORT")
    tls = parts.scheme == "https"
    return Server(tls, parts.hostname, parts.port or (443 if tls else 80), parts.path.rstrip("/"))


def _split(url: str, access: Access, where: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        # `urlsplit` checks the port only when it is read.
        _ = parts.port
    except ValueError as error:
        problem = f"{_without_password(url)!r}: {error}"
        raise InputError(problem, source=access.source, path=where, remedy="https://HOST:PORT") from None
    return parts


def server_text(access: Access) -> str:
    """Return the server's URL for messages, without a password in it."""
    return _without_password(access.cluster.server)


def _without_password(url: str) -> str:
    return _PASSWORD.sub(r"\1…@", url)


def connect(access: Access, credential: Credential, timeout: float) -> HTTPConnection:
    """Open a connection. Raises `InputError`."""
    server = server_of(access)
    proxy = _proxy(access, server)
    host, port = (proxy.hostname or "", proxy.port or 80) if proxy else (server.host, server.port)
    made: HTTPConnection
    if server.tls:
        made = HTTPSConnection(host, port, timeout=timeout, context=_context(access, credential))
    else:
        made = HTTPConnection(host, port, timeout=timeout)
    made.response_class = timed_response_class(timeout)  # type: ignore[assignment]
    if proxy:
        made.set_tunnel(server.host, server.port, headers=_proxy_headers(proxy))
    try:
        if server.tls and access.cluster.tls_server_name:
            _connect_as(made, access.cluster.tls_server_name)
        else:
            made.connect()
    except (OSError, ValueError, HTTPException) as error:
        made.close()
        raise unreachable_error(access, error) from None
    return made


def _connect_as(connection: HTTPConnection, name: str) -> None:
    """Open a connection, and verify the certificate for `name` in place of the host (tls-server-name)."""
    assert isinstance(connection, HTTPSConnection)
    # `HTTPSConnection.connect` would verify the host that it connects to, and takes no other name.
    HTTPConnection.connect(connection)
    context: ssl.SSLContext = connection._context  # type: ignore[attr-defined]
    connection.sock = context.wrap_socket(connection.sock, server_hostname=name)


def _proxy(access: Access, server: Server) -> SplitResult | None:
    """Return the proxy of the cluster, else that of the environment, None for neither."""
    url = access.cluster.proxy_url
    if not url and not proxy_bypass(f"{server.host}:{server.port}"):
        url = getproxies_environment().get("https" if server.tls else "http", "")
    if not url:
        return None
    parts = _split(url, access, "proxy-url")
    if parts.scheme != "http" or not parts.hostname:
        raise InputError(
            f"{parts.scheme}:// is not supported", source=access.source, path="proxy-url",
            remedy="give an http:// proxy, which passes TLS on as it is",
        )  # fmt: skip
    return parts


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _context(access: Access, credential: Credential) -> ssl.SSLContext:
    """Return the TLS context of the cluster. Raises `InputError` for unusable certificates."""
    cluster = access.cluster
    authority = read_content(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode("latin-1") if authority else None)
    except (ssl.SSLError, ValueError):
        where = f"certificate-authority of cluster {access.cluster_name}"
        raise InputError("is not a certificate", source=access.source, path=where, remedy="write PEM") from None
    trust_as_go(context)
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        _load_certificate(context, credential, access)
    return context


def _load_certificate(context: ssl.SSLContext, credential: Credential, access: Access) -> None:
    """Load the client's certificate through a temporary file, because `load_cert_chain` reads files only."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(credential.certificate.rstrip() + b"\n" + credential.key)
        file.flush()
        try:
            # Without a password of our own OpenSSL would ask for one at the terminal.
            context.load_cert_chain(file.name, password=lambda: b"")
        except (ssl.SSLError, ValueError):
            where = f"client-certificate of user {access.user_name}"
            problem, remedy = "is not a certificate with its key", "write PEM, without a passphrase"
            raise InputError(problem, source=access.source, path=where, remedy=remedy) from None


def unreachable_error(access: Access, error: Exception) -> ClusterError:
    """Return the error for a connection that failed, with a remedy."""
    problem, remedy = _cause(error, access)
    return ClusterError(problem, source=server_text(access), remedy=remedy)


def _cause(error: Exception, access: Access) -> tuple[str, str]:
    cluster = f"cluster {access.cluster_name}"
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        # The codes are OpenSSL's X509_V_ERR_*.
        if error.verify_code in (62, 64):  # of another host name or address
            return f"the certificate is for another name: {said}", f"set tls-server-name of {cluster}"
        if error.verify_code in (9, 10):  # not yet valid, or expired
            return f"the certificate is out of its time: {said}", "renew it, or set this machine's clock"
        return f"the certificate is not trusted: {said}", f"set certificate-authority-data of {cluster}"
    if isinstance(error, ssl.SSLError):
        if error.reason == _TLS_RECORD:
            return "does not speak TLS", f"write http:// in the server of {cluster}, or another port"
        return f"TLS failed: {error.reason or error}", f"look at the certificates of {cluster}"
    if isinstance(error, socket.gaierror):
        return (
            f"there is no host of that name: {error.strerror}",
            f"look at the server of {cluster}, or at the network",
        )
    if isinstance(error, TimeoutError):
        return "does not answer", "is there a way to it (VPN, firewall)? --request-timeout waits longer"
    if isinstance(error, HTTPException) or (
        isinstance(error, OSError) and error.errno is None
    ):  # the answer of a proxy to CONNECT
        return f"the proxy makes no connection: {error}", "look at proxy-url and HTTPS_PROXY"
    text = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return f"cannot be reached: {text}", f"is the API server up? look at the server of {cluster}, or give --context"
