"""Credentials of a kubeconfig's user: the headers of a request and the client's certificate.

A credential plugin runs when the first request needs it, and again when the API server rejects what it printed.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import msgspec

from podslice.kubectl.kubeconfig import Access, ClusterEntry, ExecPlugin
from podslice.reading.files import read_bytes
from podslice.service.tokens import find_token
from podslice.values.errors import InputError

TOKEN_HEADER = "X-Podslice-Token"
_LARGEST_TOKEN = 1 << 20
_LARGEST_FILE = 4 << 20
_PLUGIN_SECONDS = 120.0
_LAST_ERRORS = 4096
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Credential(NamedTuple):
    """A token, a certificate with its key as PEM, or neither."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""


class Credentials:
    """The credentials of one user. Threads may share them: a plugin runs once."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._printed: Credential | None = None

    @property
    def is_renewable(self) -> bool:
        """Whether a plugin could return another credential."""
        return self._access.user.exec is not None

    def get(self) -> Credential:
        """Return the credential, running the plugin where there is one. Raises `InputError`."""
        user = self._access.user
        if user.auth_provider is not None:
            raise self._error("auth-provider is not supported any more", "use an exec plugin, as kubectl does")
        if user.exec is not None and not (user.token or user.token_file):
            with self._lock:
                if self._printed is None:
                    self._printed = run_plugin(user.exec, self._access)
                return self._printed
        # A token file wins over a token, as in client-go, and is read at each request, because it may be replaced.
        token = self._token(user.token_file) if user.token_file else user.token
        if not is_sendable(token):
            raise self._error("its token is none: it has spaces or line breaks in it", "log in again")
        for name in (user.impersonate, *user.impersonate_groups):
            if not name.isprintable() or not name.isascii():
                raise self._error(f"{name!r} cannot be sent", "as and as-groups are names in ASCII")
        certificate = read_content(user.client_certificate_data, user.client_certificate, "client-certificate")
        key = read_content(user.client_key_data, user.client_key, "client-key")
        if bool(certificate) != bool(key):
            missing = "client-key" if certificate else "client-certificate"
            raise self._error(f"has no {missing}", f"give {missing} or {missing}-data as well")
        return Credential(token, certificate, key)

    def forget(self) -> None:
        """Drop the plugin's credential, which the API server rejected."""
        with self._lock:
            self._printed = None

    def headers(self, credential: Credential) -> list[tuple[str, str]]:
        """Return the headers for authorization and impersonation."""
        user = self._access.user
        headers = []
        if credential.token:
            headers.append(("Authorization", f"Bearer {credential.token}"))
        elif user.username:
            pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            headers.append(("Authorization", f"Basic {pair}"))
        if user.impersonate:
            headers.append(("Impersonate-User", user.impersonate))
        return [*headers, *(("Impersonate-Group", group) for group in user.impersonate_groups)]

    def _token(self, path: str) -> str:
        token = find_token(read_bytes(path, _LARGEST_TOKEN))
        if not token:
            raise InputError("holds no token", source=path, remedy="log in again")
        return token

    def _error(self, problem: str, remedy: str) -> InputError:
        return InputError(problem, source=self._access.source, path=f"user {self._access.user_name}", remedy=remedy)


def is_sendable(token: str) -> bool:
    """Whether a token can be part of a header."""
    return token.isascii() and token.isprintable() and " " not in token


def read_content(data: str, path: str, field: str) -> bytes:
    """Return the contents of a field's file or of its `-data` twin, which wins. Raises `InputError`."""
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise InputError(
                "is not base64", path=f"{field}-data", remedy="write what base64 -w0 FILE prints"
            ) from None
    return read_bytes(path, _LARGEST_FILE) if path else b""


