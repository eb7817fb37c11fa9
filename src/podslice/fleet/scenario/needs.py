"""Packages that a simulation needs beside podslice itself."""

from __future__ import annotations

from importlib.util import find_spec

from podslice.values.errors import InputError


def need_numpy() -> None:
    """Raise `InputError` where numpy is not installed."""
    if find_spec("numpy") is None:
        raise InputError("simulating needs numpy", remedy="pip install 'podslice[fleet]'")
