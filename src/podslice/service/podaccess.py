"""Access to the API server from inside a pod, by the service account whose files the kubelet keeps there.

This reads the two files itself: clients that read all kinds of configurations take megabytes of memory for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from podslice.service.tokens import read_account_token
from podslice.service.trust import TrustedContext

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class PodToken:
    """The service account's token. It is read again when the server refused it, because the kubelet rotates it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = ""

    async def header(self, again: bool) -> str:  # noqa: FBT001
        """Return the Authorization header; `again`: the last one was refused. Raises `ApiError` for a file without
        token,
        `OSError`."""
        if again or not self._known:
            self._known = read_account_token(self._path)
        return f"Bearer {self._known}"


class PodAccess(NamedTuple):
    """Address of the API server, the certificates to accept, and the token to send."""

    server: str
    trust: TrustedContext
    token: PodToken


def pod_access(environment: Mapping[str, str], folder: Path | None = None) -> PodAccess | None:
    """Return the access of this pod, None outside a pod with a service account.

    Raises `OSError` (`ssl.SSLError` is one) for a certificate authority that cannot be read.
    """
    folder = folder or SERVICE_ACCOUNT
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    # Every pod has the two variables, also one without a service account's token.
    if not (host and port and (folder / "token").exists()):
        return None
    trust = TrustedContext(folder / "ca.crt")
    where = f"[{host}]" if ":" in host else host
    return PodAccess(f"https://{where}:{port}", trust, PodToken(folder / "token"))


def pod_namespace(folder: Path | None = None) -> str:
    """Return the pod's own namespace, empty outside a pod with a service account."""
    try:
        return ((folder or SERVICE_ACCOUNT) / "namespace").read_text().strip()
    except OSError:
        return ""
