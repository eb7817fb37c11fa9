"""The token that whoever asks from afar must know."""

from __future__ import annotations

from pathlib import Path

from podslice.service.http.access import SHORTEST_TOKEN
from podslice.service.tokens import token_in
from podslice.values.errors import InputError

_LARGEST_TOKEN = 4096


def read_token(path: str, setting: str = "statusTokenFile") -> str:
    """Raises `InputError` for a file that holds no good token; `setting` is what named it."""
    try:
        with Path(path).open("rb") as file:
            token = token_in(file.read(_LARGEST_TOKEN), least=SHORTEST_TOKEN)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=path, path=setting) from None
    if not token:
        raise InputError(
            "holds no token", source=path, path=setting,
            remedy=f"{SHORTEST_TOKEN} or more random characters on one line",
        )  # fmt: skip
    return token
