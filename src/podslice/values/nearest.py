"""Suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the remedy for an unknown name: the nearest known one, or `otherwise` where none is near."""
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else otherwise
