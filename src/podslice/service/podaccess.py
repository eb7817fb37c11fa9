"""How a program in a pod reaches the API server of its cluster: by its service account, whose files the kubelet keeps
there. Clients that read all kinds of configurations take megabytes for it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podslice.service.tokens import read_account_token
from podslice.service.trust import trust_as_go

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class PodToken:
    """The service account's token, read again when it was not accepted: a kubelet rotates it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = ""

    async def header(self, again: bool) -> str:  # noqa: FBT001
        """The header that says who asks. Raises `ApiError` for a file without token, `OSError`."""
        if again or not self._known:
            self._known = read_account_token(self._path)
        return f"Bearer {self._known}"


class PodAccess(NamedTuple):
    """The server's address, whose certificates are accepted, and who asks."""

    server: str
    context: ssl.SSLContext
    token: PodToken


def pod_access(environment: Mapping[str, str], folder: Path | None = None) -> PodAccess | None:
    """None where this is no pod with a service account. Raises `OSError` (`ssl.SSLError` is one) for an authority that
    cannot be read."""
    folder = folder or SERVICE_ACCOUNT
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not (host and port and (folder / "token").exists()):
        return None
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    trust_as_go(context)
    where = f"[{host}]" if ":" in host else host
    return PodAccess(f"https://{where}:{port}", context, PodToken(folder / "token"))


def pod_namespace(folder: Path | None = None) -> str:
    """The pod's own namespace, empty where this is no pod with a service account."""
    try:
        return ((folder or SERVICE_ACCOUNT) / "namespace").read_text().strip()
    except OSError:
        return ""
