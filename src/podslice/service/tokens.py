"""Bearer tokens in files: of the service account that a kubelet projects into a pod, and of clients of our servers."""

from __future__ import annotations

from pathlib import Path

from podslice.service.answers import ApiError
from podslice.service.http.access import SHORTEST_TOKEN
from podslice.values.errors import InputError

_LARGEST_ACCOUNT_TOKEN = 64 << 10
_LARGEST_ACCESS_TOKEN = 4096


def find_token(data: bytes, *, least: int = 1) -> str:
    """Return the token in a file's bytes: one line of at least `least` characters. Empty where there is none."""
    token = data.strip()
    # A token becomes part of a header, in which a line break would begin another header.
    good = len(token) >= least and token.isascii() and b"\n" not in token
    return token.decode() if good else ""


def read_account_token(path: Path) -> str:
    """Read the token of a service account. Raises `ApiError` where the file holds none, `OSError`."""
    with path.open("rb") as file:
        token = find_token(file.read(_LARGEST_ACCOUNT_TOKEN))
    if not token:
        raise ApiError(f"{path}: holds no token")
    return token


def read_access_token(path: str, setting: str = "statusTokenFile") -> str:
    """Read the token that clients of our own server must send. `setting` names the path in the message.

    Raises `InputError` for a file that cannot be read or holds no token of `SHORTEST_TOKEN` characters.
    """
    try:
        with Path(path).open("rb") as file:
            token = find_token(file.read(_LARGEST_ACCESS_TOKEN), least=SHORTEST_TOKEN)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=path, path=setting) from None
    if not token:
        raise InputError(
            "holds no token", source=path, path=setting,
            remedy=f"{SHORTEST_TOKEN} or more random characters on one line",
        )  # fmt: skip
    return token
