"""A name that nobody knows, and the known one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The remedy for a name that is none of the known ones: the nearest of them, or what to do where none is near."""
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else otherwise