def run_plugin(plugin: ExecPlugin, access: Access) -> Credential:
    """Run a credential plugin and return the credential that it prints. Raises `InputError`."""
    if plugin.api_version not in _VERSIONS:
        raise _plugin_error(
            plugin, f"apiVersion {plugin.api_version!r} is not supported", f"one of {', '.join(_VERSIONS)}"
        )
    environment = {**os.environ, **{one.name: one.value for one in plugin.env or ()}}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(_exec_info(plugin, access.cluster))
    interactive = sys.stdin.isatty()  # then the plugin may ask for a login, and its errors go to the terminal
    try:
        process = subprocess.Popen(
            [plugin.command, *(plugin.args or ())],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        hint = " ".join(plugin.install_hint.split())
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _plugin_error(plugin, f"cannot be run: {why}", hint or "install it") from None
    with process:
        try:
            printed, errors = _read_output(process)
            code = process.wait(_PLUGIN_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise _plugin_error(plugin, f"did not answer within {_PLUGIN_SECONDS:.0f} s", "log in again") from None
        except OverflowError:
            problem = f"printed more than {_LARGEST_TOKEN >> 20} MiB"
            raise _plugin_error(plugin, problem, "run it yourself to see") from None
        finally:
            process.kill()
    if code != 0:
        said = " ".join(errors.decode("utf-8", "replace").split())[-300:]
        raise _plugin_error(plugin, f"ended with {code}{f': {said}' if said else ''}", "log in again")
    return _parse_credential(plugin, printed)


def _read_output(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Return a program's stdout and the end of its stderr. Raises `TimeoutError`, and `OverflowError` for too much
    output."""
    output_of = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream is not None}
    end = time.monotonic() + _PLUGIN_SECONDS
    # Both pipes at once: a plugin that fills one while the other is read would block.
    with selectors.DefaultSelector() as selector:
        for stream in output_of:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            for key, _ in selector.select(remaining):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                found = output_of[key.fileobj]  # type: ignore[index]
                found += data
                if key.fileobj is process.stderr:
                    # Of errors only the end is reported.
                    del found[:-_LAST_ERRORS]
                elif len(found) > _LARGEST_TOKEN:
                    raise OverflowError
    printed, errors = process.stdout, process.stderr
    return bytes(output_of[printed]) if printed else b"", bytes(output_of[errors]) if errors else b""


def _authority_data(cluster: ClusterEntry) -> str:
    """Return the cluster's authority in base64: a plugin reads no file beside the kubeconfig."""
    content = read_content(cluster.certificate_authority_data, cluster.certificate_authority, "certificate-authority")
    return base64.b64encode(content).decode()


def _exec_info(plugin: ExecPlugin, cluster: ClusterEntry) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": sys.stdin.isatty()}
    if plugin.provide_cluster_info:
        spec["cluster"] = {
            name: value
            for name, value in {
                "server": cluster.server,
                "tls-server-name": cluster.tls_server_name,
                "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
                "certificate-authority-data": _authority_data(cluster),
                "proxy-url": cluster.proxy_url,
            }.items()
            if value
        }
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _parse_credential(plugin: ExecPlugin, output: bytes) -> Credential:
    try:
        found = msgspec.json.decode(output, type=dict[str, Any])
        status = found["status"]
        version = found["apiVersion"]
        if not isinstance(status, dict):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _plugin_error(plugin, "printed no ExecCredential with a status", "run it yourself to see") from None
    if version != plugin.api_version:
        raise _plugin_error(plugin, f"printed apiVersion {version!r}", f"configured is {plugin.api_version}")
    fields = [status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData")]
    if not all(isinstance(field, str) for field in fields) or not (fields[0] or (fields[1] and fields[2])):
        raise _plugin_error(plugin, "printed neither a token nor a certificate with its key", "run it yourself to see")
    if not is_sendable(fields[0]):
        raise _plugin_error(plugin, "printed a token with spaces or line breaks in it", "run it yourself to see")
    return Credential(fields[0], fields[1].encode(), fields[2].encode())


def _plugin_error(plugin: ExecPlugin, problem: str, remedy: str) -> InputError:
    return InputError(problem, path=f"credential plugin {plugin.command}", remedy=remedy)
