"""Bearer tokens in files, such as those that a kubelet projects into a pod."""

from __future__ import annotations

from pathlib import Path

from podslice.service.podlist import ApiError

_LARGEST = 64 << 10


def token_in(data: bytes, *, least: int = 1) -> str:
    """The token in what a file holds, one line of at least so many characters; empty where there is none."""
    token = data.strip()
    good = len(token) >= least and token.isascii() and b"\n" not in token
    return token.decode() if good else ""


def read_token(path: Path) -> str:
    """The token of a service account. Raises `ApiError` where the file holds none, `OSError`."""
    with path.open("rb") as file:
        token = token_in(file.read(_LARGEST))
    if not token:
        raise ApiError(f"{path}: holds no token")
    return token
